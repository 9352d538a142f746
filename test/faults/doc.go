// Package faults runs real servers under a random workload, while their processes, their
// database, their network, their disk and their memory fail at random. A checker compares
// the outcome with a model of what was acknowledged. There is nothing to import.
//
// The seed of a run is in its log. TKO_FAULTS_SEED repeats the choices of a run, although
// not the moments at which processes and networks act on them; "random" chooses another
// seed for each round. TKO_FAULTS_TIME is the duration of the faults, such as 1h. TKO_FAULTS_ONLY
// is a regular expression that selects faults by their names.
package faults
