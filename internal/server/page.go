package server

import (
	"embed"
	"fmt"
	"net/http"
	"path"
)

// pageFiles is the web page. It has everything that it shows; nothing comes from
// elsewhere.
//
//go:embed page
var pageFiles embed.FS

// pageTypes are the files that it may consist of. A machine's own list of types
// doesn't count.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// pagePolicy lets the page use its own files and this server, and nothing else:
// what names and reasons of pods may contain can't become a script.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// pageFile answers with one of its files, the page itself where none is named.
func pageFile(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	if name == "" {
		name = "index.html"
	}
	contentType := pageTypes[path.Ext(name)]
	body, err := pageFiles.ReadFile("page/" + name)
	if err != nil || contentType == "" {
		writeError(w, http.StatusNotFound, fmt.Errorf("no such path: %.200s", r.URL.Path))
		return
	}
	h := w.Header()
	setHeaders(h, contentType)
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(body)
}
