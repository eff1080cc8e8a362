"""What the figures were measured on. Tells no path and no host name."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sqlite3
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import penstock
from bench.scenarios.measuring import file_system

PACKAGES = ("lmdb", "litequeue", "pyzmq")


def describe(directory: Path) -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "kernel": platform.release(),
        "file_system": file_system(directory),
        "python": platform.python_version(),
        "penstock": penstock.__version__,
        "core": "compiled" if penstock.compiled else "interpreted",
        "versions": {"sqlite": sqlite3.sqlite_version}
        | {name: _version(name) for name in PACKAGES}
        | {"redis-server": _redis_version()},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _redis_version() -> str | None:
    if shutil.which("redis-server") is None:
        return None
    told = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v=(\S+)", told)
    return found[1] if found else None
