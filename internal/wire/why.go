package wire

import (
	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

// NewGetBlame and GetBlame convert requests for a blame.
var NewGetBlame, GetBlame = Pair[tko.BlameRequest, tkopb.GetBlame](nil)

// NewBlame writes a blame.
var NewBlame, blame = Pair[tko.Blame, tkopb.Blame](nil)

var _, _ = Pair[tko.Origin, tkopb.Origin](Names{"Who": "Author.Who", "Why": "Author.Why"})

// Blame reads a blame. An origin that isn't in the message is unknown.
func Blame(m *tkopb.Blame) tko.Blame {
	b := blame(m)
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

// NewGetSiteExplanation and GetSiteExplanation convert requests for an explanation of a site.
var NewGetSiteExplanation, GetSiteExplanation = Pair[tko.SiteExplanationRequest, tkopb.GetSiteExplanation](Names{"AsOf": ""})

// NewSiteExplanation and SiteExplanation convert explanations of a site.
var NewSiteExplanation, SiteExplanation = Pair[tko.SiteExplanation, tkopb.SiteExplanation](nil)

// NewSiteComparison and SiteComparison convert comparisons of a site.
var NewSiteComparison, SiteComparison = Pair[tko.SiteComparison, tkopb.SiteComparison](nil)

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

// NewTemplateImpact and TemplateImpact convert the impact of a template.
var NewTemplateImpact, TemplateImpact = Pair[tko.TemplateImpact, tkopb.TemplateImpact](nil)

var _, _ = Pair[tko.ImpactRollout, tkopb.ImpactRollout](Names{"RolloutId": "ID"})
