package wire

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
)

// DefaultRowSize is how many bytes a row of a list has at most beside its
// package, as long as the client doesn't say that it takes more ([RowSizeKey]).
// gRPC's clients refuse messages of more than 4 MiB unless configured, and one
// row that is refused ends the whole list.
const DefaultRowSize = 4<<20 - 128<<10

// What a row has beside texts, roughly: tags, lengths, times.
const (
	entryBytes     = 16
	conditionBytes = 48
	rowBytes       = 1 << 10
	cutMessage     = 200 // bytes that are left of a condition's message
)

// A Fitting is what of a row may be cut so that it fits. The row owns it.
type Fitting struct {
	Stamp       *tko.Stamp
	Metadata    *map[string]string
	Deployments *[]tko.DeploymentID // nil if there are none
	Count       *int                // of deployments; nil if there are none
}

// Fit cuts what doesn't fit into size bytes: IDs of deployments at first, then
// messages of conditions, then the largest metadata. What was cut is said in the
// stamp.
func (f Fitting) Fit(size int) {
	over := f.size() - size
	if over <= 0 {
		return
	}
	over = f.cutDeployments(over)
	if over <= 0 {
		return
	}
	if over = f.cutConditions(over); over <= 0 {
		return
	}
	f.cutMetadata(over)
}

// FitDeployments is Fit, but leaves everything else as it is: what is read to be
// written back must be whole.
func (f Fitting) FitDeployments(size int) {
	if over := f.size() - size; over > 0 {
		f.cutDeployments(over)
	}
}

func (f Fitting) size() int {
	n := rowBytes
	for key, value := range *f.Metadata {
		n += len(key) + len(value) + entryBytes
	}
	for _, c := range f.Stamp.Conditions {
		n += len(c.Type) + len(c.Reason) + len(c.Message) + conditionBytes
	}
	if f.Deployments != nil && len(*f.Deployments) > 0 {
		n += len(*f.Deployments) * deploymentBytes(*f.Deployments)
	}
	return n
}

// deploymentBytes is what an ID takes: all have the same length.
func deploymentBytes(ids []tko.DeploymentID) int { return len(ids[0]) + 2 }

func (f Fitting) cutDeployments(over int) int {
	if f.Deployments == nil || len(*f.Deployments) == 0 {
		return over
	}
	ids := *f.Deployments
	each := deploymentBytes(ids)
	n := min(len(ids), (over+each-1)/each)
	*f.Count = max(*f.Count, len(ids))
	*f.Deployments = ids[:len(ids)-n]
	f.Stamp.LeftOut = append(f.Stamp.LeftOut, tko.LeftOutDeployments)
	return over - n*each
}

func (f Fitting) cutConditions(over int) int {
	order := make([]int, len(f.Stamp.Conditions))
	for i := range order {
		order[i] = i
	}
	conditions := slices.Clone(f.Stamp.Conditions)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(conditions[b].Message), len(conditions[a].Message)) })
	some := false
	for _, i := range order {
		text := conditions[i].Message
		if over <= 0 || len(text) <= cutMessage {
			break
		}
		conditions[i].Message = cut(text, cutMessage)
		over -= len(text) - len(conditions[i].Message)
		some = true
	}
	if some {
		f.Stamp.Conditions = conditions
		f.Stamp.LeftOut = append(f.Stamp.LeftOut, tko.LeftOutConditions)
	}
	return over
}

func (f Fitting) cutMetadata(over int) {
	metadata := maps.Clone(*f.Metadata)
	keys := slices.SortedFunc(maps.Keys(metadata), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b)+len(metadata[b]), len(a)+len(metadata[a])), cmp.Compare(a, b))
	})
	some := false
	for _, key := range keys {
		if over <= 0 {
			break
		}
		over -= len(key) + len(metadata[key]) + entryBytes
		delete(metadata, key)
		some = true
	}
	if some {
		*f.Metadata = metadata
		f.Stamp.LeftOut = append(f.Stamp.LeftOut, tko.LeftOutMetadata)
	}
}

// FitTemplate is what of a template may be cut.
func FitTemplate(t *tko.Template) Fitting {
	return Fitting{Stamp: &t.Stamp, Metadata: &t.Metadata, Deployments: &t.Deployments, Count: &t.DeploymentCount}
}

// FitSite is what of a site may be cut.
func FitSite(s *tko.Site) Fitting {
	return Fitting{Stamp: &s.Stamp, Metadata: &s.Metadata, Deployments: &s.Deployments, Count: &s.DeploymentCount}
}

// FitDeployment is what of a deployment may be cut.
func FitDeployment(d *tko.Deployment) Fitting {
	return Fitting{Stamp: &d.Stamp, Metadata: &d.Metadata}
}
