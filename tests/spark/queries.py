"""A query's life without Spark: its stream reader, called as Spark calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.spark import PenstockDataSource
from penstock.spark import schema as S


class Query:
    """A query's life as Spark leads it: offsets go into a log, as JSON, before a batch runs."""

    def __init__(self, path: Path, log: list[str] | None = None, **options: Any) -> None:
        given = {"path": str(path), "receiver": "r", "receiverwait": "5"}
        given |= {name.lower(): str(value) for name, value in options.items()}
        self.reader = PenstockDataSource(given).streamReader(S.COLUMNS)
        self.log = [] if log is None else log

    def start(self) -> Any:
        return json.loads(self.log[-1]) if self.log else self.reader.initialOffset()

    def latest(self, limit: Any = None) -> Any:
        return self.reader.latestOffset(self.start(), limit or self.reader.getDefaultReadLimit())

    def rows(self, start: Any, end: Any) -> list[Any]:
        found = []
        for partition in self.reader.partitions(start, end):
            for batch in self.reader.read(partition):
                found += batch.to_pylist()
        return found

    def batch(self, limit: Any = None) -> list[bytes] | None:
        """The bodies of the next batch; None if there is none."""
        start, end = self.start(), self.latest(limit)
        if end == start:
            return None
        bodies = [row["body"] for row in self.rows(start, end)]
        self.log.append(json.dumps(end))
        return bodies

    def die(self) -> None:
        """As when its process is killed: nothing is acknowledged."""
        self.reader.stop()
