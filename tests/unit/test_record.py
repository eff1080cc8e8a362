import random
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.store import layout as L
from penstock.store import record

SIGNATURE = 0x0123456789ABCDEF


def built(meta: bytes = b"", body: bytes = b"hello", unit: int = 9, info: int = 0) -> bytes:
    check = zlib.crc32(body, zlib.crc32(meta))
    return record.build(SIGNATURE, 77, 1000, 2000, 5, 3, 2, info, meta, body, check, unit)


def test_what_was_built_can_be_read() -> None:
    info = 13 | 2 << L.CODEC_SHIFT | L.FLAG_READY << L.FLAGS_SHIFT
    data = built(b"meta", b"body" * 100, info=info)
    parts = record.Parts()
    assert parts.read_bytes(data + b"rest of the unit", SIGNATURE, 77, 5, 9)
    assert parts.fault is None
    assert (parts.enqueued_us, parts.flags, parts.priority, parts.codec) == (1000, L.FLAG_READY, 13, 2)
    assert (parts.meta, parts.body) == (b"meta", b"body" * 100)


def test_the_header_has_the_documented_layout() -> None:
    data = built(b"me", b"body")
    fields = L.RECORD.unpack_from(data)
    assert fields[:11] == (SIGNATURE, 77, 1000, 2000, 5, 3, 2, 4, 2, 0, 0)
    assert data[L.RECORD_BYTES :] == b"mebody"
    check = zlib.crc32(data[: L.RECORD_HEAD.size], zlib.crc32(b"mebody") ^ 9)
    assert fields[11] == check


def test_a_200_byte_body_fits_one_unit() -> None:
    assert len(built(body=bytes(200))) == L.UNIT_BYTES


@pytest.mark.parametrize("sizes", [range(700), range(4090, 4200), [100_000]])
def test_the_checksum_is_crc32(sizes: Sequence[int]) -> None:
    random_bytes = random.Random(7).randbytes
    for size in sizes:
        data = random_bytes(size)
        assert record.crc32(data) == zlib.crc32(data), size
        assert record.crc32(data, 12345) == zlib.crc32(data, 12345), size


def test_the_factors_that_fold_the_checksum_are_powers_of_x() -> None:
    """From checksum.h: by how many bits a factor moves, less or more by the width of the checksum."""

    def power_of_x(exponent: int) -> int:
        remainder = 1
        for _ in range(exponent):
            remainder <<= 1
            if remainder >> 32:
                remainder ^= 0x104C11DB7
        return int(f"{remainder:032b}"[::-1], 2) << 1

    header = Path(record.__file__).with_name("checksum.h").read_text()
    factors = {int(high, 16): int(low, 16) for high, low in re.findall(r"_mm_set_epi64x\((\w+), (\w+)\)", header)}
    by_bytes = {power_of_x(bits - 32): power_of_x(bits + 32) for bits in (8 * n for n in (16, 32, 48, 64, 128, 256))}
    quotient, remainder = 0, 1 << 64  # x to the 64th, divided by the polynomial
    for bit in range(32, -1, -1):
        if remainder >> (bit + 32) & 1:
            quotient |= 1 << bit
            remainder ^= 0x104C11DB7 << bit
    reverse = {number: int(f"{number:033b}"[::-1], 2) for number in (quotient, 0x104C11DB7)}
    by_four = {0: power_of_x(64)}
    assert factors == {**by_bytes, **by_four, reverse[quotient]: reverse[0x104C11DB7]}


def test_every_flipped_bit_is_found() -> None:
    data = built(b"m", b"some body")
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert record.fault(bytes(damaged), SIGNATURE, 77, 5, 9) is not None, bit


def test_a_record_at_another_place_is_not_one() -> None:
    """So a body that is a piece of this very data file does not come back as messages."""
    data = built(unit=9)
    assert record.fault(data, SIGNATURE, 77, 5, 9) is None
    for unit in (8, 10, 9 + (1 << 20), 9 + (1 << 32)):
        assert record.fault(data, SIGNATURE, 77, 5, unit) is not None


def test_every_truncation_is_found() -> None:
    data = built(b"m", b"some body")
    for size in range(len(data)):
        assert record.fault(data[:size], SIGNATURE, 77, 5, 9) is not None


def test_another_queue_s_record_is_not_ours() -> None:
    assert record.fault(built(), SIGNATURE ^ 1, 77, 5, 9) == "no signature"
    assert record.fault(built(), SIGNATURE, 78, 5, 9) == "message 77 of slot 5"
