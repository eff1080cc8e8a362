"""Owns the search for records in a data file, chunk by chunk, with threads that look ahead.

What a record is, and what becomes of it, is ``scan.py``'s. Never writes.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, wait
from mmap import MADV_DONTNEED, mmap

from penstock.store import layout as L
from penstock.store.scan import Scan

CHUNK_UNITS = 1 << 15  # 8 MiB are scanned at a time


class DataFile:
    """One data file, searched from front to back."""

    def __init__(self, scan: Scan, old: memoryview, mapping: mmap, start: int, end: int) -> None:
        self._scan = scan
        self._old = old
        self._start = start
        self._end = end
        self._mapping = mapping
        self._data = memoryview(mapping)
        self._words = self._data.cast("Q")

    def __enter__(self) -> DataFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._words.release()
        self._data.release()

    def search(self, threads: Executor | None, buffers: list[array[int]]) -> Iterator[int]:
        """Note the records, chunk by chunk; after each, the unit behind it. Threads look ahead, a chunk a buffer."""
        looking: deque[Future[int]] = deque()
        starts = range(self._start, self._end, CHUNK_UNITS)
        reached = self._start
        try:
            for i, unit in enumerate(starts):
                if threads:
                    for ahead in range(i + len(looking), min(i + len(buffers), len(starts))):
                        buffer = buffers[ahead % len(buffers)]
                        looking.append(threads.submit(self._find, starts[ahead], starts[ahead], buffer))
                found = buffers[i % len(buffers)]
                count = looking[0].result() if looking else self._find(unit, reached, found)
                if looking:
                    looking.popleft()  # only now: whoever is interrupted above waits for it below
                reached = self._note(unit, reached, count, found)
                yield self._stop(unit)
        finally:
            for future in looking:
                future.cancel()
            wait(looking)

    def _note(self, chunk: int, reached: int, count: int, found: array[int]) -> int:
        """Where the last record ends. One of an earlier chunk may reach into this; what was found inside it is none."""
        behind = self._scan.note(found, count, reached, self._old)
        if count and behind == 0:
            count = self._find(chunk, reached, found)
            behind = self._scan.note(found, count, reached, self._old)
        return max(behind, reached)

    def _stop(self, unit: int) -> int:
        return min(unit + CHUNK_UNITS, self._end)

    def _find(self, chunk: int, unit: int, found: array[int]) -> int:
        """Records that start in a chunk, from a unit on."""
        first, stop = self._start, self._stop(chunk)
        if unit >= stop:
            return 0
        count = self._scan.find(self._words, self._data, first, unit - first, stop - first, self._end - first, found)
        # Whoever closes the file would take all of it out of memory's tables at once, alone.
        self._mapping.madvise(MADV_DONTNEED, (chunk - first) * L.UNIT_BYTES, (stop - chunk) * L.UNIT_BYTES)
        return count
