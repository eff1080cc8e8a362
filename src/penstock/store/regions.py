"""Part of the door to the operating system: a bounded pool of mapped regions of the data files (S16), for queues that
are larger than the address space, or a limit of memory, allows to map at once. Knows no unit and no record.

Only for reading. What is written goes out by positioned writes, which need no region and tell an error as an error; so
nobody who writes ever waits for one that is mapped elsewhere just now.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections import OrderedDict

from penstock.errors import Misuse

REGIONS = 8  # as many threads as are likely to read at the same time, and a few places that are read again and again
REGIONS_MAX = 1024

WAIT_S = 0.05  # so long a read waits for a region: longer than many reads, and no harm where one was never given back

_Key = tuple[int, int]  # descriptor and number of the region in its file


class Regions:
    """Regions of one size, each for one thread at a time. Whoever finds all of them taken waits for the first that is
    given back; those that wait are served in the order in which they came. Who has waited for ``wait_s`` does without:
    an interrupt may have come to one before he could give his back, which nobody else can tell.

    A signal handler may read in the middle of a read of its thread: it takes over the thread's turn, and what there is
    too much of for a moment is closed with the next region that is taken or given back."""

    def __init__(self, map_bytes: int, count: int = REGIONS, *, wait_s: float = WAIT_S) -> None:
        """Together they are at most ``map_bytes`` large, and each at least a page."""
        if not isinstance(count, int) or not 1 <= count <= REGIONS_MAX:
            raise Misuse(f"map_regions must be a whole number from 1 to {REGIONS_MAX}, not {count!r}")
        if not isinstance(map_bytes, int):
            raise Misuse(f"map_bytes must be a whole number of bytes, not {map_bytes!r}")
        page = mmap.ALLOCATIONGRANULARITY
        self.region_bytes = map_bytes // count // page * page
        if self.region_bytes < page:
            raise Misuse(f"map_bytes: {count} regions of at least a page take {count * page}, not {map_bytes}")
        self.count = count
        self._wait_s = wait_s
        self._free: OrderedDict[_Key, mmap.mmap] = OrderedDict()  # the one that was used last at the end
        self._taken: dict[int, None] = {}  # by which threads: what an interrupt left there, its next read clears
        self._waiting: dict[int, None] = {}  # likewise, in order
        self._owner = os.getpid()
        # Entered itself, not by the condition, whose way in is no single step: an interrupt there would leave it held.
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
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
        me = threading.get_ident()
        region = None
        start = number * self.region_bytes
        try:
            if not self._take_turn(me):
                return _read_all(fd, size, start + at)
            region = self._take(key)
            if region is None:
                length = min(self.region_bytes, file_bytes - start)
                try:
                    region = mmap.mmap(fd, length, mmap.MAP_SHARED, mmap.PROT_READ, offset=start)
                except OSError:  # no descriptor left, or no room in the address space: it is only a shorter way
                    return _read_all(fd, size, start + at)
                self.mapped += 1
            return region[at : at + size]
        finally:
            self._give_back(me, key, region)

    def _take_turn(self, me: int) -> bool:
        """Wait until we may have a region. False if that took too long."""
        with self._mutex:
            self._taken.pop(me, None)
            self._waiting.pop(me, None)
            self._waiting[me] = None
            end_s = time.monotonic() + self._wait_s
            while not self._closed and (len(self._taken) >= self.count or not self._is_first(me)):
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)
            if self._closed:
                raise ValueError("the files are closed")
            self._taken[me] = None
            self._waiting.pop(me, None)
            if self._waiting:
                self._changed.notify_all()
            return True

    def _is_first(self, me: int) -> bool:
        """Of those that wait. A signal handler that reads leaves its thread out of them."""
        waiting = list(self._waiting)
        return not waiting or waiting[0] == me

    def _take(self, key: _Key) -> mmap.mmap | None:
        """In our turn: the region if it is mapped and free; None if it is to be mapped, for which there is room now.
        The same bytes may be in two regions: nobody waits for one that another just reads from."""
        with self._mutex:
            region = self._free.pop(key, None)
            self._make_room()
            return region

    def _make_room(self) -> None:
        while self._free and len(self._free) + len(self._taken) > self.count:
            self._free.popitem(last=False)[1].close()

    def _give_back(self, me: int, key: _Key, region: mmap.mmap | None) -> None:
        """End our turn, or our wait for one."""
        with self._mutex:
            self._taken.pop(me, None)
            self._waiting.pop(me, None)
            if region is not None:
                if self._closed or key in self._free:
                    region.close()
                else:
                    self._free[key] = region
                    self._make_room()
            if self._waiting:
                self._changed.notify_all()

    def close(self) -> None:
        if os.getpid() != self._owner:  # a thread that was in here when we were forked will not let go of it
            self._mutex = threading.RLock()
            self._changed = threading.Condition(self._mutex)
        with self._mutex:
            self._closed = True
            while self._free:
                self._free.popitem()[1].close()
            self._changed.notify_all()


def _read_all(fd: int, length: int, offset: int) -> bytes:
    data = os.pread(fd, length, offset)
    while len(data) < length:
        more = os.pread(fd, length - len(data), offset + len(data))
        if not more:
            raise ValueError(f"the file ends at {offset + len(data)}")
        data += more
    return data
