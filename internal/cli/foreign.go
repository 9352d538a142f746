package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// foreignFlags says what flags of kubectl and other tools are here.
var foreignFlags = map[string]string{
	"limit": "lists have no limit: narrow them with filters, or use | head", "follow": "use --watch", "f": "use --watch",
	"output": "use --format, or -o", "selector": "use --metadata NAME=PATTERN", "l": "use --metadata NAME=PATTERN",
	"namespace": "IDs are paths: use --id 'PATH/*'", "n": "IDs are paths: use --id 'PATH/*'", "all-namespaces": "lists show all that you may see", "A": "lists show all that you may see",
}

// foreignFlag adds what a flag of another tool is here to the error of an unknown flag. It
// returns other errors as they are.
func foreignFlag(cmd *cobra.Command, err error) error {
	e, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	hint := foreignFlags[e.GetSpecifiedName()]
	if name, ok := strings.CutPrefix(hint, "use --"); ok {
		name, _, _ = strings.Cut(name, " ")
		name = strings.TrimSuffix(name, ",")
		if cmd.Flags().Lookup(name) == nil { // the command can't do it
			return err
		}
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, hint)
}

// foreignVerbs are verbs that other tools write before the kind, with the command that
// people mean, without and with a name.
var foreignVerbs = map[string][2]string{
	"get": {"list", "get"}, "describe": {"list -o wide", "explain"}, "list": {"list", "get"}, "show": {"list", "get"}, "delete": {"delete", "delete"}, "edit": {"edit", "edit"}, "create": {"register", "register"},
}

// foreignCommand returns the command for a line that has the verb before the kind,
// such as tko deployment list for tko get deployments; "" if there is none.
func foreignCommand(root *cobra.Command, args []string) string {
	verbs, ok := foreignVerbs[args[0]]
	if !ok || len(args) < 2 {
		return ""
	}
	kind, name, named := strings.Cut(args[1], "/")
	kind = strings.TrimSuffix(strings.ToLower(kind), "s")
	verb := verbs[0]
	if named || len(args) > 2 {
		verb = verbs[1]
	}
	if !named && len(args) > 2 {
		name = args[2]
	}
	verb, flags, _ := strings.Cut(verb, " ")
	group, _, err := root.Find([]string{kind})
	if err != nil || group == root {
		return ""
	}
	for _, try := range []string{verb, "create"} {
		if cmd, rest, err := root.Find([]string{kind, try}); err == nil && len(rest) == 0 && cmd != group {
			return strings.Join(strings.Fields(cmd.CommandPath()+" "+flags+" "+name), " ")
		}
	}
	return ""
}
