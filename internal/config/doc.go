// Package config holds the settings of tko-server: what they are, where they
// come from (flags, then environment, then a file, then defaults), and whether
// they make sense together. It starts nothing.
package config
