"""Owns the Python that Spark starts its workers with: this one, which finds Spark's Python where it is installed.

Spark puts its own copy first on their path, a zip file of sources: each worker, and a stream starts many, compiles them
anew, which takes longer than all the rest of its start. The installed files are the same, and compiled.
"""

from __future__ import annotations

import os
import shlex
import sys

import pyspark

from penstock.spark import launchers

SCRIPT = """#!/bin/sh
# Made by penstock: Python with Spark as it is installed, not from the zip files that Spark puts first on the path.
set -f
kept=
IFS=:
for entry in $PYTHONPATH; do
    case "$entry" in
    */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
    *) kept=$kept${kept:+:}$entry ;;
    esac
done
PYTHONPATH=$kept
export PYTHONPATH
exec %s "$@"
"""


def python() -> str:
    """The program to start workers with."""
    if not os.path.isfile(pyspark.__file__):  # from a zip file itself: then there is no other
        return sys.executable
    return str(launchers.home("python", SCRIPT % shlex.quote(sys.executable)) / "bin" / "python")
