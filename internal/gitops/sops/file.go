package sops

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tko-orchestrator/tko"
)

// metadata is the field sops.
type metadata struct {
	Age []struct {
		Recipient string `yaml:"recipient"`
		Encrypted string `yaml:"enc"`
	} `yaml:"age"`
	PGP []struct {
		Encrypted string `yaml:"enc"`
	} `yaml:"pgp"`
	KeyGroups    []any  `yaml:"key_groups"`
	LastModified string `yaml:"lastmodified"`
	MAC          string `yaml:"mac"`

	UnencryptedSuffix       *string `yaml:"unencrypted_suffix"`
	EncryptedSuffix         string  `yaml:"encrypted_suffix"`
	UnencryptedRegex        string  `yaml:"unencrypted_regex"`
	EncryptedRegex          string  `yaml:"encrypted_regex"`
	UnencryptedCommentRegex string  `yaml:"unencrypted_comment_regex"`
	EncryptedCommentRegex   string  `yaml:"encrypted_comment_regex"`
	MACOnlyEncrypted        bool    `yaml:"mac_only_encrypted"`
}

const (
	field   = "sops"
	maxFile = 32 << 20
)

// ErrNoKey is the error if a file is encrypted and there are no keys. It is an
// ErrDenied.
var ErrNoKey = tko.Errorf(tko.ErrDenied, "encrypted with SOPS, and no key is given: give the age or PGP keys for it")

// Encrypted reports whether a YAML or JSON file was encrypted by SOPS; false if it
// can't be parsed.
func Encrypted(data []byte) bool {
	if !bytes.Contains(data, []byte(field)) || !bytes.Contains(data, []byte("ENC[AES256_GCM,")) {
		return false
	}
	documents, err := parse("", data)
	if err != nil {
		return false
	}
	_, ok, err := metadataOf(documents)
	return ok || err != nil
}

// Decrypt returns the content without SOPS's metadata, as YAML, or as JSON if name
// ends with .json. It returns a file that isn't encrypted by SOPS unchanged. The
// error is an ErrDenied if there is no key for the file or it was modified, and an
// ErrInvalid if it can't be parsed. Errors name neither the
// file nor any of the content.
func Decrypt(name string, data []byte, keys *Keys) ([]byte, error) {
	if !Encrypted(data) {
		return data, nil
	}
	if keys == nil {
		return nil, fmt.Errorf("it is %w", ErrNoKey)
	}
	documents, err := parse(name, data)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	m, _, err := metadataOf(documents)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	w, err := newWalk(m)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	if w.key, err = keys.dataKey(m); err != nil {
		return nil, tko.Errorf(tko.ErrDenied, "%w", err)
	}
	for _, d := range documents {
		if err := w.document(d); err != nil {
			return nil, tko.Errorf(tko.ErrDenied, "%w", err)
		}
	}
	if err := w.check(); err != nil {
		return nil, tko.Errorf(tko.ErrDenied, "%w", err)
	}
	return write(name, documents)
}

func isJSON(name string) bool { return strings.EqualFold(path.Ext(name), ".json") }

// parse returns the documents of a file that are maps.
func parse(name string, data []byte) ([]*yaml.Node, error) {
	if isJSON(name) {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		root, err := jsonNode(d, 0)
		if err != nil {
			return nil, errors.New("it is not JSON")
		}
		return []*yaml.Node{root}, nil
	}
	var documents []*yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		err := d.Decode(&document)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, errors.New("it is not YAML")
		}
		if len(document.Content) == 1 && document.Content[0].Kind == yaml.MappingNode {
			documents = append(documents, document.Content[0])
		}
	}
}

const maxDepth = 1000

// jsonNode parses JSON into a node. A YAML parser would interpret some strings
// differently, and a map would lose the order, on which the MAC depends.
func jsonNode(d *json.Decoder, depth int) (*yaml.Node, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if t == '[' {
			n = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		}
		if depth > maxDepth {
			return nil, errors.New("too deep")
		}
		for d.More() {
			child, err := jsonNode(d, depth+1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		_, err := d.Token()
		return n, err
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: t}, nil
	case json.Number:
		if _, err := t.Int64(); err == nil {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: t.String()}, nil
		}
		f, err := t.Float64()
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: strconv.FormatFloat(f, 'f', -1, 64)}, err
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(t)}, nil
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	}
}

// metadataOf returns SOPS's metadata, which is the same in each document.
func metadataOf(documents []*yaml.Node) (m metadata, found bool, err error) {
	for _, d := range documents {
		for i := 0; i+1 < len(d.Content); i += 2 {
			value := d.Content[i+1]
			if d.Content[i].Value != field || value.Kind != yaml.MappingNode || !has(value, "mac") || !has(value, "lastmodified") {
				continue
			}
			if err := value.Decode(&m); err != nil {
				return m, true, errors.New("its field sops can't be decoded")
			}
			return m, true, nil
		}
	}
	return m, false, nil
}

func has(mapping *yaml.Node, key string) bool {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return true
		}
	}
	return false
}

// A walk decrypts the values of a file in their order.
type walk struct {
	metadata  metadata
	key       []byte
	encrypted func(path []string) bool
	hash      hash.Hash
}

// onlyEncrypted begins the hash of files whose MAC covers only encrypted values:
// the SHA-256 of "sops".
const onlyEncrypted = "\x8a\x3f\xd2\xad\x54\xce\x66\x52\x7b\x10\x34\xf3\xd1\x47\xbe\x0b\x0b\x97\x5b\x3b\xf4\x4f\x72\xc6\xfd\xad\xec\x81\x76\xf2\x7d\x69"

func newWalk(m metadata) (*walk, error) {
	switch {
	case m.UnencryptedCommentRegex != "" || m.EncryptedCommentRegex != "":
		return nil, errors.New("comments select its encrypted values, which isn't supported: use a rule for keys")
	case len(m.KeyGroups) > 0:
		return nil, errors.New("it needs several keys at once (key_groups), which isn't supported")
	case len(m.Age)+len(m.PGP) == 0:
		return nil, errors.New("it is encrypted for no age or PGP key, and only those are supported")
	}
	w := &walk{metadata: m, hash: sha512.New()}
	if m.MACOnlyEncrypted {
		_, _ = w.hash.Write([]byte(onlyEncrypted))
	}
	var err error
	w.encrypted, err = rule(m)
	return w, err
}

// rule returns a function that reports whether the value at a path is encrypted.
func rule(m metadata) (func([]string) bool, error) {
	var (
		rules int
		match func(key string) bool
		when  bool // encrypted if a key matches
	)
	suffix := func(s string) { match, rules = func(key string) bool { return strings.HasSuffix(key, s) }, rules+1 }
	if m.UnencryptedSuffix != nil && *m.UnencryptedSuffix != "" {
		suffix(*m.UnencryptedSuffix)
	}
	if m.EncryptedSuffix != "" {
		suffix(m.EncryptedSuffix)
		when = true
	}
	for i, text := range []string{m.UnencryptedRegex, m.EncryptedRegex} {
		if text == "" {
			continue
		}
		re, err := regexp.Compile(text)
		if err != nil {
			return nil, errors.New("its rule for keys is not a regular expression")
		}
		match, when, rules = re.MatchString, i == 1, rules+1
	}
	if rules > 1 {
		return nil, errors.New("it has more than one rule for encrypted values")
	}
	if rules == 0 {
		suffix("_unencrypted")
	}
	return func(keys []string) bool { return slices.ContainsFunc(keys, match) == when }, nil
}

// document decrypts a document and removes SOPS's metadata.
func (w *walk) document(root *yaml.Node) error {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == field {
			root.Content = append(root.Content[:i], root.Content[i+2:]...)
			break
		}
	}
	return w.value(root, nil)
}

func (w *walk) value(n *yaml.Node, keys []string) error {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if err := w.value(n.Content[i+1], append(slices.Clip(keys), n.Content[i].Value)); err != nil {
				return err
			}
		}
		return nil
	case yaml.SequenceNode:
		remaining := n.Content[:0]
		for _, child := range n.Content {
			if err := w.value(child, keys); err != nil {
				return err
			}
			if child.Kind != 0 { // else it was a comment
				remaining = append(remaining, child)
			}
		}
		n.Content = remaining
		return nil
	case yaml.ScalarNode:
		return w.scalar(n, keys)
	default:
		return errors.New("it has an alias, which SOPS doesn't write")
	}
}

func (w *walk) scalar(n *yaml.Node, keys []string) error {
	if n.ShortTag() == "!!null" {
		return nil
	}
	at := strings.Join(keys, ":") + ":"
	encrypted := w.encrypted(keys)
	var text []byte
	var err error
	switch {
	case !encrypted:
		if text, err = plainBytes(n); err != nil {
			return fmt.Errorf("%s %w", at, err)
		}
	case n.ShortTag() != "!!str":
		return fmt.Errorf("%s is not encrypted, and should be", at)
	case n.Value != "":
		var kind string
		if text, kind, err = w.open(n.Value, at); err != nil {
			return fmt.Errorf("%s %w", at, err)
		}
		if kind == "comment" {
			*n = yaml.Node{}
			return nil
		}
		if err := set(n, text, kind); err != nil {
			return fmt.Errorf("%s %w", at, err)
		}
		if text, err = plainBytes(n); err != nil {
			return fmt.Errorf("%s %w", at, err)
		}
	}
	if encrypted || !w.metadata.MACOnlyEncrypted {
		_, _ = w.hash.Write(text)
	}
	return nil
}

var errOther = errors.New("can't be decrypted: it was modified")

var form = regexp.MustCompile(`^ENC\[AES256_GCM,data:([^,]*),iv:([^,]+),tag:([^,]+),type:([a-z]+)\]$`)

// open decrypts a value.
func (w *walk) open(value, additional string) (plain []byte, kind string, err error) {
	parts := form.FindStringSubmatch(value)
	if parts == nil {
		return nil, "", errors.New("is not encrypted, and should be")
	}
	var raw [3][]byte
	for i, text := range parts[1:4] {
		if raw[i], err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, "", errOther
		}
	}
	block, err := aes.NewCipher(w.key)
	if err != nil || len(raw[1]) == 0 {
		return nil, "", errOther
	}
	gcm, err := cipher.NewGCMWithNonceSize(block, len(raw[1]))
	if err != nil {
		return nil, "", errOther
	}
	if plain, err = gcm.Open(nil, raw[1], append(raw[0], raw[2]...), []byte(additional)); err != nil {
		return nil, "", errOther
	}
	return plain, parts[4], nil
}

// set replaces an encrypted value by the plain one.
func set(n *yaml.Node, text []byte, kind string) error {
	tags := map[string]string{"str": "!!str", "int": "!!int", "float": "!!float", "bool": "!!bool", "bytes": "!!str", "time": "!!timestamp"}
	tag, ok := tags[kind]
	if !ok {
		return errors.New("has an unknown type")
	}
	value := string(text)
	if kind == "bool" {
		value = strings.ToLower(value)
	}
	n.Tag, n.Value, n.Style = tag, value, 0
	if tag == "!!str" {
		n.SetString(value)
	}
	return nil
}

// plainBytes returns the bytes of a value that the MAC covers.
func plainBytes(n *yaml.Node) ([]byte, error) {
	if n.ShortTag() == "!!str" {
		return []byte(n.Value), nil
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return nil, errors.New("can't be decoded")
	}
	switch value := value.(type) {
	case string:
		return []byte(value), nil
	case int:
		return []byte(strconv.Itoa(value)), nil
	case float64:
		return []byte(strconv.FormatFloat(value, 'f', -1, 64)), nil
	case bool:
		if value {
			return []byte("True"), nil
		}
		return []byte("False"), nil
	case time.Time:
		return value.MarshalText()
	case nil:
		return nil, nil
	default:
		return nil, errors.New("has a type that SOPS doesn't know")
	}
}

// check compares the MAC.
func (w *walk) check() error {
	stored, _, err := w.open(w.metadata.MAC, w.metadata.LastModified)
	if err != nil {
		return errors.New("its MAC " + err.Error())
	}
	if subtle.ConstantTimeCompare(stored, fmt.Appendf(nil, "%X", w.hash.Sum(nil))) != 1 {
		return errors.New("it was modified: its values don't match its MAC")
	}
	return nil
}

// write returns the plain file.
func write(name string, documents []*yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	if isJSON(name) {
		var value any
		if err := documents[0].Decode(&value); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "it can't be written as JSON")
		}
		err := json.NewEncoder(&b).Encode(value)
		return b.Bytes(), err
	}
	e := yaml.NewEncoder(&b)
	for _, d := range documents {
		if err := e.Encode(d); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "it can't be written as YAML")
		}
	}
	return b.Bytes(), e.Close()
}
