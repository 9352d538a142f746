package manual

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Command returns a hidden command that writes the program's man pages, in a
// section, and its completions of bash, zsh and fish, below a folder: man/manN,
// bash-completion/completions, zsh/site-functions and fish/vendor_completions.d,
// as below /usr/share. The pages have the date of SOURCE_DATE_EPOCH.
func Command(section string) *cobra.Command {
	return &cobra.Command{
		Use: "documentation FOLDER", Short: "Write man pages and completions below a folder", Hidden: true, Args: cobra.ExactArgs(1), Example: "  tko documentation share",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return write(c.Root(), section, args[0]) },
	}
}

func write(root *cobra.Command, section, folder string) error {
	man := filepath.Join(folder, "man", "man"+section)
	if err := os.MkdirAll(man, 0o755); err != nil { //nolint:gosec // documentation is for all users
		return err
	}
	root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: section, Source: root.Name(), Manual: "TKO"}
	if err := doc.GenManTree(root, header, man); err != nil {
		return err
	}
	for path, generate := range map[string]func(*bytes.Buffer) error{
		"bash-completion/completions/" + root.Name():         func(b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) },
		"zsh/site-functions/_" + root.Name():                 func(b *bytes.Buffer) error { return root.GenZshCompletion(b) },
		"fish/vendor_completions.d/" + root.Name() + ".fish": func(b *bytes.Buffer) error { return root.GenFishCompletion(b, true) },
	} {
		var text bytes.Buffer
		if err := generate(&text); err != nil {
			return err
		}
		path = filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // documentation is for all users
			return err
		}
		if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil { //nolint:gosec // documentation is for all users
			return err
		}
	}
	return nil
}
