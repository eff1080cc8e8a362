"""Messages in columns, as Spark's tasks stage them, of drafts as a program gives them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from penstock import Draft
from penstock.codec import encode_body, encode_meta
from penstock.store import layout as L
from penstock.timequeue.columns import Columns, Piece
from penstock.timequeue.puts import to_us

PIECE = 3  # messages of a piece: so few that most batches have several


def columns(messages: Sequence[Any], *, piece: int = PIECE) -> Columns:
    """Bodies or drafts, of which type, key, headers, priority and delivery time count."""
    drafts = [each if isinstance(each, Draft) else Draft(body=each) for each in messages]
    return Columns([_piece(drafts[start : start + piece]) for start in range(0, len(drafts), piece)])


def _piece(drafts: Sequence[Draft]) -> Piece:
    bodies = [encode_body(draft.body) for draft in drafts]
    metas = [
        encode_meta(draft.type, draft.key, draft.headers) if draft.type or draft.key or draft.headers else b""
        for draft in drafts
    ]
    times = [to_us(draft.deliver_at, None, 0) for draft in drafts]
    infos = [
        draft.priority | codec << L.CODEC_SHIFT | (0 if at_us else L.FLAG_READY) << L.FLAGS_SHIFT
        for draft, (codec, _), at_us in zip(drafts, bodies, times, strict=True)
    ]
    return Piece(*_joined([data for _, data in bodies]), *_joined(metas), _words("Q", infos), _words("Q", times))


def _joined(parts: Sequence[bytes]) -> tuple[memoryview, memoryview]:
    return memoryview(b"".join(parts)), _words("q", [0, *accumulate(map(len, parts))])


def _words(kind: str, values: Sequence[int]) -> memoryview:
    return memoryview(array(kind, values)).cast("B").cast(kind)
