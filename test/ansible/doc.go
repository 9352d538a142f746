// Package ansible tests the Ansible collection (ansible/): it runs playbooks with
// ansible-core against a real server. There is nothing to import.
package ansible
