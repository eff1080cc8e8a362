"""Part of the door to the operating system: a bounded pool of mapped regions of the data files (S16), for queues that
are larger than the address space, or a limit of memory, allows to map at once. Knows no unit and no record.

Only for reading. What is written goes out by positioned writes, which need no region and tell an error as an error; so
nobody who writes ever waits for one that is mapped elsewhere just now.
"""

from __future__ import annotations

import mmap
import threading
from collections import OrderedDict, deque

from penstock.errors import Misuse

REGIONS = 8  # as many threads as are likely to read at the same time, and a few places that are read again and again
REGIONS_MAX = 1024

_Key = tuple[int, int]  # descriptor and number of the region in its file


class Regions:
    """Regions of one size, each for one thread at a time. Whoever finds all of them taken waits for the first that is
    given back; those that wait are served in the order in which they came."""

    def __init__(self, map_bytes: int, count: int = REGIONS) -> None:
        """Together they are at most ``map_bytes`` large, and each at least a page."""
        if not 1 <= count <= REGIONS_MAX:
            raise Misuse(f"map_regions: from 1 to {REGIONS_MAX}, not {count}")
        page = mmap.ALLOCATIONGRANULARITY
        self.region_bytes = map_bytes // count // page * page
        if self.region_bytes < page:
            raise Misuse(f"map_bytes: {count} regions of at least a page take {count * page}, not {map_bytes}")
        self.count = count
        self._free: OrderedDict[_Key, mmap.mmap] = OrderedDict()  # the one that was used last at the end
        self._taken = 0
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._closed = False
        self.mapped = 0  # how often a region was mapped, for whoever chooses a size

    def read(self, fd: int, file_bytes: int, offset: int, length: int) -> bytes:
        """A copy of bytes of a file, which has so many; region by region. ``ValueError`` for bytes outside it: past the
        end of a file, a mapping turns a read into a signal."""
        if offset < 0 or length < 0 or offset + length > file_bytes:
            raise ValueError(f"bytes {offset} to {offset + length} of a file of {file_bytes}")
        pieces = []
        while length > 0:
            number, at = divmod(offset, self.region_bytes)
            size = min(length, self.region_bytes - at)
            pieces.append(self._read_region(fd, file_bytes, number, at, size))
            offset += size
            length -= size
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_region(self, fd: int, file_bytes: int, number: int, at: int, size: int) -> bytes:
        key = (fd, number)
        region = self._take(key)
        try:
            if region is None:
                start = number * self.region_bytes
                length = min(self.region_bytes, file_bytes - start)
                region = mmap.mmap(fd, length, mmap.MAP_SHARED, mmap.PROT_READ, offset=start)
                self.mapped += 1
            return region[at : at + size]
        finally:
            self._give_back(key, region)

    def _take(self, key: _Key) -> mmap.mmap | None:
        """The region if it is mapped and free; None if it is to be mapped, for which there is room now. The same bytes
        may be in two regions: nobody waits for one that another just reads from."""
        with self._changed:
            self._wait_for_turn()
            if self._closed:
                raise ValueError("the files are closed")
            self._taken += 1
            region = self._free.pop(key, None)
            if region is None and len(self._free) + self._taken > self.count:
                self._free.popitem(last=False)[1].close()
            return region

    def _wait_for_turn(self) -> None:
        me = object()
        self._waiting.append(me)
        try:
            while not self._closed and (self._taken >= self.count or self._waiting[0] is not me):
                self._changed.wait()
        finally:
            self._waiting.remove(me)
            if self._waiting:
                self._changed.notify_all()

    def _give_back(self, key: _Key, region: mmap.mmap | None) -> None:
        with self._changed:
            self._taken -= 1
            if region is not None:
                if self._closed or key in self._free:
                    region.close()
                else:
                    self._free[key] = region
            if self._waiting:
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            while self._free:
                self._free.popitem()[1].close()
            self._changed.notify_all()
