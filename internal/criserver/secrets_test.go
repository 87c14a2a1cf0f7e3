package criserver

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
)

// What a runtime says of itself comes without what it logs in to registries with,
// in the places that containerd 1.x has for that, and is else as it was.
func TestStatusWithoutSecrets(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.quiet()
	const config = `{"containerd":{"snapshotter":"overlayfs"},"maxSize":9007199254740993,"registry":{"configPath":"/etc/certs.d",
		"mirrors":{"docker.io":{"endpoint":["https://m"]}},
		"configs":{"r":{"auth":{"username":"joe","password":"s-1","auth":"s-2","identitytoken":"s-3"},"tls":{"key_file":"/k"}},"q":{"auth":null}},
		"auths":{"https://old":{"username":"jim","password":"s-4","auth":"","identity_token":"s-5"}},
		"headers":{"Authorization":["s-6","s-7"],"X":["s-8"]}}}`
	const plain, text = `{ "registry": {"auths": null, "headers": {}, "auth": ""} }`, "password = s-not"
	said := map[string]string{"config": config, "plain": plain, "text": text, "two": `{} {"password":"two"}`}
	_, err := n.rt.AddRule(simruntime.Rule{Method: "Status", Edit: func(m proto.Message) {
		m.(*runtimeapi.StatusResponse).Info = said
	}})
	n.must(err)
	for range 2 { // the second one is kept
		resp, err := n.cri.Status(t.Context(), &runtimeapi.StatusRequest{Verbose: true})
		n.must(err)
		got := resp.GetInfo()
		if got["plain"] != plain || got["text"] != text || got["two"] != said["two"] {
			t.Errorf("changed: %v", got)
		}
		if strings.Contains(got["config"], "s-") {
			t.Errorf("a secret is left: %s", got["config"])
		}
		for _, kept := range []string{`"username":"joe"`, `"username":"jim"`, `"auth":null`, `"auth":""`, `"snapshotter":"overlayfs"`, `9007199254740993`, `"key_file":"/k"`, `"endpoint":["https://m"]`} {
			if !strings.Contains(got["config"], kept) {
				t.Errorf("%s is not there: %s", kept, got["config"])
			}
		}
		if !json.Valid([]byte(got["config"])) || strings.Count(got["config"], masked) != 8 {
			t.Errorf("config %s", got["config"])
		}
	}
}
