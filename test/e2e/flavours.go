package e2e

// flavour is a version of containerd that the tests run on.
type flavour struct {
	name    string
	stream  bool   // plegd reads its event stream
	version string // that it must be, or "" for the one that is pinned
	pin     string // the go.mod that pins it
	module  string
	path    func(dir string) []string
	config  string // %[1]s work folder, %[2]s pause image, %[3]s CNI plugins
}

// flavours are the runtimes that most tests run on: events by stream; by relists alone, since the
// stream is refused; and by relists alone, since there is none.
var flavours = []flavour{containerd2, containerd17, containerd16}

// Settings that all need: restrict_oom_score_adj since a container's score may not be raised
// without CAP_SYS_RESOURCE; plugins that look for kernel modules or for fixed folders are off.
var (
	containerd2 = flavour{
		name:   "containerd-2",
		stream: true,
		pin:    "runtimes/go.mod",
		module: "github.com/containerd/containerd/v2",
		path:   func(dir string) []string { return []string{dir + "/bin", dir + "/debian/usr/sbin"} },
		config: `version = 3
root = '%[1]s/root'
state = '%[1]s/state'
disabled_plugins = ['io.containerd.nri.v1.nri', 'io.containerd.snapshotter.v1.btrfs',
  'io.containerd.snapshotter.v1.zfs', 'io.containerd.snapshotter.v1.devmapper',
  'io.containerd.snapshotter.v1.blockfile', 'io.containerd.snapshotter.v1.erofs',
  'io.containerd.internal.v1.opt']
[grpc]
address = '%[1]s/containerd.sock'
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['%[3]s']
conf_dir = '%[1]s/cni'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '%[2]s'
`,
	}
	// Debian's 1.6 must not find the 2.x shim: its pods would not start.
	containerd16 = flavour{
		name:    "containerd-1.6",
		version: "1.6.20", // Debian 12's
		path:    func(dir string) []string { return []string{dir + "/debian/usr/bin", dir + "/debian/usr/sbin"} },
		config:  configV2,
	}
	// 1.7 has a stream whose subscribers compete for the events, so plegd leaves it to others.
	containerd17 = flavour{
		name:   "containerd-1.7",
		pin:    "runtimes/containerd17/go.mod",
		module: "github.com/containerd/containerd",
		path:   func(dir string) []string { return []string{dir + "/containerd17", dir + "/debian/usr/sbin"} },
		config: configV2,
	}
)

// configV2 is the configuration of 1.6 and 1.7.
const configV2 = `version = 2
root = '%[1]s/root'
state = '%[1]s/state'
disabled_plugins = ['io.containerd.nri.v1.nri', 'io.containerd.snapshotter.v1.btrfs', 'io.containerd.snapshotter.v1.zfs',
  'io.containerd.snapshotter.v1.devmapper', 'io.containerd.internal.v1.opt']
[grpc]
address = '%[1]s/containerd.sock'
[plugins.'io.containerd.grpc.v1.cri']
restrict_oom_score_adj = true
sandbox_image = '%[2]s'
[plugins.'io.containerd.grpc.v1.cri'.cni]
bin_dir = '%[3]s'
conf_dir = '%[1]s/cni'
`
