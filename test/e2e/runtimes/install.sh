#!/usr/bin/env bash
# Puts the runtimes that the tests run on into one folder, and nothing anywhere else:
#
#   DIR/bin         containerd 2.x, its shim, ctr and crictl, built from the pins in go.mod
#   DIR/containerd17 containerd 1.7, its shim and ctr, built from the pins in containerd17/go.mod
#   DIR/debian      Debian's containerd 1.6, runc and CNI plugins, unpacked but not installed, so
#                   that no service starts and no package of the machine changes
#
# install.sh --kubelet DIR builds the kubelet that is pinned in kubelet/go.mod into DIR/kubelet.
# install.sh --critest DIR builds critest, pinned in critest/go.mod, into DIR/critest.
# install.sh --check prints why this machine can't run them, or nothing.
# install.sh --cc    installs the C compiler that go test -race needs.
set -euo pipefail

# Debian 12 is asked for by name: it is the one that packages containerd 1.6, which has no event
# stream and so stands for every runtime without one.
check() {
	if [ "$(id -u)" != 0 ]; then
		echo "not root"
	elif ! grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release; then
		echo "not Debian 12"
	fi
}

# Runs a command whose output matters only if it fails.
quiet() {
	local log
	log=$(mktemp)
	if ! "$@" </dev/null >"$log" 2>&1; then
		cat "$log" >&2
		rm -f "$log"
		echo "failed: $*" >&2
		return 1
	fi
	rm -f "$log"
}

case "${1:?usage: install.sh DIR | --kubelet DIR | --critest DIR | --check | --cc}" in
--check)
	check
	exit
	;;
--cc)
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "go test -race needs a C compiler: install gcc" >&2
		exit 1
	fi
	export DEBIAN_FRONTEND=noninteractive
	quiet apt-get -q update
	quiet apt-get -qy install --no-install-recommends gcc libc6-dev
	exit
	;;
--kubelet)
	dir=$(realpath -m "${2:?usage: install.sh --kubelet DIR}")
	echo "building the kubelet (once, about 4 min)" >&2
	mkdir -p "$dir/kubelet"
	cd "$(dirname "$0")/kubelet"
	go build -p 2 -trimpath -o "$dir/kubelet/" k8s.io/kubernetes/cmd/kubelet
	exit
	;;
--critest)
	dir=$(realpath -m "${2:?usage: install.sh --critest DIR}")
	echo "building critest (once, about 2 min)" >&2
	mkdir -p "$dir/critest"
	cd "$(dirname "$0")/critest"
	quiet go test -mod=mod -c -p 2 -trimpath -o "$dir/critest/critest" sigs.k8s.io/cri-tools/cmd/critest
	exit
	;;
esac

dir=$(realpath -m "$1")
here=$(cd "$(dirname "$0")" && pwd)
reason=$(check)
if [ -n "$reason" ]; then
	echo "the real runtimes cannot be installed: $reason" >&2
	exit 1
fi

rm -f "$dir/installed"
mkdir -p "$dir/bin"

echo "building containerd 2 and crictl (once, about 2 min)" >&2
(cd "$here" && go build -p 2 -trimpath -o "$dir/bin/" tool)
echo "building containerd 1.7 (once, about 1 min)" >&2
mkdir -p "$dir/containerd17"
(cd "$here/containerd17" && go build -p 2 -trimpath -o "$dir/containerd17/" tool)

echo "fetching Debian's containerd, runc and CNI plugins" >&2
quiet apt-get -q update
debs=$(mktemp -d)
trap 'rm -rf "$debs"' EXIT
# The download runs as root since _apt can't write into a private folder.
(cd "$debs" && quiet apt-get -q -o APT::Sandbox::User=root download containerd runc containernetworking-plugins)
rm -rf "$dir/debian"
for deb in "$debs"/*.deb; do
	dpkg -x "$deb" "$dir/debian"
done
# runc needs this library; a Debian without it has no apt either, so it is only checked.
if ! "$dir/debian/usr/sbin/runc" --version >/dev/null; then
	echo "Debian's runc does not start here" >&2
	exit 1
fi

touch "$dir/installed"
