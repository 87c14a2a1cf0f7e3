package policy

import (
	"go/ast"
	"slices"
	"strings"
)

// public lists the packages that others can import. cmd, internal and test can't be, or not
// usefully.
var public = []string{".", "timestamps", "store", "arbiter", "evented", "generic", "api", "client"}

// private lists the folders whose packages are nobody else's business.
var private = []string{"cmd", "internal", "test"}

// modules lists what a program that imports plegd takes in with it.
var modules = []string{
	"github.com/cenkalti/backoff/v4",
	"github.com/coreos/go-systemd/v22", // sd_notify; of the binary alone
	"github.com/fxamacker/cbor/v2",
	"github.com/klauspost/compress", // of recordings; gRPC's metrics bring it in anyway
	"github.com/prometheus/client_golang",
	"github.com/prometheus/client_model",
	"github.com/prometheus/procfs", // whose connections are whose, of plegd doctor; client_golang brings it in anyway
	"github.com/spf13/cobra",
	"github.com/spf13/pflag",
	"github.com/vishvananda/netlink", // sock_diag, of plegd doctor alone
	"go.etcd.io/bbolt",
	"golang.org/x/net", // http2, for the frame that refuses a connection; gRPC brings it in anyway
	"golang.org/x/sync",
	"golang.org/x/sys",
	"golang.org/x/term", // of the binary alone
	"golang.org/x/time",
	"google.golang.org/genproto/googleapis/rpc", // the details of an error's status
	"google.golang.org/grpc",
	"google.golang.org/protobuf",
	"k8s.io/apimachinery/pkg/labels",        // selectors as kubectl takes them
	"k8s.io/apimachinery/pkg/util/duration", // ages as kubectl shows them
	"k8s.io/cri-api",
	"sigs.k8s.io/yaml",
}

// checkSurface finds packages and modules that nobody decided on.
func checkSurface(f file) []string {
	// A conformance suite (store/storetest) is test code in a package of its own.
	if f.isTest() || within(f.dir(), "test") || strings.HasSuffix(f.dir(), "test") {
		return nil
	}
	var found []string
	// Sub-packages of a public package, its tests' helpers say, are the package author's choice.
	in := func(dirs []string) bool {
		return slices.ContainsFunc(dirs, func(dir string) bool {
			return f.dir() == dir || dir != "." && within(f.dir(), dir)
		})
	}
	if !in(public) && !in(private) {
		found = append(found, f.violation(f.ast.Name, "new public package %s", f.dir()))
	}
	f.imports(func(spec *ast.ImportSpec, p string) {
		host, _, _ := strings.Cut(p, "/")
		if !strings.Contains(host, ".") || within(p, module) {
			return // the standard library, or this module
		}
		if !slices.ContainsFunc(modules, func(m string) bool { return within(p, m) }) {
			found = append(found, f.violation(spec, "new dependency %s", p))
		}
	})
	return found
}
