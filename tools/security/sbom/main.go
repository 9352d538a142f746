// Command sbom writes the bills of materials of programs, from the build
// information in them, and checks the licences of their dependencies.
//
//	sbom PROGRAM...            # writes PROGRAM.cdx.json for each
//	sbom -licences PACKAGE...  # lists licences, and fails if one isn't allowed
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"unicode"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	licences := flag.Bool("licences", false, "check the licences of the modules that packages need")
	flag.Parse()
	run := boms
	if *licences {
		run = checkLicences
	}
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func boms(programs []string) error {
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return err
		}
		b := bom(filepath.Base(program), info, strings.TrimSpace(string(cache)))
		if without := withoutLicence(b); len(without) > 0 {
			return fmt.Errorf("%s: no licence is known of %s: download the modules, or add what is missing to the exceptions of this program", program, strings.Join(without, ", "))
		}
		if err := write(program+".cdx.json", b); err != nil {
			return err
		}
	}
	return nil
}

// bom returns the bill of materials of a program. It holds neither a time nor a
// random number, so that it is the same for the same program.
//
// The licences are those of the modules in the cache of modules, from which the program
// was built.
func bom(name string, info *debug.BuildInfo, cache string) *cdx.BOM {
	b := cdx.NewBOM()
	b.SerialNumber = ""
	version := info.Main.Version
	properties := []cdx.Property{{Name: "go:version", Value: info.GoVersion}}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "CGO_ENABLED" || s.Key == "-trimpath" {
			properties = append(properties, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
		}
	}
	b.Metadata = &cdx.Metadata{Component: &cdx.Component{BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name, Version: version, Licenses: licences("Apache-2.0"), Properties: &properties}}
	components := []cdx.Component{{BOMRef: "std", Type: cdx.ComponentTypeLibrary, Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"), PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"), Licenses: licences("BSD-3-Clause")}}
	var refs []string
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		purl := "pkg:golang/" + m.Path + "@" + m.Version
		c := cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl}
		if m.Sum != "" {
			c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
		}
		c.Licenses = licences(licenceOf(m.Path, filepath.Join(cache, escaped(m.Path)+"@"+escaped(m.Version))))
		components = append(components, c)
		refs = append(refs, purl)
	}
	b.Components = &components
	b.Dependencies = &[]cdx.Dependency{{Ref: name, Dependencies: &refs}}
	return b
}

func write(path string, b *cdx.BOM) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(cdx.NewBOMEncoder(file, cdx.BOMFileFormatJSON).SetPretty(true).Encode(b), file.Close())
}

// A licence is recognized by a text, in lower case, that is in it and in none that
// comes later here.
var known = []struct{ name, text string }{
	{"Apache-2.0", "apache license"},
	{"MPL-2.0", "mozilla public license"},
	{"AGPL", "gnu affero general public license"},
	{"LGPL", "gnu lesser general public license"},
	{"GPL", "gnu general public license"},
	{"BSD-3-Clause", "neither the name of"},
	{"BSD-2-Clause", "redistribution and use in source and binary forms"},
	{"MIT", "permission is hereby granted, free of charge"},
	{"ISC", "permission to use, copy, modify, and/or distribute this software"},
	{"ISC", "permission to use, copy, modify, and distribute this software"},
	{"Unlicense", "this is free and unencumbered software"},
	{"CC0-1.0", "cc0 1.0 universal"},
}

// allowed are the licences that this project's licence permits to be linked.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT", "ISC", "Unlicense", "CC0-1.0", "MPL-2.0"}

// exceptions are modules whose licence file offers a choice, or is not
// recognized, with the licence that applies.
var exceptions = map[string]string{
	"kernel.org/pub/linux/libs/security/libcap/psx": "BSD-3-Clause", // or GPL-2.0
}

func checkLicences(packages []string) error {
	modules, err := modulesOf(packages)
	if err != nil {
		return err
	}
	var wrong []string
	for _, m := range modules {
		name := licenceOf(m.Path, m.Dir)
		fmt.Printf("%-12s %s %s\n", name, m.Path, m.Version)
		if !slices.Contains(allowed, name) {
			wrong = append(wrong, m.Path+": "+name)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("licences that are not allowed:\n%s", strings.Join(wrong, "\n"))
	}
	return nil
}

type module struct{ Path, Version, Dir string }

// modulesOf returns the modules of the packages that some packages import.
func modulesOf(packages []string) ([]module, error) {
	out, err := exec.Command("go", append([]string{"list", "-deps", "-json=Module"}, packages...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	seen := map[string]module{}
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for decoder.More() {
		var p struct {
			Module *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := decoder.Decode(&p); err != nil {
			return nil, err
		}
		if m := p.Module; m != nil && !m.Main {
			seen[m.Path] = module{m.Path, m.Version, m.Dir}
		}
	}
	var all []module
	for _, m := range seen {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	if len(all) == 0 {
		return nil, errors.New("the packages import no modules")
	}
	return all, nil
}

// licenceOf returns the licence of a module by its name in SPDX, or "unknown".
func licenceOf(path, dir string) string {
	if name, ok := exceptions[path]; ok {
		return name
	}
	return licenceIn(dir)
}

// licences returns a licence for a bill of materials; nil if it is unknown.
func licences(id string) *cdx.Licenses {
	if id == "unknown" {
		return nil
	}
	return &cdx.Licenses{{License: &cdx.License{ID: id}}}
}

// withoutLicence returns the names of the components of which no licence is known.
func withoutLicence(b *cdx.BOM) (names []string) {
	for _, c := range *b.Components {
		if c.Licenses == nil {
			names = append(names, c.Name)
		}
	}
	return names
}

// escaped returns a module's path or version as the cache writes it: capital letters are
// those after an exclamation mark.
func escaped(name string) string {
	var b strings.Builder
	for _, c := range name {
		if unicode.IsUpper(c) {
			b.WriteByte('!')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// licenceIn returns the licence in a module's folder, or "unknown".
func licenceIn(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "unknown"
	}
	for _, e := range entries {
		upper := strings.ToUpper(e.Name())
		if e.IsDir() || !strings.HasPrefix(upper, "LICEN") && !strings.HasPrefix(upper, "COPYING") && !strings.HasPrefix(upper, "UNLICENSE") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		text := strings.ToLower(strings.Join(strings.Fields(string(data)), " "))
		for _, k := range known {
			if strings.Contains(text, k.text) {
				return k.name
			}
		}
	}
	return "unknown"
}
