#!/usr/bin/env bash
# Installs Debian's Chromium, for the tests of the web page. It has too many libraries of its own to
# be unpacked beside the system, as the runtimes of test/e2e are.
set -euo pipefail
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "the tests of the web page need Chromium: install it (not root on Debian, so it can't be done here)" >&2
	exit 1
fi
echo "installing Chromium (once, about 1 min)" >&2
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{ apt-get -q update && apt-get -qy install --no-install-recommends chromium; } </dev/null >"$log" 2>&1 || {
	cat "$log" >&2
	exit 1
}
