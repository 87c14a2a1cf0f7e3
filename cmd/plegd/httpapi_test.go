package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

const someToken = "c0ffee00c0ffee00c0ffee00"

// tokenFile writes a token, or what isn't one.
func tokenFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

// A token is taken from a file that is nobody else's, and what is wrong with it
// is said without showing it.
func TestReadToken(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		mode       os.FileMode
		want       string // of the error; "" for none
	}{
		{"as openssl writes it", someToken + "\n", 0o600, ""},
		{"for a group", someToken, 0o640, ""},
		{"base64", "aGVsbG8gd29ybGQhIQ+/==", 0o400, ""},
		{"for everybody", someToken, 0o644, "mode 0644"},
		{"written by everybody", someToken, 0o602, "mode 0602"},
		{"written by a group", someToken, 0o660, "mode 0660"},
		{"short", someToken[:15], 0o600, "16 to 1024"},
		{"empty", "", 0o600, "16 to 1024"},
		{"two lines", someToken + "\n" + someToken, 0o600, "one token"},
		{"long", strings.Repeat("x", 1025), 0o600, "16 to 1024"},
		{"a word", "correct horse battery staple", 0o600, "letters, digits"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			token, err := readToken(tokenFile(t, tc.text, tc.mode))
			switch {
			case tc.want == "" && (err != nil || token != strings.TrimSpace(tc.text)):
				t.Errorf("%q, %v", token, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q", err, tc.want)
			case err != nil && tc.text != "" && strings.Contains(err.Error(), tc.text[:8]):
				t.Errorf("the error shows the token: %v", err)
			}
		})
	}
}

// With --http-api TCP has the API, here for those who have the token, which the
// log never shows.
func TestHTTPAPI(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{})
	newPod(t, rt, "web")
	dir := newAgentDir(t)
	file := tokenFile(t, someToken+"\n", 0o600)
	c := start(t, dir.args(endpoint, "--http-api", "--http-token-file", file, "--log-level", "debug")...)
	dir.awaitReady(t)
	for token, want := range map[string]int{"": http.StatusUnauthorized, "x" + someToken[1:]: http.StatusUnauthorized, someToken: http.StatusOK} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.address()+"/v1/pods", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("token %q: %d, want %d", token, resp.StatusCode, want)
		}
	}
	if code, body, err := dir.get("/debug/loglevel"); err != nil || code != http.StatusOK || !strings.Contains(body, `"debug"`) {
		t.Errorf("log level: %d %s %v", code, body, err)
	}
	c.terminate()
	if log := c.stderr.String(); strings.Contains(log, someToken) || !regexp.MustCompile(`url=http://127\.0\.0\.1:\d+/ token=true`).MatchString(log) {
		t.Errorf("log: %s", log)
	}
}
