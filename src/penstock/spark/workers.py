"""Owns the Python that Spark's workers are: how they are started, and what they do only once.

Spark puts its own copy first on their path, a zip file of sources: each worker, and a stream starts many, compiles them
anew, which takes longer than all the rest of its start. The installed files are the same, and compiled.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import shlex
import sys
import traceback
from typing import Any

import pyspark

from penstock.spark import launchers

DAEMON = "pyspark.daemon"
FIRST_TASKS = 3  # of a worker, not all: what a task leaves behind is kept for good

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


_tasks = itertools.count(1)

# What glibc's malloc keeps of free memory at the end of its heap, and what it takes from there. By itself it may give
# back and fetch the memory of an Arrow batch for each of them, and new pages are then a fifth of what a batch costs.
KEPT_BYTES = 64 << 20
MAPPED_BYTES = 32 << 20  # the most that it allows; what is larger is mapped
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_memory() -> bool:
    """The memory of an Arrow batch is there for the next one. False if this is not glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES))


class _Quiet:
    """What Spark's daemon asks of ``traceback``."""

    @staticmethod
    def print_exc() -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            traceback.print_exc()


def end_quietly() -> None:
    """A process of Spark's whose Java has gone prints the stack of that, at many an end of a driver. Any other error
    is still said."""
    daemon: Any = sys.modules["__main__"]
    if getattr(getattr(daemon, "__spec__", None), "name", None) == DAEMON:
        daemon.traceback = _Quiet


def begin_task() -> None:
    """Called by each task. A worker looks for garbage after every one, through all that Spark, Arrow and pandas have
    loaded, which takes as long as reading 100,000 messages. What its first tasks find there is passed over from then
    on; the very first has not loaded all of it yet."""
    task = next(_tasks)
    if task == 1:
        keep_memory()
    if task <= FIRST_TASKS:
        gc.freeze()


end_quietly()  # on import, which is before a task has begun: Java may have gone by then
