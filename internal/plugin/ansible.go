package plugin

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin/awx"
	"github.com/tko-orchestrator/tko/internal/plugin/isolate"
	"github.com/tko-orchestrator/tko/krm"
)

// job runs a plugin of the ansible executor as a job of AWX, and returns its output.
func (r *Runner) job(ctx context.Context, j job) (map[string]any, error) {
	state, err := encodeJSON(krm.Resource(j.input))
	if err != nil {
		return nil, failure(j.plugin, j.target, err, "it was not run: %s", err)
	}
	// A job may run longer than its work is claimed, elsewhere, and AWX shows its
	// variables: it gets no tokens.
	input := r.input(job{plugin: j.plugin, target: j.target, input: j.input}, "")
	input["logAddressPort"] = ""
	if g := r.options.GRPC; r.options.Host != "" && g.Address == localhost {
		input.Set(r.options.Host, "grpc", "address")
	}
	data, err := encodeJSON(input)
	if err != nil {
		return nil, failure(j.plugin, j.target, err, "it was not run: %s", err)
	}
	r.roster.add(j.plugin)
	result, err := r.awx.Run(ctx, awx.Call{
		Plugin: j.plugin, Entity: j.entity, Target: j.target.String(), Input: data, Digest: sha256.Sum256(state),
	})
	if err != nil {
		return nil, failure(j.plugin, j.target, err, "%s", bounded(err.Error(), maxMessage))
	}
	for _, note := range j.notes {
		note(result.Job)
	}
	return r.ansibleOutput(j, result.Output, result.Job)
}

// ansibleOutput reads the output of a playbook: null without one.
func (r *Runner) ansibleOutput(j job, data []byte, where string) (map[string]any, error) {
	output := map[string]any{}
	if len(data) > 0 && string(data) != "null" {
		var err error
		if output, err = decodeAnsible(data, r.options.Limits); err != nil {
			return nil, failure(j.plugin, j.target, err, "%s: its stat %s: %s", where, awx.OutputStat, err)
		}
	} else if j.plugin.Type == tko.PluginPrepare {
		return nil, failure(j.plugin, j.target, nil,
			"%s has no output: a playbook that prepares sets the stat %s (ansible.builtin.set_stats) to a map with prepared and package", where, awx.OutputStat)
	}
	return output, r.refusal(j, output)
}

// callback is the callback plugin of Ansible that writes the custom stats, and the
// failures, of a playbook to a file.
//
//go:embed callback.py
var callback []byte

const ansiblePlaybook = "ansible-playbook"

// ansibleProgram returns the path of ansible-playbook: of the Python environment, or
// else on the PATH.
func (r *Runner) ansibleProgram() (string, error) {
	for _, dir := range filepath.SplitList(r.path(true)) {
		path := filepath.Join(dir, ansiblePlaybook)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && filepath.IsAbs(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("its program %q does not exist on this server: install ansible-core into the environment of --python-env: %w", ansiblePlaybook, fs.ErrNotExist)
}

// playbook runs a playbook on this machine, with a private data directory: the variables,
// Ansible's own files and the output are in a folder that exists only for this run.
func (r *Runner) playbook(ctx context.Context, j job) (output []byte, stderr string, err error) {
	name, _ := tko.ParsePlaybook(j.plugin.Arguments[0])
	playbook, folder, err := r.programs().File(name)
	if err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp(r.options.Dir, "tko-plugin-")
	if err != nil {
		return nil, "", fmt.Errorf("it was not run: %w", err)
	}
	defer remove(dir)
	logs, err := openLogPipe(filepath.Join(dir, "log"), j.log.With("plugin", j.plugin.ID(), "resource", j.target.String()))
	if err != nil {
		return nil, "", fmt.Errorf("it was not run: %w", err)
	}
	defer logs.close()
	j.alone = !r.networked(j.plugin)
	variables := krm.Resource{tko.AnsibleInput: map[string]any(r.input(j, logs.path))}
	for key, value := range j.plugin.Properties {
		if !strings.HasPrefix(key, "_") {
			variables[key] = value
		}
	}
	work := filepath.Join(dir, "work")
	data, err := inert(variables)
	if err == nil {
		err = writeAll(work, map[string][]byte{"extravars.yaml": data, "callback/tko_output.py": callback, "tmp/.keep": nil})
	}
	if err != nil {
		return nil, "", fmt.Errorf("it was not run: %w", err)
	}
	arguments := []string{"", "--extra-vars", "@" + filepath.Join(work, "extravars.yaml")}
	readable := []string{folder}
	if inventory := j.plugin.Properties[tko.PropertyInventory]; inventory != "" {
		path, of, err := r.programs().File(filepath.Join(filepath.Dir(playbook), inventory))
		if err != nil {
			return nil, "", fmt.Errorf("its property %s: %w", tko.PropertyInventory, err)
		}
		arguments, readable = append(arguments, "--inventory", path), append(readable, of)
	}
	if arguments[0], err = r.ansibleProgram(); err != nil {
		return nil, "", err
	}
	own := r.programs()
	own.Folders = []string{filepath.Dir(arguments[0])}
	program, err := own.Open(arguments[0])
	if err != nil {
		return nil, "", err
	}
	defer program.Close()
	cmd := r.pluginCommand(append(arguments, playbook), program, work)
	cmd.Env = append(r.environment(r.path(true), work, true), ansibleEnvironment(work, filepath.Dir(playbook))...)
	start, err := r.confine(ctx, launch{cmd, program, dir, j.plugin, r.limits(j.plugin), readable})
	if err != nil {
		return nil, "", err
	}
	stdout, stderr, runErr := r.communicate(ctx, start, nil, j.timeout)
	written, err := r.written(work)
	switch {
	case runErr != nil && written.failure != "":
		return nil, "", fmt.Errorf("%w: %s", runErr, bounded(written.failure, maxMessage))
	case runErr != nil:
		return nil, orElse(stderr, lastOf(stdout)), runErr
	case err != nil:
		return nil, orElse(stderr, lastOf(stdout)), err
	}
	if written.output == nil {
		if j.plugin.Type == tko.PluginPrepare {
			return nil, "", fmt.Errorf("it has no output: a playbook that prepares sets the stat %s (ansible.builtin.set_stats) to a map with prepared and package", awx.OutputStat)
		}
		return []byte("{}"), "", nil
	}
	if data, err = encodeJSON(written.output); err == nil {
		data, err = jsonToYAML(data, false) // the caller reads YAML
	}
	return data, "", err
}

// ansibleEnvironment returns the variables of Ansible with a private data directory.
func ansibleEnvironment(work, project string) []string {
	return []string{
		"ANSIBLE_HOME=" + filepath.Join(work, "ansible"), "ANSIBLE_LOCAL_TEMP=" + filepath.Join(work, "tmp"), "ANSIBLE_REMOTE_TEMP=" + filepath.Join(work, "tmp"),
		"ANSIBLE_CALLBACK_PLUGINS=" + filepath.Join(work, "callback"), "ANSIBLE_CALLBACKS_ENABLED=tko_output", "TKO_ANSIBLE_OUTPUT=" + filepath.Join(work, outputFile),
		"ANSIBLE_COLLECTIONS_PATH=" + filepath.Join(project, "collections") + ":/usr/share/ansible/collections",
		"ANSIBLE_NOCOLOR=true", "ANSIBLE_RETRY_FILES_ENABLED=false", "ANSIBLE_LOCALHOST_WARNING=false", "ANSIBLE_INVENTORY_UNPARSED_WARNING=false",
	}
}

// inert encodes variables of Ansible as YAML, whose expressions Ansible does not evaluate:
// an author of a package must not run code, and expressions in a package are not Ansible's.
func inert(variables krm.Resource) ([]byte, error) {
	data, err := encodeJSON(variables)
	if err != nil {
		return nil, err
	}
	return jsonToYAML(data, true)
}

// decodeAnsible decodes JSON that Ansible wrote, like decodeOutput.
func decodeAnsible(data []byte, limits krm.Limits) (map[string]any, error) {
	data, err := jsonToYAML(data, false)
	if err != nil {
		return nil, fmt.Errorf("its output is malformed: %w", err)
	}
	return decodeOutput(data, limits)
}

// jsonToYAML returns JSON as YAML, which lacks some of JSON's escapes. If inert, Ansible
// evaluates none of its texts.
func jsonToYAML(data []byte, inert bool) ([]byte, error) {
	var value any // only types of JSON
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	writeYAML(&b, value, inert)
	b.WriteByte('\n')
	return b.Bytes(), nil
}

func writeYAML(b *bytes.Buffer, value any, inert bool) {
	switch v := value.(type) {
	case map[string]any:
		b.WriteByte('{')
		for i, key := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString("? ") // keys may be longer than YAML's implicit ones
			writeQuoted(b, key)
			b.WriteString(" : ")
			writeYAML(b, v[key], inert)
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, entry := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			writeYAML(b, entry, inert)
		}
		b.WriteByte(']')
	case string:
		if inert && strings.ContainsAny(v, "{}#") { // Ansible's tags, and its line comments
			b.WriteString("!unsafe ")
		}
		writeQuoted(b, v)
	case nil:
		b.WriteString("null")
	default: // numbers and booleans
		text := fmt.Sprint(v)
		if _, ok := v.(json.Number); ok && inert && strings.ContainsAny(text, "eE") { // YAML 1.1 would read a text
			text = "!!float " + text
		}
		b.WriteString(text)
	}
}

// writeQuoted writes a text in double quotes, in ASCII: YAML allows few other characters.
func writeQuoted(b *bytes.Buffer, text string) {
	b.WriteByte('"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c >= ' ' && c < 0x7f:
			b.WriteRune(c)
		case c <= 0xffff:
			_, _ = fmt.Fprintf(b, "\\u%04x", c)
		default:
			_, _ = fmt.Fprintf(b, "\\U%08x", c)
		}
	}
	b.WriteByte('"')
}

func writeAll(dir string, files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o600); err != nil {
			return err
		}
	}
	return nil
}

const outputFile = "output.json"

// A playbookResult is the file that the callback plugin writes.
type playbookResult struct {
	failure string       // the first failed task
	output  krm.Resource // the stat plugin_output; nil if there is none
}

// written reads the file that the callback plugin wrote. The playbook may write the file
// too, so it is not trusted.
func (r *Runner) written(work string) (result playbookResult, err error) {
	root, err := os.OpenRoot(work)
	if err != nil {
		return result, err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Lstat(outputFile)
	if errors.Is(err, fs.ErrNotExist) {
		return result, errors.New("its playbook has not run to its end")
	}
	if err != nil || !info.Mode().IsRegular() {
		return result, errors.New("its output is malformed: it is not a file")
	}
	file, err := root.Open(outputFile)
	if err != nil {
		return result, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, int64(r.options.MaxOutput)+1))
	if err != nil {
		return result, err
	}
	if len(data) > r.options.MaxOutput {
		return result, fmt.Errorf("its output is longer than %d bytes", r.options.MaxOutput)
	}
	document, err := decodeAnsible(data, r.options.Limits)
	if err != nil {
		return result, err
	}
	if result.failure, err = text(document, "failure"); err != nil {
		return result, fmt.Errorf("its output is malformed: %w", err)
	}
	switch output := document["output"].(type) {
	case nil:
	case map[string]any:
		result.output = output
	default:
		return result, fmt.Errorf("its stat %s is malformed: it is not a map", awx.OutputStat)
	}
	return result, nil
}

// lastOf returns the end of a text, for an error message.
func lastOf(stdout []byte) string {
	var t tail
	_, _ = t.Write(stdout)
	return t.String()
}

// checkAnsible is Check for a plugin of the ansible executor.
func (r *Runner) checkAnsible(p tko.Plugin) error {
	name, local := tko.ParsePlaybook(p.Arguments[0])
	if !local {
		return nil
	}
	if _, _, err := r.programs().File(name); errors.Is(err, isolate.ErrOutside) {
		return err
	} else if err != nil {
		return fmt.Errorf("playbook %q: not found", name)
	}
	_, err := r.ansibleProgram()
	if err != nil {
		return fmt.Errorf("program %q: not found", ansiblePlaybook)
	}
	return nil
}
