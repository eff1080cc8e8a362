"""Owns what is written into the pipes of the synchronization component: requests, receipts, confirmations and their
confirmations, as bytes and back. Pure.

All integers are little-endian. A frame is written whole or not at all; whatever does not begin with its mark is of
somebody who does not know the protocol, and is dropped with all that was read with it.

    request     mark, client, channel, ranges (4 bytes each), serial (8), then offset and length (8 each) of each range
    answer      mark, error number (4 each), serial (8): a receipt, or a confirmation
    confconf    mark, client, channel (4 each), serial (8)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.store.fifos import FRAME_BYTES_MAX

_REQUEST = struct.Struct("<IIIIQ")
_RANGE = struct.Struct("<QQ")
_ANSWER = struct.Struct("<IIQ")
_CONFCONF = struct.Struct("<IIIQ")

# Their sizes and marks again, for the compiled loops.
_REQUEST_BYTES = _REQUEST.size
_RANGE_BYTES = _RANGE.size
_ANSWER_BYTES = _ANSWER.size
_CONFCONF_BYTES = _CONFCONF.size
_REQUESTED = int.from_bytes(b"PSRQ", "little")
_ANSWERED = int.from_bytes(b"PSAN", "little")
_CONFIRMED = int.from_bytes(b"PSCC", "little")

RANGES_MAX = (FRAME_BYTES_MAX - _REQUEST.size) // _RANGE.size
_RANGES_MAX = RANGES_MAX

Range = tuple[int, int]  # first byte, bytes; over all data files in their order
Who = tuple[int, int, int]  # client, channel, serial


if not cython.compiled:  # where they are compiled, those in syncframes.pxd go into every caller

    def _half(data: bytes, at: int) -> int:
        return int.from_bytes(data[at : at + 4], "little")

    def _word(data: bytes, at: int) -> int:
        return int.from_bytes(data[at : at + 8], "little")

    def _request(client: int, channel: int, serial: int, offset: int, length: int) -> bytes:
        return _REQUEST.pack(_REQUESTED, client, channel, 1, serial) + _RANGE.pack(offset, length)

    def _answer(serial: int, code: int) -> bytes:
        return _ANSWER.pack(_ANSWERED, code, serial)

    def _confconf(client: int, channel: int, serial: int) -> bytes:
        return _CONFCONF.pack(_CONFIRMED, client, channel, serial)


class Request:
    """Somebody waits for these bytes to be on disk."""

    __slots__ = ("channel", "client", "ranges", "serial")

    client: int
    channel: int
    serial: int
    ranges: tuple[Range, ...]

    def __init__(self, client: int, channel: int, serial: int, ranges: tuple[Range, ...]) -> None:
        self.client = client
        self.channel = channel
        self.serial = serial
        self.ranges = ranges

    def who(self) -> Who:
        return self.client, self.channel, self.serial

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Request) and self.who() == other.who() and self.ranges == other.ranges

    def __hash__(self) -> int:
        return hash(self.who())

    def __repr__(self) -> str:
        return f"Request{(*self.who(), self.ranges)}"


def request_frame(client: int, channel: int, serial: int, ranges: Sequence[Range]) -> bytes:
    """
    >>> [request] = Requests().take(request_frame(3, 0, 7, [(4096, 256), (8192, 512)]))
    >>> request.serial, request.ranges
    (7, ((4096, 256), (8192, 512)))
    """
    if len(ranges) == 1:
        offset, length = ranges[0]
        return _request(client, channel, serial, offset, length)
    if len(ranges) > RANGES_MAX:  # one that covers them all
        first = min([offset for offset, _ in ranges])
        return _request(client, channel, serial, first, max([offset + length for offset, length in ranges]) - first)
    head = _REQUEST.pack(_REQUESTED, client, channel, len(ranges), serial)
    return head + b"".join([_RANGE.pack(offset, length) for offset, length in ranges])


def answer_frame(serial: int, code: int) -> bytes:
    return _answer(serial, code)


def confconf_frame(client: int, channel: int, serial: int) -> bytes:
    return _confconf(client, channel, serial)


def has_answer(data: bytes, wanted: int) -> bool:
    """Whether the answer to this serial is among these. Each was written whole, so that a rest is nobody's.

    >>> has_answer(answer_frame(6, 0) + answer_frame(7, 5), 7), has_answer(answer_frame(6, 0), 7)
    (True, False)
    """
    at = 0
    while at + _ANSWER_BYTES <= len(data):
        if _word(data, at + 8) == wanted and _half(data, at) == _ANSWERED:
            return True
        at += _ANSWER_BYTES
    return False


class Requests:
    """Requests out of a stream of bytes: a read may end in the middle of one."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[Request]:
        if self._rest:
            data = self._rest + data
        found: list[Request] = []
        at = 0
        while len(data) - at >= _REQUEST_BYTES:
            count = _half(data, at + 12)
            if _half(data, at) != _REQUESTED or count < 1 or count > _RANGES_MAX:
                at = len(data)
                break
            end = at + _REQUEST_BYTES + count * _RANGE_BYTES
            if end > len(data):
                break
            ranges = []
            for first in range(at + _REQUEST_BYTES, end, _RANGE_BYTES):
                ranges.append((_word(data, first), _word(data, first + 8)))
            found.append(Request(_half(data, at + 4), _half(data, at + 8), _word(data, at + 16), tuple(ranges)))
            at = end
        self._rest = data[at:]
        return found


class Confirmations:
    """The same for confirmations of confirmations."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[Who]:
        if self._rest:
            data = self._rest + data
        found: list[Who] = []
        at = 0
        while len(data) - at >= _CONFCONF_BYTES:
            if _half(data, at) != _CONFIRMED:
                at = len(data)
                break
            found.append((_half(data, at + 4), _half(data, at + 8), _word(data, at + 12)))
            at += _CONFCONF_BYTES
        self._rest = data[at:]
        return found
