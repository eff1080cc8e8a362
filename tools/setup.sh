#!/bin/sh
# Make sure $VENV (.venv) exists and holds the given groups of requirements:  tools/setup.sh run test
# A stamp for each group says what is installed, so that a second time needs no network.
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
log=$venv/install.log

fail() {
    echo "penstock: $1" >&2
    exit 1
}

[ "$(uname -s)" = Linux ] || fail "needs Linux, this is $(uname -s)"

version() { "$1" -c 'import sys; print(sys.version)' 2>/dev/null; }

# Make the environment, unless a complete one that still runs is there (of $PYTHON, if that is set).
have=$(version "$venv/bin/python") || have=
if [ -n "${PYTHON:-}" ] && [ "$(version "$PYTHON")" != "$have" ]; then have=; fi
if [ -z "$have" ] || [ ! -e "$venv/.ready" ]; then
    python=$(tools/find_python.sh) || exit 1
    echo "penstock: setting up $venv with $python (once)..."
    rm -rf "$venv"
    if "$python" -c 'import ensurepip' 2>/dev/null; then
        why=$("$python" -m venv "$venv" 2>&1) || fail "cannot make $venv: $(echo "$why" | tail -n 1)"
    else
        why=$(uv venv -q --python "$python" "$venv" 2>&1) || fail "cannot make $venv: $(echo "$why" | tail -n 1)"
    fi
    touch "$venv/.ready"
fi

install() {
    if "$venv/bin/python" -c 'import pip' 2>/dev/null; then
        "$venv/bin/python" -m pip install -q --no-input --disable-pip-version-check "$@"
    else
        uv pip install -q --python "$venv/bin/python" "$@"
    fi
}

for group in "$@"; do
    file=requirements/$group.txt
    stamp=$venv/.stamp-$group-$(sha256sum <"$file" | cut -c 1-16)
    [ -e "$stamp" ] && continue
    echo "penstock: installing $file (once)..."
    only=
    [ "$group" = bench ] && only='--only-binary :all:'
    # shellcheck disable=SC2086
    if ! install --require-hashes $only -r "$file" >"$log" 2>&1 </dev/null; then
        fail "cannot install $file: $(grep -i error "$log" | tail -n 1) (see $log)"
    fi
    rm -f "$venv/.stamp-$group"-*
    touch "$stamp"
done
