package osm

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm/bundle"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
)

// WhatInstance says of a [Change] or a [Problem] that it is of an instance.
const WhatInstance = "instance"

const maxName = 255

// Check returns the problems that can be found without OSM: invalid names and
// descriptions, duplicates, members and KDUs that the descriptors don't have,
// packages that can't be read. All are [tko.ErrInvalid].
func (d Desired) Check() []Problem {
	_, problems := d.read()
	return problems
}

// local has the contents of the desired packages.
type local struct {
	contents map[string]bundle.Content // by "vnf/ID"
}

// read reads the packages, and checks packages and instances.
func (d Desired) read() (local, []Problem) {
	l := local{contents: map[string]bundle.Content{}}
	var problems []Problem
	seen := map[string]string{}
	for _, p := range d.Packages {
		add := func(err error) { problems = append(problems, Problem{string(p.Kind), p.ID, p.Source, err}) }
		if other, twice := seen[p.Key()]; twice {
			add(tko.Errorf(tko.ErrInvalid, "%s: the %s package %q is also in %s: keep one of them", p.Where(), p.Kind, p.ID, other))
			continue
		}
		seen[p.Key()] = p.Where()
		c, err := p.Load()
		if err != nil {
			add(err)
			continue
		}
		l.contents[p.Key()] = c
	}
	sources := map[string][]string{}
	for _, i := range d.Instances {
		sources[i.Name] = append(sources[i.Name], i.where())
	}
	for _, i := range d.Instances {
		add := func(err error) { problems = append(problems, Problem{WhatInstance, i.Name, i.Source, err}) }
		if all := sources[i.Name]; len(all) > 1 {
			add(tko.Errorf(tko.ErrInvalid, "the name %q is given to %d instances, in %s: OSM would create them all, and TKO could not distinguish them: give each a name of its own", i.Name, len(all), strings.Join(all, ", ")))
			continue
		}
		if err := i.check(); err != nil {
			add(err)
			continue
		}
		if nsd, ok := l.contents[bundle.Key(nbi.KindNS, i.NSD)]; ok {
			if err := i.checkMembers(nsd.Descriptor, l.vnfd); err != nil {
				add(err)
			}
		}
	}
	return l, problems
}

// vnfd returns the VNFD of a desired package.
func (l local) vnfd(id string) (nbi.Descriptor, bool) {
	c, ok := l.contents[bundle.Key(nbi.KindVNF, id)]
	return c.Descriptor, ok
}

// chart returns the chart of a KDU in a desired VNFD; empty if it has no version.
func (l local) chart(nsd, member, kdu string) string {
	for _, m := range l.contents[bundle.Key(nbi.KindNS, nsd)].Descriptor.Members() {
		if m.Index == member {
			return l.contents[bundle.Key(nbi.KindVNF, m.VNFD)].Charts[kdu]
		}
	}
	return ""
}

func (i Instance) where() string {
	if i.Source != "" {
		return i.Source
	}
	return fmt.Sprintf("instance %q", i.Name)
}

// check checks an instance against OSM's limits.
func (i Instance) check() error {
	invalid := func(format string, args ...any) error {
		return tko.Errorf(tko.ErrInvalid, "%s: "+format, append([]any{i.where()}, args...)...)
	}
	switch {
	case i.Name == "" || utf8.RuneCountInString(i.Name) > maxName || strings.ContainsAny(i.Name, `,;()'"`) || strings.TrimSpace(i.Name) == "":
		return invalid("name: %.300q is refused by OSM: use 1 to 255 characters, and none of , ; ( ) ' \"", i.Name)
	case utf8.RuneCountInString(i.Description) > maxName || strings.ContainsAny(i.Description, `'"`):
		return invalid("description: OSM accepts at most 255 characters, and neither ' nor \"")
	case i.NSD == "":
		return invalid("the NSD is missing: write its id")
	case i.VIM == "":
		return invalid("the VIM account is missing: write its name")
	case !i.Broken.Valid():
		return invalid("%q is no action for a broken instance: use Keep or Recreate", i.Broken)
	}
	seen := map[string]bool{}
	for _, v := range i.VNFs {
		if v.Member == "" || seen[v.Member] {
			return invalid("the member %q is missing or there twice", v.Member)
		}
		seen[v.Member] = true
		for n, k := range v.KDUs {
			if k.Name == "" || slices.ContainsFunc(v.KDUs[:n], func(other KDU) bool { return other.Name == k.Name }) {
				return invalid("the KDU %q of member %q is missing or there twice", k.Name, v.Member)
			}
			for name := range k.Params {
				if strings.Contains(name, "$") {
					return invalid("the parameter %q has a $, which OSM refuses: rename it", name)
				}
			}
			if model, ok := k.Params[keyModel]; ok {
				if text, isText := model.(string); !isText || text == "" {
					return invalid("the parameter kdu_model is the chart: write repository/chart:version")
				}
			}
		}
	}
	return nil
}

// checkMembers checks members and KDUs against descriptors. OSM doesn't: it drops the
// parameters of unknown ones.
func (i Instance) checkMembers(nsd nbi.Descriptor, vnfd func(id string) (nbi.Descriptor, bool)) error {
	members := map[string]string{}
	var indexes []string
	for _, m := range nsd.Members() {
		members[m.Index] = m.VNFD
		indexes = append(indexes, m.Index)
	}
	for _, v := range i.VNFs {
		id, ok := members[v.Member]
		if !ok {
			hint := ""
			for _, m := range nsd.Members() {
				if m.VNFD == v.Member {
					hint = fmt.Sprintf(": %q is the id of a VNFD; its member is %q", v.Member, m.Index)
				}
			}
			return tko.Errorf(tko.ErrInvalid, "%s: the NSD %q has no member %q (vnfName), only %s%s", i.where(), i.NSD, v.Member, quoted(indexes), hint)
		}
		d, known := vnfd(id)
		if !known {
			continue
		}
		var names []string
		for _, k := range d.KDUs {
			names = append(names, k.Name)
		}
		for _, k := range v.KDUs {
			if !slices.Contains(names, k.Name) {
				return tko.Errorf(tko.ErrInvalid, "%s: the VNFD %q of member %q has no KDU %q, only %s", i.where(), id, v.Member, k.Name, quoted(names))
			}
		}
	}
	return nil
}

func quoted(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	slices.Sort(names)
	return fmt.Sprintf("%q", names)
}
