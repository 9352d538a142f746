package dashboard

import "strings"

// hints are the keys of k9s that do nothing here, with what does the same.
var hints = map[string]string{
	"0":           "esc shows all again; 1 to 6 open lists",
	"7":           "1 to 6 open lists",
	"8":           "1 to 6 open lists",
	"9":           "1 to 6 open lists",
	"a":           "containers are at the site: attach with a tool of its cluster",
	"b":           "there are no benchmarks here",
	"e":           "edit with the command: tko $KIND edit $ID",
	"f":           "ports are at the site: forward them with a tool of its cluster",
	"F":           "ports are at the site: forward them with a tool of its cluster",
	"h":           "tab and shift-tab change lists; l shows the runs of plugins, with their logs",
	"i":           "images change with packages: tko $KIND edit $ID, or a rollout",
	"n":           "/ filters, c copies the ID",
	"o":           "enter shows the site and the template, as links",
	"r":           "ctrl-r reads again; changes are shown without it",
	"u":           "enter shows links; t shows children",
	"z":           "t shows children",
	"I":           "s sorts by the next column",
	"J":           "enter shows the parent as a link; t shows ancestors",
	"M":           "s sorts by the next column",
	"N":           "s sorts by the next column",
	"O":           "s sorts by the next column",
	"P":           "s sorts by the next column",
	"S":           "s sorts by the next column",
	"T":           "colors are those of the terminal; --colorize=false has none",
	"ctrl+e":      "the header stays",
	"ctrl+g":      "the header stays",
	"ctrl+k":      "D deletes, and asks first",
	"ctrl+s":      "C copies the command that lists the same: with -o yaml it saves it",
	"ctrl+space":  "space marks a row, * selects all that match the filter",
	"ctrl+w":      ":columns KEY KEY shows metadata in columns",
	"shift+left":  "s sorts by the next column",
	"shift+right": "s sorts by the next column",
	"[":           "esc goes back; [ and ] move between revisions in the difference (d)",
	"]":           "esc goes back; [ and ] move between revisions in the difference (d)",
}

// hint returns what does here what a key of k9s does there; "" for other keys.
func hint(name, kind, id string) string {
	return strings.NewReplacer("$KIND", kind, "$ID", id).Replace(hints[name])
}

const halfPage = "ctrl-d moves by half a page; D deletes, and asks first"

// shortNames are the short and other names of commands.
var shortNames = map[string]string{
	"dp": "deployments", "ev": "events", "event": "events", "q!": "quit", "qa": "quit", "Q": "quit", "exit": "quit", "?": "help", "h": "help", "a": "help", "alias": "help", "aliases": "help",
}

const (
	atSites   = "objects of clusters are in the packages of deployments (y), and as they are at the site in: tko site diff ID"
	elsewhere = "a dashboard has the context that it was started with: tko context list, then tko dashboard --context NAME"
)

// commandHints are the commands of k9s that do nothing here, with what does the same.
var commandHints = map[string]string{
	"ctx": elsewhere, "context": elsewhere, "contexts": elsewhere,
	"ns": "a filter has the place of namespaces, such as :deployments site-id=north/**", "namespace": "a filter has the place of namespaces, such as :deployments site-id=north/**", "namespaces": "a filter has the place of namespaces, such as :deployments site-id=north/**",
	"po": atSites, "pod": atSites, "pods": atSites, "svc": atSites, "services": atSites, "cm": atSites, "sec": atSites, "secrets": atSites, "no": atSites, "nodes": atSites, "sts": atSites, "ds": atSites, "ing": atSites, "crd": atSites, "job": atSites, "rs": atSites, "helm": atSites,
	"x": "t shows the tree of a deployment", "xray": "t shows the tree of a deployment",
	"pu": "tko status has the fleet in numbers", "pulse": "tko status has the fleet in numbers", "pulses": "tko status has the fleet in numbers",
	"popeye": "p shows only what is failing", "dir": "tko apply -f DIRECTORY applies the files of a directory", "sd": "there are no screen dumps here", "screendump": "there are no screen dumps here",
	"be": "there are no benchmarks here", "pf": "ports are at the site: forward them with a tool of its cluster", "can": "tko access can-i VERB says what you may do", "sk": "colors are those of the terminal; --colorize=false has none", "skin": "colors are those of the terminal; --colorize=false has none",
}
