package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// PluginTokenPrefix is the prefix of the tokens of plugins.
const PluginTokenPrefix = "tkop_"

// A PluginToken is the content of a plugin's token: the plugin, and the claimed
// work item that it runs for. It proves that its issuer had the claim, without
// revealing the claim, so that it ends with the lease and needs no storage.
type PluginToken struct {
	Type  string `json:"t"`
	Name  string `json:"n"`
	Queue string `json:"q"`
	Key   string `json:"k"`
}

// NewPluginToken returns the token of a plugin for a claimed item.
func NewPluginToken(typ, name string, item tko.WorkItem) string {
	t := PluginToken{Type: typ, Name: name, Queue: item.Queue, Key: item.Key}
	payload, _ := json.Marshal(t) // has only texts
	return PluginTokenPrefix + base64.RawURLEncoding.EncodeToString(payload) + "." + base64.RawURLEncoding.EncodeToString(proof(payload, item.Claim))
}

// ReadPluginToken returns the content of a plugin's token, and whether it was
// issued with a claim. ok is false if the token is of another kind or malformed.
func ReadPluginToken(token string) (t PluginToken, issued func(claim string) bool, ok bool) {
	encoded, sum, ok := strings.Cut(strings.TrimPrefix(token, PluginTokenPrefix), ".")
	if !ok || !strings.HasPrefix(token, PluginTokenPrefix) {
		return t, nil, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || json.Unmarshal(payload, &t) != nil {
		return t, nil, false
	}
	given, err := base64.RawURLEncoding.DecodeString(sum)
	if err != nil {
		return t, nil, false
	}
	return t, func(claim string) bool { return claim != "" && hmac.Equal(given, proof(payload, claim)) }, true
}

func proof(payload []byte, claim string) []byte {
	mac := hmac.New(sha256.New, []byte("tko plugin token\n"+claim))
	mac.Write(payload)
	return mac.Sum(nil)
}
