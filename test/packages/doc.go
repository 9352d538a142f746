// Package packages tests the packages of a release: it installs them on a copy of
// this machine, under a systemd of its own.
package packages
