"""A queue's directory as it was, to be put back as often as a test needs it. The files stay the same files: a copy of
the directory would be another queue."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from penstock.store.directory import read_options

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where thousands of small files cost little


def overwrite(path: str | Path, data: bytes | bytearray) -> None:
    """Other contents for the same file."""
    with open(path, "r+b") as file:
        file.write(data)
        file.truncate()


class Snapshot:
    """All files of a queue that nobody has open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        outside = [path / name for name, _ in read_options(path).data_files]
        inside = [file for file in path.rglob("*") if file.is_file()]
        self.files = {file: file.read_bytes() for file in {*inside, *outside}}

    def put_back(self) -> None:
        for file in list(self.path.rglob("*")):
            if file.is_file() and file not in self.files:
                file.unlink()
        shutil.rmtree(self.path / "damaged", ignore_errors=True)
        for file, data in self.files.items():
            if not file.exists():
                file.write_bytes(data)
            elif data or file.stat().st_size:
                overwrite(file, data)
