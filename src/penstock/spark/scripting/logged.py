"""Owns how many messages of each queue a batch has, by what Spark logs of it before it runs: the offsets of our
sources, of this batch and of the one before it. Never looks at a message.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

VERSION = b"v1"
HEAD = 2  # lines before the offsets: the version, and what Spark says of the batch
NONE = b"-"  # of a source that has had nothing yet

Claims = dict[str, tuple[int, int]]  # by the UUIDs of queues: the last claim, and how many messages it has
NOWHERE = (0, 0)


def counts(checkpoint: Path, number: int) -> dict[str, int] | None:
    """By the UUIDs of queues; None where Spark's log does not say it."""
    end = _offsets(checkpoint, number)
    start = _offsets(checkpoint, number - 1) if number else [{} for _ in end or ()]
    if end is None or start is None or len(start) != len(end):
        return None
    found: dict[str, int] = {}
    for before, after in zip(start, end, strict=True):
        for queue, (claim, messages) in after.items():
            if messages and claim != before.get(queue, NOWHERE)[0]:
                found[queue] = found.get(queue, 0) + messages
    return found


def _offsets(checkpoint: Path, number: int) -> list[Claims] | None:
    """Of each source."""
    try:
        version, *lines = (checkpoint / "offsets" / str(number)).read_bytes().splitlines()
        return [_claims(line) for line in lines[HEAD - 1 :]] if version == VERSION else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # of a Spark that logs otherwise
        return None


def _claims(line: bytes) -> Claims:
    if line == NONE:
        return {}
    offset: dict[str, Any] = msgspec.json.decode(line)
    if "members" in offset:
        return {queue: (claim, messages) for queue, (_, claim, messages) in offset["members"].items()}
    return {offset["queue"]: (offset["claim"], offset["messages"])}
