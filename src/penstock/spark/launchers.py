"""Owns the small scripts through which Spark starts Java and Python: they are kept in ``~/.cache/penstock``.

Never knows what they do, and never imports Spark.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from pathlib import Path


def home(program: str, script: str) -> Path:
    """A directory whose ``bin/<program>`` is this script. It stays for the next session."""
    name = f"{program}-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    try:
        found = _cache() / name
        _write(found / "bin" / program, script)
    except OSError:  # a home directory that is not there or read-only
        found = Path(tempfile.mkdtemp(prefix=f"penstock-{program}-"))
        atexit.register(shutil.rmtree, found, ignore_errors=True)
        _write(found / "bin" / program, script)
    return found


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def _write(where: Path, script: str) -> None:
    """Written aside and renamed: another process may be about to run it."""
    if where.is_file() and os.access(where, os.X_OK) and where.read_text() == script:
        return
    where.parent.mkdir(parents=True, exist_ok=True)
    fd, aside = tempfile.mkstemp(dir=where.parent)
    with open(fd, "w") as file:
        file.write(script)
    os.chmod(aside, 0o755)
    os.rename(aside, where)
