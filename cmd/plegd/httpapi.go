package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// httpOptions are the flags of what TCP serves beside health and metrics.
type httpOptions struct {
	api       bool
	tokenFile string
	token     string // its content; never logged
}

// addTo adds the flags.
func (o *httpOptions) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.api, "http-api", false, "serve the API and the web page on --http-listen too, to every user of this machine")
	f.StringVar(&o.tokenFile, "http-token-file", "", "file with the token that clients of --http-api have to give (default: none is asked for)")
	_ = cmd.MarkFlagFilename("http-token-file") // it fails for a flag that doesn't exist only
}

// complete reads the token, and refuses to serve the API to the network without
// one.
func (o *httpOptions) complete(f *pflag.FlagSet, listen string) error {
	given := f.Changed("http-token-file")
	switch {
	case given && !o.api:
		return usagef("--http-token-file %.200q: has no effect without --http-api", o.tokenFile)
	case !o.api:
		return nil
	case listen == "":
		return usagef("--http-api: is served on --http-listen, which is \"\"; name an address, or leave --http-api out")
	case !given && !isLoopback(listen):
		return usagef("--http-api: --http-listen %.200q is not localhost or a loopback address: everybody who reaches it could read all pods; give --http-token-file too", listen)
	case !given:
		return nil
	}
	token, err := readToken(o.tokenFile)
	if err != nil {
		return usagef("--http-token-file %.200q: %v", o.tokenFile, err)
	}
	o.token = token
	return nil
}

// isLoopback reports whether a TCP address is certain to be one.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

const (
	// tokenMin is what can't be guessed if it is random: 96 bits in base64.
	tokenMin = 16
	tokenMax = 1024
)

// tokenForm is what fits in a header, as RFC 6750 has it.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// readToken reads a token from a file that others than its owner and its group
// can't read, and that only its owner can change. Errors don't
// show what is in it.
func readToken(path string) (string, error) {
	// A named pipe would block at open.
	if info, err := os.Stat(path); err != nil {
		return "", causeOf(err)
	} else if !info.Mode().IsRegular() {
		return "", errors.New("must be a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return "", causeOf(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", causeOf(err)
	}
	if mode := info.Mode().Perm(); mode&0o027 != 0 {
		return "", fmt.Errorf("has mode %04o: others can read it, or its group can change it; set it to 0600 or 0640", mode)
	}
	text, err := io.ReadAll(io.LimitReader(file, 2*tokenMax))
	if err != nil {
		return "", causeOf(err)
	}
	token := strings.TrimRight(string(text), "\r\n")
	if len(token) < tokenMin || len(token) > tokenMax || !tokenForm.MatchString(token) {
		return "", fmt.Errorf("must hold one token of %d to %d letters, digits or -._~+/, such as openssl rand -hex 32 makes", tokenMin, tokenMax)
	}
	return token, nil
}

// causeOf is an error about a file without its path, which the message has.
func causeOf(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
