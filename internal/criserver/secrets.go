package criserver

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// masked stands where a secret was.
const masked = "(masked by plegd)"

// secretKeys hold secrets, in lower case and without underscores: containerd's
// verbose status shows the configuration of its CRI plugin, with what it logs in
// to registries with (AuthConfig of its pkg/cri/config, and headers that it sends
// along). Who may read the endpoint isn't who may pull in the node's name.
var secretKeys = []string{"password", "auth", "identitytoken", "registrytoken", "headers"}

// maskSecrets takes the secrets out of what a runtime says of itself. What has
// none stays as it is, and so does what is not JSON.
func maskSecrets(resp *runtimeapi.StatusResponse) {
	for key, text := range resp.GetInfo() {
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		var v any
		if dec.Decode(&v) != nil {
			continue
		}
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			continue // more than one value
		}
		if v, found := mask(v, false); found {
			if b, err := json.Marshal(v); err == nil {
				resp.Info[key] = string(b)
			} else {
				resp.Info[key] = masked
			}
		}
	}
}

// mask returns a value of JSON without its secrets, and whether there were any;
// secret says that all of its strings are.
func mask(v any, secret bool) (_ any, found bool) {
	switch v := v.(type) {
	case string:
		if secret && v != "" {
			return masked, true
		}
	case []any:
		for i := range v {
			var f bool
			v[i], f = mask(v[i], secret)
			found = found || f
		}
	case map[string]any:
		for key := range v {
			name := strings.ReplaceAll(strings.ToLower(key), "_", "")
			_, isText := v[key].(string)
			of := secret || slices.Contains(secretKeys, name) && (isText || name == "headers") // auth may be an object with a name in it
			var f bool
			v[key], f = mask(v[key], of)
			found = found || f
		}
	}
	return v, found
}
