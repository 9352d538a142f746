// Package config holds the settings of tko-server: their defaults, where their values
// come from (flags, then the environment, then a file, then the defaults), and
// whether they are valid together. It starts nothing.
package config
