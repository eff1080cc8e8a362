"""Owns the checksum of records, which is that of zlib. The compiled core calls checksum.h instead, see checksum.pxd."""

import zlib
from typing import Any


def crc32(data: Any, size: int, start: int) -> int:
    """CRC-32 of the first ``size`` bytes, going on from ``start``."""
    return zlib.crc32(data[:size], start)
