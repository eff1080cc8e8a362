#!/bin/sh
# Print the path of a working Python 3.11 or newer, found by running it (a name on PATH may be a
# shim that fails). `find_python.sh 3.12` accepts that version only. $PYTHON, if set, is the one.
set -u
only=${1:-}

# Print the interpreter behind the command $1, if it will do.
try() {
    "$1" - "$only" 2>/dev/null <<'EOF'
import importlib.util, shutil, sys
version = "%d.%d" % sys.version_info[:2]
venv = all(map(importlib.util.find_spec, ("venv", "ensurepip"))) or shutil.which("uv")
if sys.version_info < (3, 11) or sys.argv[1] not in ("", version) or not venv:
    sys.exit(1)
print(sys.executable)
EOF
}

if [ -n "${PYTHON:-}" ]; then
    try "$PYTHON" && exit
    echo "penstock: PYTHON=$PYTHON is not a working Python ${only:-3.11+} with venv (or uv)" >&2
    exit 1
fi

names=python3.13:python3.12:python3.11:python3
[ -n "$only" ] && names=python$only
IFS=:
for name in $names; do
    for directory in $PATH; do
        [ -x "$directory/$name" ] && try "$directory/$name" && exit
    done
done
found=$(uv python find "${only:->=3.11}" 2>/dev/null) && try "$found" && exit

echo "penstock: no working Python ${only:-3.11+} with venv (or uv) found; install one or set PYTHON" >&2
exit 1
