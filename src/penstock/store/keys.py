"""Owns the keys by which puts are remembered: of a dedup id, and of where a moved message comes from. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

MOVE_KEPT_US = 30 * 86_400 * 1_000_000  # how long a move that was cut short is known to the queue that it went to


def dedup_key(dedup_id: str, signature: int) -> int:
    return dedup_keys(signature)(dedup_id)


def dedup_keys(signature: int) -> Callable[[str], int]:
    """``dedup_key`` of one queue, for many."""
    return _keys(b"dedup ", signature)


def origin_key(origin: str, signature: int) -> int:
    """``origin`` is what ``origin_of`` says."""
    return _keys(b"moved ", signature)(origin)


def origin_of(uuid: str, number: int) -> str:
    """Where a message comes from: no other has this, ever."""
    return f"{uuid}-{number:x}"


def _keys(kind: bytes, signature: int) -> Callable[[str], int]:
    begun = hashlib.blake2b(kind, digest_size=8, key=signature.to_bytes(8, "big"))

    def key(text: str) -> int:
        """64 bits that nobody without the queue's secret can choose, and not 0."""
        hashed = begun.copy()
        hashed.update(text.encode())
        return int.from_bytes(hashed.digest(), "little") or 1

    return key
