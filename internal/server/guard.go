package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

var errToken = errors.New("this address asks for the token of --http-token-file, as Authorization: Bearer TOKEN")

// guard stands before what TCP has of the API.
type guard struct {
	listen string            // the host of Config.Listen
	sum    [sha256.Size]byte // of the token
	asks   bool              // for the token
}

func (s *Server) newGuard() guard {
	g := guard{asks: s.cfg.Token != "", sum: sha256.Sum256([]byte(s.cfg.Token))}
	if host, _, err := net.SplitHostPort(s.cfg.Listen); err == nil {
		g.listen = host
	}
	return g
}

// host refuses requests that were not meant for this server. A web page can let
// its own name point to a loopback address, and would then read what is served
// here as its own; but the browser still says by which name it came.
func (g guard) host(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.knows(r) {
			writeError(w, http.StatusMisdirectedRequest, fmt.Errorf("host %.80q is not served here: use localhost, 127.0.0.1, [::1] or the address of --http-listen", r.Host))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// knows reports whether a request names this server. An address that nobody can
// let point elsewhere is as good as a name that was configured: loopback, and
// the one that the client has connected to.
func (g guard) knows(r *http.Request) bool {
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	name = strings.Trim(name, "[]")
	if name == "" {
		return false
	}
	if strings.EqualFold(name, "localhost") || strings.EqualFold(name, g.listen) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	tcp, ok := local.(*net.TCPAddr)
	return ip.IsLoopback() || ok && tcp.AddrPort().Addr().Unmap() == ip.Unmap()
}

// token refuses requests without the token, if there is one. Digests are
// compared, since they are equally long, and in constant time.
func (g guard) token(h http.Handler) http.Handler {
	if !g.asks {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		sum := sha256.Sum256([]byte(strings.TrimSpace(given)))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(sum[:], g.sum[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="plegd"`)
			writeError(w, http.StatusUnauthorized, errToken)
			return
		}
		h.ServeHTTP(w, r)
	})
}
