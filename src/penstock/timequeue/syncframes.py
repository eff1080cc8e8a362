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
from typing import NamedTuple

from penstock.store.fifos import FRAME_BYTES_MAX

_REQUEST = struct.Struct("<4sIIIQ")
_REQUEST_OF_ONE = struct.Struct("<4sIIIQQQ")
_RANGE = struct.Struct("<QQ")
_ANSWER = struct.Struct("<4sIQ")
_CONFCONF = struct.Struct("<4sIIQ")

_REQUESTED = b"PSRQ"
_ANSWERED = b"PSAN"
_CONFIRMED = b"PSCC"

RANGES_MAX = (FRAME_BYTES_MAX - _REQUEST.size) // _RANGE.size

Range = tuple[int, int]  # first byte, bytes; over all data files in their order


class Request(NamedTuple):
    """Somebody waits for these bytes to be on disk."""

    client: int
    channel: int
    serial: int
    ranges: tuple[Range, ...]


class Confirmed(NamedTuple):
    """The confirmation was read."""

    client: int
    channel: int
    serial: int


def request_frame(client: int, channel: int, serial: int, ranges: Sequence[Range]) -> bytes:
    """
    >>> [request] = Requests().take(request_frame(3, 0, 7, [(4096, 256), (8192, 512)]))
    >>> request.serial, request.ranges
    (7, ((4096, 256), (8192, 512)))
    """
    if len(ranges) == 1:
        return _REQUEST_OF_ONE.pack(_REQUESTED, client, channel, 1, serial, *ranges[0])
    if len(ranges) > RANGES_MAX:  # one that covers them all
        first = min(offset for offset, _ in ranges)
        ranges = [(first, max(offset + length for offset, length in ranges) - first)]
    head = _REQUEST.pack(_REQUESTED, client, channel, len(ranges), serial)
    return head + b"".join(_RANGE.pack(*some) for some in ranges)


def answer_frame(serial: int, code: int) -> bytes:
    return _ANSWER.pack(_ANSWERED, code, serial)


def confconf_frame(client: int, channel: int, serial: int) -> bytes:
    return _CONFCONF.pack(_CONFIRMED, client, channel, serial)


def has_answer(data: bytes, wanted: int) -> bool:
    """Whether the answer to this serial is among these. Each was written whole, so that a rest is nobody's.

    >>> has_answer(answer_frame(6, 0) + answer_frame(7, 5), 7), has_answer(answer_frame(6, 0), 7)
    (True, False)
    """
    for at in range(0, len(data) - _ANSWER.size + 1, _ANSWER.size):
        mark, _, serial = _ANSWER.unpack_from(data, at)
        if mark == _ANSWERED and serial == wanted:
            return True
    return False


class Requests:
    """Requests out of a stream of bytes: a read may end in the middle of one."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[Request]:
        data = self._rest + data
        found = []
        at = 0
        while len(data) - at >= _REQUEST.size:
            mark, client, channel, count, serial = _REQUEST.unpack_from(data, at)
            if mark != _REQUESTED or not 1 <= count <= RANGES_MAX:
                at = len(data)
                break
            end = at + _REQUEST.size + count * _RANGE.size
            if end > len(data):
                break
            first = at + _REQUEST.size
            if count == 1:
                ranges: tuple[Range, ...] = (_RANGE.unpack_from(data, first),)
            else:
                ranges = tuple(_RANGE.iter_unpack(data[first:end]))
            found.append(Request(client, channel, serial, ranges))
            at = end
        self._rest = data[at:]
        return found


class Confirmations:
    """The same for confirmations of confirmations."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[Confirmed]:
        data = self._rest + data
        whole = len(data) - len(data) % _CONFCONF.size
        found: list[Confirmed] = []
        for mark, client, channel, serial in _CONFCONF.iter_unpack(data[:whole]):
            if mark != _CONFIRMED:
                self._rest = b""
                return found
            found.append(Confirmed(client, channel, serial))
        self._rest = data[whole:]
        return found
