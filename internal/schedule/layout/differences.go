package layout

import (
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/krm"
)

const (
	maxDetails = 20  // differences of one file
	maxDetail  = 300 // bytes of one difference
)

// Differences returns the differences of two files with one resource each, or why they aren't
// shown. It shows no values of Secrets.
func Differences(before, after []byte) []string {
	var resources [2]krm.Resource
	for i, data := range [][]byte{before, after} {
		pkg, err := krm.Decode(krm.YAML, data, krm.Limits{})
		if err != nil || len(pkg) != 1 {
			return []string{"what is there isn't one resource in YAML"}
		}
		resources[i] = pkg[0]
	}
	var details []string
	for one := range krm.Differences(resources[0], resources[1]) {
		details = append(details, printable.Short(one.String(), maxDetail))
		if len(details) == maxDetails {
			break
		}
	}
	if len(details) == 0 {
		return []string{"the text of the file differs, not its resource"}
	}
	return details
}
