"""Owns the journals: what a process has done, a JSON line for each step, written after the step. Never knows what they
mean.

A killed process may leave half a line. Readers wait for its end, and the next writer of the same journal cuts it off.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """One process's journal, for writing."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        text = path.read_bytes()
        os.ftruncate(self._fd, text.rfind(b"\n") + 1)
        self.lines = text.count(b"\n")  # that were there already

    def write(self, line: dict[str, Any]) -> None:
        os.write(self._fd, json.dumps(line).encode() + b"\n")


class Follower:
    """Reads what is new in all journals of a folder, each time it is asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def new_lines(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Name of the journal and line."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + whole
            for line in text[:whole].splitlines():
                yield path.stem, json.loads(line)
