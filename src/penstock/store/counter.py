"""Part of the door to the operating system: a number in a file that every process sees at once, for the price of a
load. A hint: who depends on it also looks now and then without it."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from penstock.store.files import open_file

COUNTER_BYTES = 8


class SharedCounter:
    """Grows whenever somebody has changed what it is about."""

    def __init__(self, path: Path) -> None:
        fd = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(fd).st_size < COUNTER_BYTES:
                os.ftruncate(fd, COUNTER_BYTES)  # two who do it at once do the same
            self.words = memoryview(mmap.mmap(fd, COUNTER_BYTES)).cast("Q")
        finally:
            os.close(fd)

    def value(self) -> int:
        return self.words[0]

    def advance(self) -> None:
        """To be called by one at a time."""
        self.words[0] = (self.words[0] + 1) & 0xFFFFFFFFFFFFFFFF
