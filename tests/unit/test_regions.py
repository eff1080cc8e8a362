"""Mapped regions: a bounded pool, for queues that are larger than what can be mapped at once."""

from __future__ import annotations

import copy
import linecache
import mmap
import os
import pickle
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.store import regions as module
from penstock.store.regions import Regions
from tests.conftest import Queues
from tests.fault.processes import Child
from tests.fault.test_group_commit import LONG_S, ended, forked

PAGE = mmap.ALLOCATIONGRANULARITY
SIZE = 5 * PAGE + 77


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, bytes]]:
    path = tmp_path_factory.mktemp("regions") / "file"
    data = os.urandom(SIZE)
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    yield fd, data
    os.close(fd)


@given(st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), max_size=20), st.integers(1, 3))
def test_what_is_read_through_regions_is_what_the_file_has(
    file: tuple[int, bytes], places: list[tuple[int, int]], count: int
) -> None:
    fd, data = file
    regions = Regions(count * PAGE, count)
    for one, other in places:
        start, end = min(one, other), max(one, other)
        assert regions.read(fd, SIZE, start, end - start) == data[start:end]
        assert len(regions._free) <= count
    regions.close()


@pytest.mark.parametrize("offset, length", [(SIZE, 1), (SIZE - 1, 2), (-1, 1), (0, SIZE + 1), (1 << 62, 1), (0, -1)])
def test_bounds_are_checked_before_anything_is_mapped(file: tuple[int, bytes], offset: int, length: int) -> None:
    regions = Regions(PAGE, 1)
    with pytest.raises(ValueError, match="of a file of"):
        regions.read(file[0], SIZE, offset, length)
    assert regions.mapped == 0


def test_a_region_is_a_multiple_of_a_page_and_all_stay_within_what_was_given() -> None:
    assert Regions(8 * PAGE + 100, 3).region_bytes == 2 * PAGE
    for map_bytes, count in ((PAGE - 1, 1), (7 * PAGE, 8), (0, 1), (-PAGE, 1), (PAGE, 0), (PAGE, 10_000), (1e6, 1)):
        with pytest.raises(penstock.Misuse, match="map_"):
            Regions(map_bytes, count)


def test_a_region_that_is_mapped_is_used_again_and_the_oldest_makes_room(file: tuple[int, bytes]) -> None:
    regions = Regions(2 * PAGE, 2)
    for number in (0, 1, 0, 1, 0):
        regions.read(file[0], SIZE, number * PAGE, 10)
    assert regions.mapped == 2
    regions.read(file[0], SIZE, 2 * PAGE, 10)  # in the place of 1, which was used longest ago
    regions.read(file[0], SIZE, 0, 10)
    assert regions.mapped == 3
    regions.read(file[0], SIZE, PAGE, 10)
    assert regions.mapped == 4


def test_threads_wait_in_order_when_all_regions_are_taken(file: tuple[int, bytes]) -> None:
    regions = Regions(PAGE, 1, wait_s=LONG_S)
    key = (file[0], 0)
    order: list[int] = []
    assert regions._take_turn(0) and regions._take(key) is None  # somebody reads from the only one
    threads = []
    for number in range(4):

        def read(number: int = number) -> None:
            me = threading.get_ident()
            assert regions._take_turn(me)
            order.append(number)
            regions._give_back(me, key, None)

        threads.append(threading.Thread(target=read))
        threads[-1].start()
        while len(regions._waiting) <= number:
            pass
    assert order == []
    regions._give_back(0, key, None)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3]


def test_whoever_waits_is_told_when_the_files_are_closed(file: tuple[int, bytes]) -> None:
    regions = Regions(PAGE, 1, wait_s=LONG_S)
    assert regions._take_turn(0)
    told: list[BaseException] = []

    def read() -> None:
        try:
            regions.read(file[0], SIZE, 0, 1)
        except ValueError as error:
            told.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    while not regions._waiting:
        pass
    regions.close()
    thread.join()
    assert len(told) == 1


def test_a_region_that_is_not_given_back_is_done_without(file: tuple[int, bytes]) -> None:
    regions = Regions(PAGE, 1)
    assert regions._take_turn(0)
    assert regions.read(file[0], SIZE, 10, 2 * PAGE) == file[1][10 : 10 + 2 * PAGE]
    assert regions.mapped == 0 and not regions._waiting


def test_without_a_descriptor_for_a_region_it_is_read_without(file: tuple[int, bytes]) -> None:
    regions = Regions(4 * PAGE, 4)
    assert regions.read(file[0], SIZE, 0, 10) == file[1][:10]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(file[0])
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        assert regions.read(file[0], SIZE, PAGE - 5, PAGE) == file[1][PAGE - 5 : 2 * PAGE - 5]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert regions.mapped == 1
    assert regions.read(file[0], SIZE, PAGE, 10) == file[1][PAGE : PAGE + 10]
    assert regions.mapped == 2 and not regions._taken
    regions.close()


def at_line(number: int, do: Callable[[], None], work: Callable[[], object]) -> bool:
    """Do something at the n-th line of the module that is run in ``work``; False if it has fewer. In a thread of its
    own: that it hangs is an error.

    Lines with ``with`` do not count. They come again at the end of their block, where a signal is never handled."""
    left = number

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line" and not linecache.getline(module.__file__, frame.f_lineno).strip().startswith("with "):
            left -= 1
            if left == 0:
                do()
        return trace

    def run() -> None:
        sys.settrace(trace)
        try:
            work()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LONG_S)
    assert not thread.is_alive(), f"it hangs, from line {number} on"
    return left <= 0


def test_an_interrupt_at_any_line_of_a_read_costs_no_region(file: tuple[int, bytes]) -> None:
    """Whoever reads next finds one, or does without; and an interrupted thread clears up when it reads again."""
    fd, data = file

    def interrupt() -> None:
        raise KeyboardInterrupt

    number = 1
    while True:
        regions = Regions(PAGE, 1)

        def read(regions: Regions = regions) -> None:
            assert regions.read(fd, SIZE, 0, 10) == data[:10]

        def read_again(read: Callable[[], None] = read) -> None:
            try:
                read()
            finally:
                sys.settrace(None)
                read()

        if not at_line(number, interrupt, read_again):
            break
        assert not regions._taken and not regions._waiting, f"line {number}"
        assert not at_line(1 << 30, interrupt, read)
        number += 1
    assert number > 20


def test_a_signal_handler_may_read_at_any_line_of_a_read(file: tuple[int, bytes]) -> None:
    fd, data = file
    number = 1
    while True:
        regions = Regions(PAGE, 1)
        found: list[bytes] = []

        def handle(regions: Regions = regions, found: list[bytes] = found) -> None:
            found.append(regions.read(fd, SIZE, PAGE, 10))

        def read(regions: Regions = regions, found: list[bytes] = found) -> None:
            found.append(regions.read(fd, SIZE, 0, 10))

        if not at_line(number, handle, read):
            break
        assert found == [data[PAGE : PAGE + 10], data[:10]]
        assert len(regions._free) <= 1 and not regions._taken and not regions._waiting
        number += 1
    assert number > 20


def test_a_child_that_is_forked_while_a_thread_reads_can_close(file: tuple[int, bytes]) -> None:
    regions = Regions(PAGE, 1)
    regions.read(file[0], SIZE, 0, 10)
    inside, go_on = threading.Event(), threading.Event()

    def read() -> None:
        with regions._changed:
            inside.set()
            assert go_on.wait(LONG_S)

    thread = threading.Thread(target=read)
    thread.start()
    assert inside.wait(LONG_S)
    try:
        assert ended(forked(regions.close), 5.0) == 0
    finally:
        go_on.set()
        thread.join()
    assert regions.read(file[0], SIZE, 0, 10) == file[1][:10]


def test_a_queue_works_through_regions_far_smaller_than_it(queue: Queues, tmp_path: Path) -> None:
    """Records across the ends of regions, larger than one, in several files, around the end of the ring."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    q = queue(slots=500, data_bytes=1 << 20, spill_bytes=64 << 10, data_dirs=dirs)
    small = queue.open(q, map_bytes=2 * PAGE, map_regions=2)
    for round in range(6):
        sent = [bytes([round]) + os.urandom(size) for size in (1, 300, PAGE - 50, PAGE, 3 * PAGE, 40_000, 100_000) * 3]
        small.put_many(sent[:8])
        for body in sent[8:]:
            small.put(body)
        assert [message.data for message in small.browse()] == sent
        found = small.get_many(10)
        for message in small.get_many(len(sent)):
            found.append(message)
        assert [message.data for message in found] == sent
        small.ack_many(found, durable=True)


def test_many_threads_share_a_few_regions(queue: Queues) -> None:
    q = queue(slots=500, data_bytes=1 << 20)
    small = queue.open(q, map_bytes=2 * PAGE, map_regions=2)
    sent = [bytes([n]) * 3000 for n in range(200)]
    small.put_many(sent)
    found: list[bytes] = []

    def receive() -> None:
        while messages := small.get_many(3):
            found.extend(message.data for message in messages)
            small.ack_many(messages)

    threads = [threading.Thread(target=receive) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sent


def test_a_copy_of_the_queue_object_maps_as_little(queue: Queues) -> None:
    q = queue()
    small = queue.open(q, map_bytes=4 * PAGE, map_regions=4)
    for copied in (pickle.loads(pickle.dumps(small)), copy.copy(small)):
        with copied:
            assert copied._mapped == (4 * PAGE, 4)
    with pickle.loads(pickle.dumps(q)) as plain:
        assert plain._mapped is None


def test_a_queue_larger_than_the_address_space_allows_is_used(queue: Queues) -> None:
    q = queue(slots=100, data_bytes=256 << 20, durability="relaxed")
    q.put(b"x" * 1000)

    def limited(say: object) -> None:
        with open("/proc/self/statm") as file:
            now_bytes = int(file.read().split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (now_bytes + (64 << 20), resource.RLIM_INFINITY))
        with pytest.raises((OSError, MemoryError)):
            penstock.open(q.path)
        with penstock.open(q.path, map_bytes=1 << 20) as small:
            small.put(b"y" * 5000)
            say([message.data for message in small.get_many(5)])  # type: ignore[operator]

    child = Child(limited)
    try:
        assert child.hear() == [b"x" * 1000, b"y" * 5000]
    finally:
        child.end()
