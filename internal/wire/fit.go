package wire

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
)

// DefaultRowSize is the maximum size of a row of a list without its package, in
// bytes, unless the client accepts more ([RowSizeKey]). gRPC's clients refuse
// messages of more than 4 MiB by default, and one refused row ends the whole
// list.
const DefaultRowSize = 4<<20 - 128<<10

// The approximate size of the other parts of a row: tags, lengths, times.
const (
	entryBytes     = 16
	conditionBytes = 48
	rowBytes       = 1 << 10
	cutMessage     = 200 // bytes of a condition's message that remain
)

// A Fitting has the parts of a row that may be cut to make it fit. The row owns
// them.
type Fitting struct {
	Stamp       *tko.Stamp
	Metadata    *map[string]string
	Deployments *[]tko.DeploymentID // nil if there are none
	Count       *int                // of deployments; nil if there are none
}

// Fit cuts a row to size bytes: first IDs of deployments, then messages of
// conditions, then the largest metadata. The stamp records which parts were
// cut.
func (f Fitting) Fit(size int) {
	over := f.size() - size
	if over <= 0 {
		return
	}
	over = f.cutDeployments(over)
	if over <= 0 {
		return
	}
	over = f.cutConditions(over)
	if over <= 0 {
		return
	}
	f.cutMetadata(over)
}

// FitDeployments is like Fit, but cuts only IDs of deployments: an entity that
// clients read in order to write it must be complete otherwise.
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

// deploymentBytes returns the size of an ID: all have the same length.
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
	anyCut := false
	for _, i := range order {
		text := conditions[i].Message
		if over <= 0 || len(text) <= cutMessage {
			break
		}
		conditions[i].Message = cut(text, cutMessage)
		over -= len(text) - len(conditions[i].Message)
		anyCut = true
	}
	if anyCut {
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
	anyCut := false
	for _, key := range keys {
		if over <= 0 {
			break
		}
		over -= len(key) + len(metadata[key]) + entryBytes
		delete(metadata, key)
		anyCut = true
	}
	if anyCut {
		*f.Metadata = metadata
		f.Stamp.LeftOut = append(f.Stamp.LeftOut, tko.LeftOutMetadata)
	}
}

// FitTemplate returns the parts of a template that may be cut.
func FitTemplate(t *tko.Template) Fitting {
	return Fitting{Stamp: &t.Stamp, Metadata: &t.Metadata, Deployments: &t.Deployments, Count: &t.DeploymentCount}
}

// FitSite returns the parts of a site that may be cut.
func FitSite(s *tko.Site) Fitting {
	return Fitting{Stamp: &s.Stamp, Metadata: &s.Metadata, Deployments: &s.Deployments, Count: &s.DeploymentCount}
}

// FitDeployment returns the parts of a deployment that may be cut.
func FitDeployment(d *tko.Deployment) Fitting {
	return Fitting{Stamp: &d.Stamp, Metadata: &d.Metadata}
}
