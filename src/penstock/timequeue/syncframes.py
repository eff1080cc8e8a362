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


class Answer(NamedTuple):
    serial: int
    code: int  # 0, or the error number of the sync that failed


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
        return _REQUEST.pack(_REQUESTED, client, channel, 1, serial) + _RANGE.pack(*ranges[0])
    if len(ranges) > RANGES_MAX:  # one that covers them all
        first = min(offset for offset, _ in ranges)
        ranges = [(first, max(offset + length for offset, length in ranges) - first)]
    head = _REQUEST.pack(_REQUESTED, client, channel, len(ranges), serial)
    return head + b"".join(_RANGE.pack(*some) for some in ranges)


def answer_frame(serial: int, code: int) -> bytes:
    return _ANSWER.pack(_ANSWERED, code, serial)


def confconf_frame(client: int, channel: int, serial: int) -> bytes:
    return _CONFCONF.pack(_CONFIRMED, client, channel, serial)


def answers(data: bytes) -> list[Answer]:
    """Those that are whole; each was written whole, so that the rest is nobody's."""
    whole = len(data) - len(data) % _ANSWER.size
    return [Answer(serial, code) for mark, code, serial in _ANSWER.iter_unpack(data[:whole]) if mark == _ANSWERED]


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
            ranges = tuple(_RANGE.iter_unpack(data[at + _REQUEST.size : end]))
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
