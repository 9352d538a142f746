// Package osmops reads repositories in the format of OSM Ops: osm_ops_config.yaml,
// NsInstance files and osm-pkgs. It reads and checks files, without any request of
// OSM. Start reading at [Read].
package osmops
