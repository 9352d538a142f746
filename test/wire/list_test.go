package wire

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/tko-orchestrator/tko/test/wire/contractpb"
)

func templateIDs(t *testing.T, p *peer, m *contractpb.ListTemplates) []string {
	t.Helper()
	ids := []string{}
	for _, row := range must[[]*contractpb.ListedTemplate](t)(all(p.ListTemplates(t.Context(), m))) {
		ids = append(ids, row.GetTemplateId())
	}
	return ids
}

func TestListsHaveWindowsInByteOrder(t *testing.T) {
	t.Parallel()
	p := serve(t)
	// Neighbours in orders other than that of bytes.
	ids := []string{"-", ".", "/", "0", ":", "A", "B", "Z", "_", "a", "a-", "a.", "a/", "a0", "a:", "aA", "a_", "aa", "b"}
	for i := range 300 {
		ids = append(ids, fmt.Sprintf("n%03d", i))
	}
	for _, id := range slices.Backward(ids) {
		p.registerTemplate(t, id, nil)
	}
	n := len(ids)
	tests := map[string]struct {
		why    string
		window *contractpb.Window
		want   []string
	}{
		"none":            {"without a window it is everything", nil, ids},
		"nothing":         {"0 is nothing", &contractpb.Window{}, nil},
		"nothing, offset": {"0 is nothing, wherever", &contractpb.Window{Offset: 3}, nil},
		"no limit":        {"negative is no limit", &contractpb.Window{MaxCount: -1}, ids},
		"very negative":   {"any negative", &contractpb.Window{MaxCount: math.MinInt32, Offset: 5}, ids[5:]},
		"first":           {"cuts", &contractpb.Window{MaxCount: 1}, ids[:1]},
		"some":            {"skips and cuts", &contractpb.Window{Offset: 10, MaxCount: 25}, ids[10:35]},
		"rest":            {"ends where it ends", &contractpb.Window{Offset: uint32(n) - 2, MaxCount: 100}, ids[n-2:]},
		"end":             {"nothing after the end", &contractpb.Window{Offset: uint32(n), MaxCount: 100}, nil},
		"far":             {"nor far after it", &contractpb.Window{Offset: math.MaxUint32, MaxCount: -1}, nil},
		"all":             {"there is no upper limit", &contractpb.Window{MaxCount: math.MaxInt32}, ids},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := templateIDs(t, p, &contractpb.ListTemplates{Window: test.window})
			if !slices.Equal(got, test.want) {
				t.Errorf("%s (-want +got):\n%s", test.why, cmp.Diff(test.want, got))
			}
		})
	}
	t.Run("paging by growing offset", func(t *testing.T) {
		var got []string
		for offset := uint32(0); ; offset += 7 {
			page := templateIDs(t, p, &contractpb.ListTemplates{Window: &contractpb.Window{Offset: offset, MaxCount: 7}})
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
		}
		if !slices.Equal(got, ids) {
			t.Errorf("pages (-want +got):\n%s", cmp.Diff(ids, got))
		}
	})
	t.Run("a window on what is selected", func(t *testing.T) {
		got := templateIDs(t, p, &contractpb.ListTemplates{
			Window: &contractpb.Window{Offset: 1, MaxCount: 2},
			Select: &contractpb.SelectTemplates{TemplateIdPatterns: []string{"n*5"}},
		})
		if want := []string{"n015", "n025"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestIDPatternsSelect(t *testing.T) {
	t.Parallel()
	p := serve(t)
	ids := []string{"a", "a.b", "a/b", "a/b/c", "a/b:v1", "a:v1", "axb", "b", "nf/amf:v1.0.0", "nf/upf:v1.0.0", "nf/upf:v1.1.0", "x_y", "xzy"}
	for _, id := range ids {
		p.registerTemplate(t, id, nil)
		p.registerSite(t, id, "", nil)
		must[*contractpb.RegisterResponse](t)(p.RegisterPlugin(t.Context(), &contractpb.Plugin{Type: "prepare", Name: id, Arguments: []string{"x"}}))
	}
	tests := map[string]struct {
		patterns []string
		want     []string
	}{
		"no pattern":               {nil, ids},
		"itself":                   {[]string{"a"}, []string{"a"}},
		"the whole string":         {[]string{"nf"}, nil},
		"a dot is a dot":           {[]string{"a.b"}, []string{"a.b"}},
		"an underscore is itself":  {[]string{"x_y"}, []string{"x_y"}},
		"a percent sign is itself": {[]string{"%"}, nil},
		"a bracket is itself":      {[]string{"[ab]"}, nil},
		"a question mark, too":     {[]string{"?"}, nil},
		"* stays within":           {[]string{"*"}, []string{"a", "a.b", "axb", "b", "x_y", "xzy"}},
		"* at the end":             {[]string{"a*"}, []string{"a", "a.b", "axb"}},
		"* in the middle":          {[]string{"a*b"}, []string{"a.b", "axb"}},
		"* between":                {[]string{"*/*"}, []string{"a/b"}},
		"* and :":                  {[]string{"*/*:v1*"}, []string{"a/b:v1", "nf/amf:v1.0.0", "nf/upf:v1.0.0", "nf/upf:v1.1.0"}},
		"** crosses":               {[]string{"a**"}, []string{"a", "a.b", "a/b", "a/b/c", "a/b:v1", "a:v1", "axb"}},
		"** is all":                {[]string{"**"}, ids},
		"*** is **":                {[]string{"a***b"}, []string{"a.b", "a/b", "axb"}},
		"a run may be empty":       {[]string{"**a**"}, []string{"a", "a.b", "a/b", "a/b/c", "a/b:v1", "a:v1", "axb", "nf/amf:v1.0.0"}},
		`\ escapes a star`:         {[]string{`a\*`}, nil},
		`\ escapes a letter`:       {[]string{`\a`}, []string{"a"}},
		"both must match":          {[]string{"nf/**", "**:v1.0*"}, []string{"nf/amf:v1.0.0", "nf/upf:v1.0.0"}},
		"all must match":           {[]string{"nf/**", "**upf**", "**:v1.0.0"}, []string{"nf/upf:v1.0.0"}},
		"that both can't":          {[]string{"a", "b"}, nil},
		"the empty pattern":        {[]string{""}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.want == nil {
				test.want = []string{}
			}
			got := templateIDs(t, p, &contractpb.ListTemplates{Select: &contractpb.SelectTemplates{TemplateIdPatterns: test.patterns}})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("templates %q (-want +got):\n%s", test.patterns, diff)
			}
			got = []string{}
			for _, row := range must[[]*contractpb.ListedSite](t)(all(p.ListSites(t.Context(), &contractpb.ListSites{Select: &contractpb.SelectSites{SiteIdPatterns: test.patterns}}))) {
				got = append(got, row.GetSiteId())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("sites %q (-want +got):\n%s", test.patterns, diff)
			}
			got = []string{}
			for _, row := range must[[]*contractpb.Plugin](t)(all(p.ListPlugins(t.Context(), &contractpb.ListPlugins{Select: &contractpb.SelectPlugins{NamePatterns: test.patterns}}))) {
				got = append(got, row.GetName())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("plugins %q (-want +got):\n%s", test.patterns, diff)
			}
		})
	}
}

func TestMetadataPatternsSelect(t *testing.T) {
	t.Parallel()
	p := serve(t)
	for id, metadata := range map[string]map[string]string{
		"1": {"cloud": "GCP", "path": "a/b:c"},
		"2": {"cloud": "GKE", "path": ""},
		"3": {"cloud": "AWS", "path": "a\nb", "star": "*"},
		"4": {"Cloud": "GCP"},
		"5": {"star": "ü100%_"},
		"6": nil,
	} {
		p.registerTemplate(t, id, metadata)
		p.registerSite(t, id, "", metadata)
		p.createDeployment(t, &contractpb.CreateDeployment{TemplateId: id, SiteId: id, MergeMetadata: metadata})
	}
	tests := map[string]struct {
		patterns map[string]string
		want     []string
	}{
		"exactly":             {map[string]string{"cloud": "GCP"}, []string{"1"}},
		"keys have a case":    {map[string]string{"Cloud": "GCP"}, []string{"4"}},
		"prefix":              {map[string]string{"cloud": "G*"}, []string{"1", "2"}},
		"present":             {map[string]string{"cloud": "*"}, []string{"1", "2", "3"}},
		"* crosses":           {map[string]string{"path": "a*c"}, []string{"1"}},
		"* crosses lines":     {map[string]string{"path": "a*b"}, []string{"3"}},
		"empty":               {map[string]string{"path": ""}, []string{"2"}},
		"escaped":             {map[string]string{"star": `\*`}, []string{"3"}},
		"percent, underscore": {map[string]string{"star": `*100%_`}, []string{"5"}},
		"both":                {map[string]string{"cloud": "*", "path": "a*"}, []string{"1", "3"}},
		"neither":             {map[string]string{"cloud": "GCP", "path": "x"}, nil},
		"unknown key":         {map[string]string{"nothing": "*"}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.want == nil {
				test.want = []string{}
			}
			got := templateIDs(t, p, &contractpb.ListTemplates{Select: &contractpb.SelectTemplates{MetadataPatterns: test.patterns}})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("templates (-want +got):\n%s", diff)
			}
			got = []string{}
			for _, row := range must[[]*contractpb.ListedSite](t)(all(p.ListSites(t.Context(), &contractpb.ListSites{Select: &contractpb.SelectSites{MetadataPatterns: test.patterns}}))) {
				got = append(got, row.GetSiteId())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("sites (-want +got):\n%s", diff)
			}
			for which, s := range map[string]*contractpb.SelectDeployments{
				"own":      {MetadataPatterns: test.patterns},
				"template": {TemplateMetadataPatterns: test.patterns},
				"site":     {SiteMetadataPatterns: test.patterns},
			} {
				got = []string{}
				for _, row := range must[[]*contractpb.ListedDeployment](t)(all(p.ListDeployments(t.Context(), &contractpb.ListDeployments{Select: s}))) {
					got = append(got, row.GetTemplateId())
				}
				slices.Sort(got)
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("deployments by their %s metadata (-want +got):\n%s", which, diff)
				}
			}
		})
	}
}

func TestSitesAreSelectedByTemplate(t *testing.T) {
	t.Parallel()
	p := serve(t)
	p.registerTemplate(t, "edge/small", nil)
	p.registerTemplate(t, "edge/large", nil)
	p.registerSite(t, "s", "edge/small", nil)
	p.registerSite(t, "l", "edge/large", nil)
	p.registerSite(t, "none", "", nil)
	for _, test := range []struct {
		patterns, want []string
	}{
		{nil, []string{"l", "none", "s"}},
		{[]string{"edge/*"}, []string{"l", "s"}},
		{[]string{"edge/*", "**small"}, []string{"s"}},
	} {
		got := []string{}
		for _, row := range must[[]*contractpb.ListedSite](t)(all(p.ListSites(t.Context(), &contractpb.ListSites{Select: &contractpb.SelectSites{TemplateIdPatterns: test.patterns}}))) {
			got = append(got, row.GetSiteId())
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.patterns, diff)
		}
	}
}

func TestDeploymentsAreSelected(t *testing.T) {
	t.Parallel()
	p := serve(t)
	p.registerTemplate(t, "nf/a", nil)
	p.registerTemplate(t, "nf/b", nil)
	p.registerSite(t, "x", "", nil)
	p.registerSite(t, "y", "", nil)
	parent := p.createDeployment(t, &contractpb.CreateDeployment{})
	names := map[string]string{parent: "parent"}
	for name, m := range map[string]*contractpb.CreateDeployment{
		"child":    {ParentDeploymentId: parent, TemplateId: "nf/a", SiteId: "x"},
		"prepared": {TemplateId: "nf/b", SiteId: "x", Prepared: true},
		"both":     {TemplateId: "nf/b", SiteId: "y", Prepared: true, Approved: true},
		"approved": {SiteId: "y", Approved: true},
	} {
		names[p.createDeployment(t, m)] = name
	}
	everything := []string{"approved", "both", "child", "parent", "prepared"}
	tests := map[string]struct {
		s    *contractpb.SelectDeployments
		want []string
	}{
		"none":              {nil, everything},
		"empty":             {&contractpb.SelectDeployments{}, everything},
		"empty parent":      {&contractpb.SelectDeployments{ParentDeploymentId: new("")}, everything},
		"parent":            {&contractpb.SelectDeployments{ParentDeploymentId: &parent}, []string{"child"}},
		"unknown parent":    {&contractpb.SelectDeployments{ParentDeploymentId: new("000000000000000000000000000")}, []string{}},
		"a parent is exact": {&contractpb.SelectDeployments{ParentDeploymentId: new("*")}, []string{}},
		"template":          {&contractpb.SelectDeployments{TemplateIdPatterns: []string{"nf/*"}}, []string{"both", "child", "prepared"}},
		"templates":         {&contractpb.SelectDeployments{TemplateIdPatterns: []string{"nf/*", "**b"}}, []string{"both", "prepared"}},
		"site":              {&contractpb.SelectDeployments{SiteIdPatterns: []string{"y"}}, []string{"approved", "both"}},
		"prepared":          {&contractpb.SelectDeployments{Prepared: new(true)}, []string{"both", "prepared"}},
		"not prepared":      {&contractpb.SelectDeployments{Prepared: new(false)}, []string{"approved", "child", "parent"}},
		"approved":          {&contractpb.SelectDeployments{Approved: new(true)}, []string{"approved", "both"}},
		"not approved":      {&contractpb.SelectDeployments{Approved: new(false)}, []string{"child", "parent", "prepared"}},
		"all of it":         {&contractpb.SelectDeployments{Prepared: new(true), Approved: new(true), SiteIdPatterns: []string{"*"}, TemplateIdPatterns: []string{"nf/b"}}, []string{"both"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rows := must[[]*contractpb.ListedDeployment](t)(all(p.ListDeployments(t.Context(), &contractpb.ListDeployments{Select: test.s})))
			if !slices.IsSortedFunc(rows, func(a, b *contractpb.ListedDeployment) int {
				if a.GetDeploymentId() < b.GetDeploymentId() {
					return -1
				}
				return 1
			}) {
				t.Errorf("not sorted: %v", rows)
			}
			got := []string{}
			for _, row := range rows {
				got = append(got, names[row.GetDeploymentId()])
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPluginsAreSelected(t *testing.T) {
	t.Parallel()
	p := serve(t)
	gvk := &contractpb.GVK{Group: "g", Version: "v1", Kind: "K"}
	for _, m := range []*contractpb.Plugin{
		{Type: "validate", Name: "a", Arguments: []string{"x"}, Triggers: []*contractpb.GVK{gvk}},
		{Type: "schedule", Name: "b", Arguments: []string{"x"}},
		{Type: "prepare", Name: "b", Executor: "kpt", Arguments: []string{"image"}, Triggers: []*contractpb.GVK{{Version: "v1", Kind: "K"}, gvk}},
		{Type: "prepare", Name: "a/b", Arguments: []string{"x"}},
		{Type: "prepare", Name: "a-b", Arguments: []string{"x"}},
		{Type: "prepare", Name: "a", Arguments: []string{"x"}},
	} {
		must[*contractpb.RegisterResponse](t)(p.RegisterPlugin(t.Context(), m))
	}
	all6 := []string{"prepare|a", "prepare|a-b", "prepare|a/b", "prepare|b", "schedule|b", "validate|a"}
	tests := map[string]struct {
		m    *contractpb.ListPlugins
		want []string
	}{
		"none":     {&contractpb.ListPlugins{}, all6},
		"window":   {&contractpb.ListPlugins{Window: &contractpb.Window{Offset: 1, MaxCount: 3}}, all6[1:4]},
		"type":     {&contractpb.ListPlugins{Select: &contractpb.SelectPlugins{Type: new("prepare")}}, all6[:4]},
		"executor": {&contractpb.ListPlugins{Select: &contractpb.SelectPlugins{Executor: new("kpt")}}, []string{"prepare|b"}},
		"trigger":  {&contractpb.ListPlugins{Select: &contractpb.SelectPlugins{Trigger: gvk}}, []string{"prepare|b", "validate|a"}},
		"another":  {&contractpb.ListPlugins{Select: &contractpb.SelectPlugins{Trigger: &contractpb.GVK{Group: "g", Version: "v2", Kind: "K"}}}, []string{}},
		"no group": {&contractpb.ListPlugins{Select: &contractpb.SelectPlugins{Trigger: &contractpb.GVK{Version: "v1", Kind: "K"}}}, []string{"prepare|b"}},
		"names":    {&contractpb.ListPlugins{Select: &contractpb.SelectPlugins{NamePatterns: []string{"a**", "**b"}}}, []string{"prepare|a-b", "prepare|a/b"}},
		"empty":    {&contractpb.ListPlugins{Select: &contractpb.SelectPlugins{Type: new(""), Executor: new(""), Trigger: &contractpb.GVK{}}}, all6},
		"all of it": {&contractpb.ListPlugins{Select: &contractpb.SelectPlugins{
			Type: new("prepare"), Executor: new("kpt"), Trigger: gvk, NamePatterns: []string{"*"},
		}}, []string{"prepare|b"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := []string{}
			for _, row := range must[[]*contractpb.Plugin](t)(all(p.ListPlugins(t.Context(), test.m))) {
				got = append(got, row.GetType()+"|"+row.GetName())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	answer := must[*contractpb.DeleteResponse](t)(p.PurgePlugins(t.Context(), &contractpb.SelectPlugins{Trigger: gvk}))
	if rows := must[[]*contractpb.Plugin](t)(all(p.ListPlugins(t.Context(), &contractpb.ListPlugins{}))); !answer.GetDeleted() || len(rows) != 4 {
		t.Errorf("after a purge (%v) by trigger there are %v", answer, rows)
	}
}

// An invalid pattern is rejected, even if the result would be empty.
func TestInvalidPatternsAreRejected(t *testing.T) {
	t.Parallel()
	p := serve(t)
	p.registerTemplate(t, "a", nil)
	p.registerSite(t, "a", "", nil)
	p.createDeployment(t, &contractpb.CreateDeployment{TemplateId: "a", SiteId: "a"})
	must[*contractpb.RegisterResponse](t)(p.RegisterPlugin(t.Context(), &contractpb.Plugin{Type: "prepare", Name: "a", Arguments: []string{"x"}}))

	ids, metadata := []string{"a", `a\`}, map[string]string{"k": `v\`}
	for _, window := range []*contractpb.Window{nil, {MaxCount: 0}} {
		for _, s := range []*contractpb.SelectTemplates{{TemplateIdPatterns: ids}, {MetadataPatterns: metadata}} {
			_, err := all(p.ListTemplates(t.Context(), &contractpb.ListTemplates{Window: window, Select: s}))
			wantCode(t, err, codes.InvalidArgument)
			_, err = p.PurgeTemplates(t.Context(), s)
			wantCode(t, err, codes.InvalidArgument)
		}
		for _, s := range []*contractpb.SelectSites{{SiteIdPatterns: ids}, {TemplateIdPatterns: ids}, {MetadataPatterns: metadata}} {
			_, err := all(p.ListSites(t.Context(), &contractpb.ListSites{Window: window, Select: s}))
			wantCode(t, err, codes.InvalidArgument)
			_, err = p.PurgeSites(t.Context(), s)
			wantCode(t, err, codes.InvalidArgument)
		}
		for _, s := range []*contractpb.SelectDeployments{
			{TemplateIdPatterns: ids},
			{SiteIdPatterns: ids},
			{MetadataPatterns: metadata},
			{TemplateMetadataPatterns: metadata},
			{SiteMetadataPatterns: metadata},
		} {
			_, err := all(p.ListDeployments(t.Context(), &contractpb.ListDeployments{Window: window, Select: s}))
			wantCode(t, err, codes.InvalidArgument)
			_, err = p.PurgeDeployments(t.Context(), s)
			wantCode(t, err, codes.InvalidArgument)
		}
		s := &contractpb.SelectPlugins{NamePatterns: ids}
		_, err := all(p.ListPlugins(t.Context(), &contractpb.ListPlugins{Window: window, Select: s}))
		wantCode(t, err, codes.InvalidArgument)
		_, err = p.PurgePlugins(t.Context(), s)
		wantCode(t, err, codes.InvalidArgument)
	}
	if rows := must[[]*contractpb.ListedDeployment](t)(all(p.ListDeployments(t.Context(), &contractpb.ListDeployments{}))); len(rows) != 1 {
		t.Errorf("a refused purge purged: %v", rows)
	}
}

func TestPurgeDeletesSelection(t *testing.T) {
	t.Parallel()
	p := serve(t)
	purged := func(t *testing.T) func(*contractpb.DeleteResponse, error) {
		return func(answer *contractpb.DeleteResponse, err error) {
			t.Helper()
			if err != nil || !answer.GetDeleted() || answer.GetNotDeletedReason() != "" {
				t.Errorf("got %v, %v; want deleted: true", answer, err)
			}
		}
	}
	// A purge that matches nothing succeeds.
	nothing := []string{"nothing"}
	purged(t)(p.PurgeTemplates(t.Context(), &contractpb.SelectTemplates{TemplateIdPatterns: nothing}))
	purged(t)(p.PurgeSites(t.Context(), &contractpb.SelectSites{SiteIdPatterns: nothing}))
	purged(t)(p.PurgeDeployments(t.Context(), &contractpb.SelectDeployments{SiteIdPatterns: nothing}))
	purged(t)(p.PurgePlugins(t.Context(), &contractpb.SelectPlugins{NamePatterns: nothing}))

	for _, id := range []string{"a/1", "a/2", "b/1"} {
		p.registerTemplate(t, id, map[string]string{"n": id})
		p.registerSite(t, id, id, nil)
	}
	keep := p.createDeployment(t, &contractpb.CreateDeployment{TemplateId: "b/1", SiteId: "a/1"})
	lost := p.createDeployment(t, &contractpb.CreateDeployment{TemplateId: "a/1", SiteId: "b/1"})
	child := p.createDeployment(t, &contractpb.CreateDeployment{TemplateId: "b/1", ParentDeploymentId: lost})

	purged(t)(p.PurgeSites(t.Context(), &contractpb.SelectSites{TemplateIdPatterns: []string{"a/*"}, MetadataPatterns: map[string]string{"n": "a*"}}))
	sites := must[[]*contractpb.ListedSite](t)(all(p.ListSites(t.Context(), &contractpb.ListSites{})))
	if len(sites) != 1 || sites[0].GetSiteId() != "b/1" {
		t.Errorf("sites left: %v", sites)
	}
	if d, _ := p.getDeployment(t, keep); d.GetSiteId() != "" || d.GetTemplateId() != "b/1" {
		t.Errorf("the deployment of a purged site is at %q of %q", d.GetSiteId(), d.GetTemplateId())
	}
	purged(t)(p.PurgeDeployments(t.Context(), &contractpb.SelectDeployments{TemplateIdPatterns: []string{"a/*"}}))
	for _, id := range []string{lost, child} {
		_, err := p.GetDeployment(t.Context(), &contractpb.GetDeployment{DeploymentId: id})
		wantCode(t, err, codes.NotFound)
	}
	p.getDeployment(t, keep)
	purged(t)(p.PurgeTemplates(t.Context(), &contractpb.SelectTemplates{TemplateIdPatterns: []string{"*/1"}}))
	if got := templateIDs(t, p, &contractpb.ListTemplates{}); !slices.Equal(got, []string{"a/2"}) {
		t.Errorf("templates left: %q", got)
	}
	purged(t)(p.PurgeDeployments(t.Context(), &contractpb.SelectDeployments{ParentDeploymentId: new("")}))
	if rows := must[[]*contractpb.ListedDeployment](t)(all(p.ListDeployments(t.Context(), &contractpb.ListDeployments{}))); len(rows) != 0 {
		t.Errorf("deployments left after purging all: %v", rows)
	}
}

// A client that disconnects during a list does no harm.
func TestCancelledListDoesNoHarm(t *testing.T) {
	t.Parallel()
	p := serve(t)
	for i := range 200 {
		p.registerTemplate(t, fmt.Sprintf("t%03d", i), nil)
	}
	for range 20 {
		other := dial(t, p.server)
		stream := must[grpc.ServerStreamingClient[contractpb.ListedTemplate]](t)(other.ListTemplates(t.Context(), &contractpb.ListTemplates{}))
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		if err := other.conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	p.registerTemplate(t, "after", nil)
	if got := templateIDs(t, p, &contractpb.ListTemplates{}); len(got) != 201 {
		t.Errorf("got %d templates, want 201", len(got))
	}
}

// Existing clients can't send confirmations, so one of their requests must not delete
// or approve the fleet.
func TestExistingClientsCannotDeleteFleet(t *testing.T) {
	t.Parallel()
	p := serve(t, "--reach-original=5", "--reach-original-percent=60")
	for i := range 6 {
		p.registerSite(t, fmt.Sprintf("s%d", i), "", nil)
	}
	for range 6 {
		p.createDeployment(t, &contractpb.CreateDeployment{Prepared: true, SiteId: "s0"})
	}
	_, err := p.PurgeSites(t.Context(), &contractpb.SelectSites{})
	wantCode(t, err, codes.InvalidArgument)
	_, err = p.PurgeDeployments(t.Context(), &contractpb.SelectDeployments{})
	wantCode(t, err, codes.InvalidArgument)
	if rows := must[[]*contractpb.ListedSite](t)(all(p.ListSites(t.Context(), &contractpb.ListSites{}))); len(rows) != 6 {
		t.Errorf("%d sites are left", len(rows))
	}
	if answer := must[*contractpb.DeleteResponse](t)(p.PurgeSites(t.Context(), &contractpb.SelectSites{SiteIdPatterns: []string{"s[0-4]"}})); !answer.GetDeleted() {
		t.Errorf("a purge that matches nothing: %v", answer)
	}
	p.registerSite(t, "t", "", nil)
	for i := range 4 {
		p.registerSite(t, fmt.Sprintf("t%d", i), "", nil)
	}
	must[*contractpb.DeleteResponse](t)(p.PurgeSites(t.Context(), &contractpb.SelectSites{SiteIdPatterns: []string{"s*"}})) // 6 of 11 are 55 %
}
