"""What put_file copies from: paths, files, pipes; and sources that are changed while they are read."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Misuse, SourceChanged
from penstock.timequeue.sources import Source
from tests.pipes import Pipe

KEPT = 100


def opened(given: Any) -> Source:
    return Source(given, kept_bytes=KEPT)


def content(source: Source) -> bytes:
    """All of it, with what it asked room for beyond what was known before."""
    asked = [source.known_bytes]
    data = b"".join(source.pieces(asked.append))
    assert sum(asked) == len(data)
    return data


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(250)))
    return path


def test_a_path_has_a_size_and_is_read_without_asking_for_room(file: Path) -> None:
    with opened(file) as source:
        assert (source.size, source.head, source.is_whole, source.name) == (250, b"", False, str(file))
        assert content(source) == file.read_bytes()
    with opened(str(file)) as source:
        assert source.size == 250


def test_an_open_file_is_read_from_where_it_stands_and_stays_open(file: Path) -> None:
    with open(file, "rb") as given:
        given.seek(50)
        with opened(given) as source:
            assert source.size == 200
            assert content(source) == file.read_bytes()[50:]
        assert not given.closed and given.tell() == 250


@pytest.mark.parametrize("length", [0, 1, KEPT])
def test_what_is_small_is_whole_at_once(tmp_path: Path, length: int) -> None:
    (tmp_path / "small").write_bytes(b"x" * length)
    for given in (tmp_path / "small", io.BytesIO(b"x" * length), Pipe(b"x" * length, 7)):
        with opened(given) as source:
            assert source.is_whole and source.head == b"x" * length
            source.require_unchanged()


def test_a_pipe_has_no_size_and_asks_for_room_as_it_comes() -> None:
    with opened(Pipe(b"ab" * 500, 30)) as source:
        assert (source.size, len(source.head), source.is_whole) == (None, KEPT + 1, False)
        assert content(source) == b"ab" * 500


def test_a_named_pipe_can_be_put_by_its_path(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    writer = threading.Thread(target=(tmp_path / "fifo").write_bytes, args=(b"z" * 5000,))
    writer.start()
    with opened(tmp_path / "fifo") as source:
        assert source.size is None and content(source) == b"z" * 5000
    writer.join()


def test_what_is_unpacked_on_the_way_has_no_size(tmp_path: Path) -> None:
    """The file that it is unpacked from has one, and it is another."""
    with gzip.open(tmp_path / "packed", "wb") as packed:
        packed.write(bytes(10_000))
    with gzip.open(tmp_path / "packed", "rb") as given, opened(given) as source:
        assert source.size is None and content(source) == bytes(10_000)
        assert source.rewind() and content(source) == bytes(10_000)


def test_a_file_that_the_system_makes_up_says_nothing_and_has_something() -> None:
    with opened("/proc/self/maps") as source:
        assert source.size is None and len(content(source)) > KEPT


def test_what_can_be_read_again_is_rewound(file: Path) -> None:
    with open(file, "rb") as given:
        given.seek(10)
        with opened(given) as source:
            first = content(source)
            assert source.rewind() and content(source) == first == file.read_bytes()[10:]


def test_a_pipe_can_be_rewound_until_something_was_read_of_it() -> None:
    with opened(Pipe(b"x" * 500)) as source:
        assert source.rewind()
        pieces = source.pieces(lambda more: None)
        assert next(pieces) == b"x" * (KEPT + 1)
        assert source.rewind()
        next(pieces)
        assert not source.rewind()


def cut_off(file: Path) -> None:
    os.truncate(file, 200)


def written_to(file: Path) -> None:
    with open(file, "ab") as more:
        more.write(b"more")


def overwritten(file: Path) -> None:
    status = os.stat(file)
    with open(file, "r+b") as other:
        other.write(b"other")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


@pytest.mark.parametrize(
    ("change", "what"), [(cut_off, "cut off after 200 of 250"), (written_to, "longer"), (overwritten, "changed")]
)
def test_a_source_that_is_changed_while_it_is_read_is_refused(
    file: Path, change: Callable[[Path], None], what: str
) -> None:
    with opened(file) as source:
        change(file)
        with pytest.raises(SourceChanged, match=what) as caught:
            content(source)
    assert caught.value.source == str(file)


def test_a_small_source_that_becomes_longer_is_refused(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.write_bytes(b"x" * KEPT)
    with opened(small) as source:
        written_to(small)
        with pytest.raises(SourceChanged, match="longer"):
            source.require_unchanged()


class Text:
    def read(self, most: int) -> str:
        return "text"


class NotYet(io.RawIOBase):
    def read(self, most: int = -1) -> bytes | None:
        return None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (io.StringIO("text"), "binary mode"),
        (Text(), "binary mode"),
        (NotYet(), "blocking"),
        (b"the bytes themselves", "a path or a binary file"),
        (7, "a path or a binary file"),
    ],
)
def test_what_gives_no_bytes_is_refused(given: Any, why: str) -> None:
    with pytest.raises(Misuse, match=why):
        opened(given)


@contextlib.contextmanager
def descriptors() -> Iterator[None]:
    before = sorted(os.listdir("/proc/self/fd"))
    yield
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_no_descriptor_is_left(file: Path, tmp_path: Path) -> None:
    with descriptors():
        with opened(file) as source:
            content(source)
        with pytest.raises(IsADirectoryError):
            opened(tmp_path)
        with pytest.raises(FileNotFoundError):
            opened(tmp_path / "missing")
