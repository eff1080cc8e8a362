"""Owns a message as the functions of a pipeline see it. Never needs Spark's libraries."""

from __future__ import annotations

from typing import Any

from penstock.spark.scripting.rowmessage import RowMessage


class PipelineMessage(RowMessage):
    """A message: ``body``, ``data`` (its bytes), ``type``, ``key``, ``headers``, ``priority``, ``attempts``, ``id``,
    ``queue``, ``enqueued_at``, ``deliver_at``; and ``parsed``, by the names of columns that were parsed."""

    __slots__ = ("parsed",)

    parsed: dict[str, Any]

    def __repr__(self) -> str:
        return f"<PipelineMessage {self.id} type={self.type!r} key={self.key!r}>"
