"""Owns the hashes by which types and keys are found: 64 bits of each, from the meta of a record, mixed with the queue's
secret.

Reads as much of MessagePack as the first fields of a meta need. Never decides by a hash alone: whoever finds a message
by one compares the text. 0 means that there is no type, or no key.
"""

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from typing import Any

from penstock.store import layout as L

_TYPE = ord("t")
_KEY = ord("k")


def hash_of(text: str, secret: int, is_key: bool) -> int:
    """The hash of a type or key as a program gives it."""
    data = text.encode()
    if cython.compiled:
        return _hash(cython.cast("const unsigned char*", data), 0, len(data), _seed(secret, is_key))
    return _hash(data, 0, len(data), _seed(secret, is_key))


def _seed(secret: int, is_key: bool) -> int:
    return secret ^ (L.MIX_SLOT if is_key else L.MIX_STATE)


def _hash(data: Any, start: int, end: int, seed: int) -> int:
    """Eight bytes at a time, multiplied and folded; never 0."""
    mixed = (seed ^ ((end - start) * L.MIX_NUMBER)) & L.MASK64
    at = start
    while at < end:
        word = 0
        shift = 0
        while shift < 64 and at < end:
            byte = data[at]  # a full word in the compiled core, where it is shifted
            word |= byte << shift
            shift += 8
            at += 1
        mixed = ((mixed ^ word) * L.MIX_HASH) & L.MASK64
        mixed ^= mixed >> 32
    mixed = (mixed * L.MIX_NUMBER) & L.MASK64
    mixed ^= mixed >> 29
    return mixed if mixed != 0 else 1


class Hashes:
    """Type and key of one meta."""

    def __init__(self, secret: int) -> None:
        self.secret = secret
        self.type_hash = 0
        self.key_hash = 0

    def read(self, meta: bytes) -> bool:
        """Whether there is a type or a key; then their hashes are known."""
        if cython.compiled:
            return self.read_at(cython.cast("const unsigned char*", meta), len(meta))
        return self.read_at(meta, len(meta))

    def read_at(self, data: Any, size: int) -> bool:
        """The same of a meta that, in the compiled core, is a pointer."""
        self.type_hash = 0
        self.key_hash = 0
        self._read(data, size)
        return self.type_hash != 0 or self.key_hash != 0

    def _read(self, data: Any, size: int) -> None:
        """Type and key are strings, under names of one character; with the first field that is neither it ends."""
        if size >= 1 and data[0] & 0xF0 == 0x80:
            fields = data[0] & 0xF
            at = 1
        elif size >= 3 and data[0] == 0xDE:
            fields = data[1] * 256 + data[2]
            at = 3
        else:
            return
        while fields > 0 and at + 3 <= size and data[at] == 0xA1:
            fields -= 1
            name = data[at + 1]
            kind = data[at + 2]
            if kind & 0xE0 == 0xA0:
                length = kind & 0x1F
                at += 3
            elif kind == 0xD9 and at + 4 <= size:
                length = data[at + 3]
                at += 4
            elif kind == 0xDA and at + 5 <= size:
                length = data[at + 3] * 256 + data[at + 4]
                at += 5
            else:
                return
            if at + length > size:
                return
            if name == _TYPE:
                self.type_hash = _hash(data, at, at + length, _seed(self.secret, False))
            elif name == _KEY:
                self.key_hash = _hash(data, at, at + length, _seed(self.secret, True))
            at += length
