#!/bin/sh
# Pin requirements/*.in into requirements/*.txt, with hashes. Needs pip-tools.
# Arguments go to pip-compile, e.g.: tools/lock.sh --upgrade
# Run it with the oldest supported Python: the pins must install on all of them.
set -eu
cd "$(dirname "$0")/../requirements"
for group in run build test lint bench spark console; do
    pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
        --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
        "$@" --output-file "$group.txt" "$group.in"
done
