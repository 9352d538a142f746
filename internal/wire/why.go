package wire

import (
	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

// GetBlame converts requests for a blame.
var GetBlame = NewPair[tko.BlameRequest, tkopb.GetBlame](nil)

var blame = NewPair[tko.Blame, tkopb.Blame](nil)

var _ = NewPair[tko.Origin, tkopb.Origin](Names{"Who": "Author.Who", "Why": "Author.Why"})

// NewBlame writes a blame.
func NewBlame(b tko.Blame) *tkopb.Blame { return blame.Write(b) }

// Blame reads a blame. An origin that isn't in the message is unknown.
func Blame(m *tkopb.Blame) tko.Blame {
	b := blame.Read(m)
	known := len(b.Origins)
	for i := range b.Fields {
		f := &b.Fields[i]
		if f.Origin >= 0 && f.Origin < known {
			continue
		}
		if len(b.Origins) == known {
			b.Origins = append(b.Origins, tko.Origin{Source: tko.SourceUnknown})
		}
		f.Origin = known
	}
	return b
}

// GetSiteExplanation converts requests for an explanation of a site.
var GetSiteExplanation = NewPair[tko.SiteExplanationRequest, tkopb.GetSiteExplanation](Names{"AsOf": ""})

// SiteExplanation converts explanations of a site.
var SiteExplanation = NewPair[tko.SiteExplanation, tkopb.SiteExplanation](nil)

// SiteComparison converts comparisons of a site.
var SiteComparison = NewPair[tko.SiteComparison, tkopb.SiteComparison](nil)

// NewGetTemplateImpact writes a request for the impact of a template.
func NewGetTemplateImpact(r tko.TemplateImpactRequest, format krm.Format) (*tkopb.GetTemplateImpact, error) {
	m := &tkopb.GetTemplateImpact{TemplateId: string(r.Template)}
	if r.Package == nil {
		return m, nil
	}
	var err error
	m.PackageFormat, m.Package, err = encode(format, r.Package)
	return m, err
}

// GetTemplateImpact reads a request for the impact of a template.
func GetTemplateImpact(m *tkopb.GetTemplateImpact) (tko.TemplateImpactRequest, error) {
	r := tko.TemplateImpactRequest{Template: tko.TemplateID(m.GetTemplateId())}
	if m.GetPackageFormat() == "" && len(m.GetPackage()) == 0 {
		return r, nil
	}
	pkg, err := Package(m.GetPackageFormat(), m.GetPackage())
	if pkg == nil {
		pkg = krm.Package{}
	}
	r.Package = pkg
	return r, err
}

// TemplateImpact converts the impact of a template.
var TemplateImpact = NewPair[tko.TemplateImpact, tkopb.TemplateImpact](nil)

var _ = NewPair[tko.ImpactRollout, tkopb.ImpactRollout](Names{"RolloutId": "ID"})
