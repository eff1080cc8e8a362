"""Bodies that are files: read as streams, in any order, and checked by the time the last byte was read."""

from __future__ import annotations

import io
import os
import random
import zlib
from pathlib import Path

import pytest

from penstock.errors import Corrupt
from penstock.store.bodyfiles import PIECE_BYTES, BodyReader

BODY = random.Random(7).randbytes(PIECE_BYTES * 2 + 777)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "body"
    path.write_bytes(BODY)
    return path


def opened(file: Path) -> BodyReader:
    return BodyReader(os.open(file, os.O_RDONLY), str(file), length=len(BODY), check=zlib.crc32(BODY))


def buffered(file: Path) -> io.BufferedReader:
    return io.BufferedReader(opened(file))


def test_it_reads_as_a_file_does(file: Path) -> None:
    with buffered(file) as body:
        assert body.readable() and body.seekable() and not body.writable()
        assert body.read() == BODY and body.read() == b"" and body.tell() == len(BODY)
        assert body.seek(0) == 0 and body.read(10) == BODY[:10]
        assert body.seek(5, os.SEEK_CUR) == 15 and body.read(3) == BODY[15:18]
        assert body.seek(-4, os.SEEK_END) == len(BODY) - 4 and body.read() == BODY[-4:]
        assert body.seek(9, os.SEEK_END) and body.read() == b""
        with pytest.raises(ValueError):
            body.seek(-1)
    with pytest.raises(ValueError):
        body.read(1)
    with opened(file) as raw, pytest.raises(ValueError, match="whence"):
        raw.seek(0, 9)


def test_it_can_be_read_in_any_order(file: Path) -> None:
    rng = random.Random(11)
    with buffered(file) as body:
        for _ in range(300):
            at = rng.randrange(len(BODY))
            size = rng.choice((1, 100, 70_000, PIECE_BYTES + 5))
            body.seek(at)
            assert body.read(size) == BODY[at : at + size]


def test_it_stays_readable_when_the_file_has_gone(file: Path) -> None:
    with buffered(file) as body:
        file.unlink()
        assert body.read() == BODY


@pytest.mark.parametrize("at", [0, PIECE_BYTES, len(BODY) - 1])
def test_a_damaged_byte_is_found_by_whoever_reads_the_last_one(file: Path, at: int) -> None:
    data = bytearray(BODY)
    data[at] ^= 1
    file.write_bytes(data)
    with buffered(file) as body:
        read = 0
        with pytest.raises(Corrupt) as caught:
            while piece := body.read(100_000):
                read += len(piece)
        assert read < len(BODY)
    assert (caught.value.path, caught.value.offset) == (str(file), 0)
    with opened(file) as body, pytest.raises(Corrupt):
        body.readall()
    with buffered(file) as body:
        body.seek(-1, os.SEEK_END)  # what was skipped is read for the sum
        with pytest.raises(Corrupt, match="checksum"):
            body.read()


def test_a_file_that_is_cut_off_while_it_is_read_is_found(file: Path) -> None:
    with buffered(file) as body:
        body.read(1)
        os.truncate(file, PIECE_BYTES)
        with pytest.raises(Corrupt, match="end of the file") as caught:
            body.read()
    assert (caught.value.path, caught.value.offset) == (str(file), PIECE_BYTES)
    with buffered(file) as body:
        body.seek(-1, os.SEEK_END)
        with pytest.raises(Corrupt, match="end of the file"):
            body.read()


def test_its_descriptor_is_closed_once(file: Path) -> None:
    body = opened(file)
    body.close()
    other = os.open(file, os.O_RDONLY)  # most likely the same number
    body.close()
    os.fstat(other)
    os.close(other)
