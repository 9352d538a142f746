package osm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko/internal/osm/nbi"
)

// The parameters of an upgrade that aren't values of the chart.
const (
	keyModel          = "kdu_model"
	keyReset          = "kdu_reset_values"
	keyReuse          = "kdu_reuse_values"
	keyResetThenReuse = "kdu_reset_then_reuse_values"
	keyAtomic         = "kdu_atomic_upgrade"
)

// wanted is a desired instance, prepared for comparison.
type wanted struct {
	instance Instance
	kdus     map[string]wantedKDU // by "member/KDU"
	digest   string
}

type wantedKDU struct {
	member, name string
	params       map[string]any // values of the chart
	atomic       any            // the parameter kdu_atomic_upgrade, or nil
	state        KDUState       // after it is applied
}

// want prepares a desired instance for comparison.
func want(i Instance, l local) wanted {
	w := wanted{instance: i, kdus: map[string]wantedKDU{}}
	for _, v := range i.VNFs {
		for _, k := range v.KDUs {
			one := wantedKDU{member: v.Member, name: k.Name, params: maps.Clone(k.Params), state: KDUState{Model: k.Model}}
			if model, ok := one.params[keyModel].(string); ok && one.state.Model == "" {
				one.state.Model = model
			}
			if one.state.Model == "" {
				one.state.Model = l.chart(i.NSD, v.Member, k.Name)
			}
			one.atomic = one.params[keyAtomic]
			for _, name := range []string{keyModel, keyReset, keyReuse, keyResetThenReuse, keyAtomic} {
				delete(one.params, name)
			}
			one.state.Values = digests(one.params)
			w.kdus[v.Member+"/"+k.Name] = one
		}
	}
	w.digest = w.sum()
	return w
}

func (w wanted) sum() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", w.instance.NSD, w.instance.VIM)
	for _, name := range slices.Sorted(maps.Keys(w.kdus)) {
		k := w.kdus[name].state
		fmt.Fprintf(h, "%q %q\n", name, k.Model)
		for _, path := range slices.Sorted(maps.Keys(k.Values)) {
			fmt.Fprintf(h, "%q %s\n", path, k.Values[path])
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// instantiated returns the states of all KDUs after an instantiation.
func (w wanted) instantiated() map[string]KDUState {
	all := map[string]KDUState{}
	for name, k := range w.kdus {
		s := k.state
		s.Initial = slices.Sorted(maps.Keys(s.Values))
		all[name] = s
	}
	return all
}

// digests returns short digests of values, by path. Maps that aren't empty have a path
// for each value inside.
func digests(params map[string]any) map[string]string {
	all := map[string]string{}
	collect(all, "", params)
	if len(all) == 0 {
		return nil
	}
	return all
}

func collect(all map[string]string, at string, m map[string]any) {
	for name, v := range m {
		path := at + strings.ReplaceAll(strings.ReplaceAll(name, `\`, `\\`), ".", `\.`)
		if inner, ok := v.(map[string]any); ok && len(inner) > 0 {
			collect(all, path+".", inner)
			continue
		}
		data, err := json.Marshal(v)
		if err != nil {
			data = fmt.Appendf(nil, "%v", v)
		}
		sum := sha256.Sum256(append([]byte(path+"\x00"), data...))
		all[path] = hex.EncodeToString(sum[:8])
	}
}

// shownBy reports whether OSM shows exactly these values of a KDU.
func (k KDUState) shownBy(rec nbi.InstanceRecord, kdu string) bool {
	values, shown := rec.Values(kdu)
	return shown && maps.Equal(digests(values), k.Values)
}

// same reports whether a KDU has the desired values, and the desired model if want has
// one.
func (k KDUState) same(want KDUState) bool {
	return (want.Model == "" || k.Model == want.Model) && maps.Equal(k.Values, want.Values)
}

// removed returns the paths of a KDU that are no longer desired, also those of its
// instantiation, which OSM adds to each upgrade.
func (k KDUState) removed(want KDUState) []string {
	var paths []string
	for _, path := range slices.Concat(slices.Collect(maps.Keys(k.Values)), k.Initial) {
		if _, ok := want.Values[path]; !ok {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// changes returns the paths that differ, as texts for users.
func (k KDUState) changes(name string, want KDUState) []string {
	var all []string
	if want.Model != "" && k.Model != want.Model {
		all = append(all, fmt.Sprintf("%s: chart %s", name, want.Model))
	}
	for path, sum := range want.Values {
		switch was, ok := k.Values[path]; {
		case !ok:
			all = append(all, fmt.Sprintf("%s: +%s", name, path))
		case was != sum:
			all = append(all, fmt.Sprintf("%s: %s", name, path))
		}
	}
	for path := range k.Values {
		if _, ok := want.Values[path]; !ok {
			all = append(all, fmt.Sprintf("%s: -%s", name, path))
		}
	}
	slices.Sort(all)
	return all
}

// sameValues reports whether values are equal as JSON.
func sameValues(a, b map[string]any) bool {
	if len(a) == 0 && len(b) == 0 {
		return true
	}
	left, err := json.Marshal(a)
	if err != nil {
		return false
	}
	right, err := json.Marshal(b)
	return err == nil && bytes.Equal(left, right)
}
