// Package osmops reads the files that users of OSM Ops have in their
// repositories: osm_ops_config.yaml, NsInstance files and osm-pkgs. It reads
// and checks; it asks nobody. Start reading at [Read].
package osmops
