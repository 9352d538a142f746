package git_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/git"
)

// newKey makes a key and writes its private part to a file.
func newKey(t *testing.T, path string) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// serveSSH serves the repositories of this machine to the owner of a key.
func serveSSH(t *testing.T, host ssh.Signer, user ssh.PublicKey) string {
	t.Helper()
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if string(key.Marshal()) != string(user.Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	config.AddHostKey(host)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveConn(conn, config)
		}
	}()
	return listener.Addr().String()
}

var gitCommand = regexp.MustCompile(`^(git-(?:receive|upload)-pack) '([^']*)'$`)

func serveConn(conn net.Conn, config *ssh.ServerConfig) {
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		conn.Close()
		return
	}
	go ssh.DiscardRequests(requests)
	for c := range channels {
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		go func() {
			defer channel.Close()
			for r := range requests {
				var payload struct{ Command string }
				if r.Type != "exec" || ssh.Unmarshal(r.Payload, &payload) != nil {
					r.Reply(false, nil)
					continue
				}
				r.Reply(true, nil)
				m := gitCommand.FindStringSubmatch(payload.Command)
				if m == nil {
					return
				}
				cmd := exec.Command("git", strings.TrimPrefix(m[1], "git-"), m[2])
				cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
				stdin, err := cmd.StdinPipe()
				if err != nil || cmd.Start() != nil {
					return
				}
				go func() {
					buffer := make([]byte, 32<<10)
					for {
						n, err := channel.Read(buffer)
						if _, werr := stdin.Write(buffer[:n]); err != nil || werr != nil {
							stdin.Close()
							return
						}
					}
				}()
				status := struct{ Code uint32 }{}
				if cmd.Wait() != nil {
					status.Code = 1
				}
				channel.SendRequest("exit-status", false, ssh.Marshal(status))
				return
			}
		}()
	}
}

func TestRepositoriesAreReachedOverSSH(t *testing.T) {
	t.Parallel()
	secrets := t.TempDir()
	host := newKey(t, filepath.Join(t.TempDir(), "host"))
	user := newKey(t, filepath.Join(secrets, "id"))
	newKey(t, filepath.Join(secrets, "other"))
	address := serveSSH(t, host, user.PublicKey())
	known := func(name string, key ssh.PublicKey) {
		line := knownhosts.Line([]string{address}, key)
		if err := os.WriteFile(filepath.Join(secrets, name), []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	known("known_hosts", host.PublicKey())
	known("impostor", user.PublicKey())
	if err := os.WriteFile(filepath.Join(secrets, "nohosts"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := bare(t)
	push(t, dir, map[string]string{"README": "ours"})

	tests := map[string]struct{ key, hosts, wantErr string }{
		"the key and the host":   {"id", "known_hosts", ""},
		"another key":            {"other", "known_hosts", "unable to authenticate"},
		"an unknown host":        {"id", "nohosts", "key is unknown"},
		"a host that pretends":   {"id", "impostor", "key mismatch"},
		"a key that is not one":  {"known_hosts", "known_hosts", "no private key"},
		"known hosts are absent": {"id", "absent", "can't be read"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := git.New(git.Options{Cache: t.TempDir(), Secrets: secrets, Timeout: 30 * time.Second})
			r := repository(map[string]any{
				"url":         fmt.Sprintf("ssh://git@%s%s", address, dir),
				"credentials": map[string]any{"sshKeyFile": test.key, "knownHostsFile": test.hosts},
			})
			for i := range 2 {
				_, err := g.Schedule(t.Context(), r, tko.Site{ID: "lagos"}, []tko.Deployment{deployment(t, "a", 1, configMap("x"))})
				if test.wantErr == "" && err != nil || test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
					t.Errorf("time %d: got %v, want %q", i+1, err, test.wantErr)
				}
			}
		})
	}
	t.Cleanup(func() {
		if got := commits(t, dir); got != "2" {
			t.Errorf("%s commits, want 2", got)
		}
	})
}

// The server accepts the connection and sends nothing.
func TestServerThatDoesNotRespondTimesOut(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	secrets := t.TempDir()
	key := newKey(t, filepath.Join(secrets, "id"))
	line := knownhosts.Line([]string{listener.Addr().String()}, key.PublicKey())
	if err := os.WriteFile(filepath.Join(secrets, "known_hosts"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"http://", "ssh://git@"} {
		g := git.New(git.Options{Cache: t.TempDir(), Secrets: secrets, Timeout: 300 * time.Millisecond})
		r := repository(map[string]any{"url": url + listener.Addr().String() + "/x.git"})
		if strings.HasPrefix(url, "ssh") {
			r.Set(map[string]any{"sshKeyFile": "id", "knownHostsFile": "known_hosts"}, "spec", "credentials")
		}
		_, err := g.Schedule(t.Context(), r, tko.Site{ID: "lagos"}, nil)
		if err == nil || !strings.Contains(err.Error(), "did not answer within 300ms") {
			t.Errorf("%s: got %v", url, err)
		}
	}
}
