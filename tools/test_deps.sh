#!/bin/sh
# Install what the tests on real file systems and those in a browser need. Without it, or where it cannot be installed,
# they are skipped.
set -eu

packages=
command -v unshare >/dev/null && command -v mount >/dev/null || packages="$packages util-linux mount"
command -v mkfs.ext4 >/dev/null || packages="$packages e2fsprogs"
command -v mkfs.xfs >/dev/null || packages="$packages xfsprogs"
command -v chromium >/dev/null || packages="$packages chromium"
command -v chromedriver >/dev/null || packages="$packages chromium-driver"

if [ -z "$packages" ]; then
    echo "penstock: everything that the tests need from the system is there"
elif [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "penstock: some tests are skipped without root and:$packages"
else
    echo "penstock: installing$packages..."
    # shellcheck disable=SC2086
    why=$({ apt-get update -q && apt-get install -qy --no-install-recommends $packages; } 2>&1) ||
        echo "penstock: could not install$packages, some tests are skipped: $(echo "$why" | tail -n 1)"
fi
