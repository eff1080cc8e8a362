"""Owns what the page is told of a message: all that it says of itself, and its body as far as it can be shown. Pure but
for reading the body, and never more than a part of a large one.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from penstock.codec import CODEC_PICKLE, CODEC_STR
from penstock.message import Message

PREVIEW_CHARS = 160
SHOWN_BYTES = 64 << 10  # of a body as text: what a person may read, and a browser shows at once
HEX_BYTES = 4 << 10
HEX_ROW = 16


def summary(message: Message, here: str) -> dict[str, Any]:
    """A line of a list. ``here`` is the id by which it is found in this queue."""
    return {
        "id": message.id,
        "here": here,
        "state": message.state,
        "priority": message.priority,
        "type": message.type,
        "key": message.key,
        "attempts": message.attempts + message.attempts_before,
        "body_bytes": message.body_bytes,
        "enqueued_at": message.enqueued_us / 1e6,
        "deliver_at": message.deliver_us / 1e6,
        "lease_ends_at": message.lease_us / 1e6 or None,
        "reason": message.reason,
        "error": message.error,
        "came_from": message.came_from,
        "preview": preview(message),
    }


def details(message: Message, here: str) -> dict[str, Any]:
    """All of it."""
    return {
        **summary(message, here),
        "headers": message.headers,
        "last_attempt_at": message.last_attempt_us / 1e6 or None,
        "expires_at": _seconds(message.expires_at),
        "dedup_id": message.dedup_id,
        "max_attempts": message.max_attempts,
        "own_lease_s": message.own_lease_s,
        "history": [{"at": at.timestamp(), "error": text} for at, text in message.history],
        "body": shown(*_part(message, SHOWN_BYTES), message._codec),
    }


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _part(message: Message, most: int) -> tuple[bytes, int]:
    """The beginning of the body, and how long it is."""
    with message.open() as file:
        return file.read(most), message.body_bytes


def preview(message: Message) -> str:
    if message.body_bytes > SHOWN_BYTES:  # it may be a file: a list is not to open hundreds of them
        return ""
    if message._codec == CODEC_PICKLE:
        return ""
    text = _text(message.data[: PREVIEW_CHARS * 4], cut=True)
    return "" if text is None else " ".join(text[:PREVIEW_CHARS].split())


def shown(data: bytes, body_bytes: int, codec: int) -> dict[str, Any]:
    """A body for people: ``text`` if it is one, indented if it is JSON, and always its first bytes as ``hex``.

    >>> shown(b'{"a":1}', 7, 2)["text"]
    '{\\n  "a": 1\\n}'
    >>> body = shown(b"\\xff\\x00", 2, 0)
    >>> body["text"], body["hex"]
    (None, '00000000  ff 00                                             |..|')
    """
    whole = len(data) == body_bytes
    text = None if codec == CODEC_PICKLE else _text(data, cut=not whole)
    pretty = _indented(text) if text is not None and whole and codec != CODEC_STR else None
    kind = "pickle" if codec == CODEC_PICKLE else "json" if pretty is not None else "bytes" if text is None else "text"
    return {
        "kind": kind,
        "text": text if pretty is None else pretty,
        "hex": hex_dump(data[:HEX_BYTES]),
        "bytes": body_bytes,
        "shown_bytes": len(data),
        "hex_bytes": min(len(data), HEX_BYTES),
    }


def _text(data: bytes, *, cut: bool) -> str | None:
    """The text that these bytes are; None if they are none. ``cut``: the last character may be half."""
    for end in range(len(data), max(len(data) - (4 if cut else 1), -1), -1):
        try:
            text = data[:end].decode()
        except UnicodeDecodeError:
            continue
        return None if any(ord(char) < 32 and char not in "\t\n\r\f" for char in text) else text
    return None


def _indented(text: str) -> str | None:
    """If it is an object or a list in JSON. A number alone may as well be a text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def hex_dump(data: bytes) -> str:
    lines = []
    for at in range(0, len(data), HEX_ROW):
        row = data[at : at + HEX_ROW]
        half = HEX_ROW // 2
        cells = f"{row[:half].hex(' '):<23}  {row[half:].hex(' '):<23}"
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {cells}  |{letters}|")
    return "\n".join(lines)
