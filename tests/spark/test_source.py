"""The data source as Spark makes it, without Spark: which options are refused at once, and whose the path is."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import Misuse, QueueNotFound
from tests.conftest import Queues

pytest.importorskip("pyspark")
import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from penstock.spark import PenstockDataSource


@pytest.mark.parametrize(
    "options, kind, words",
    [
        ({}, Misuse, "option path is missing: give path, or root and queue; the options of penstock are path"),
        ({"root": "."}, Misuse, "root together name no queue: give path, or root and queue"),
        ({"queue": "q", "path": "q"}, Misuse, "path and queue together name no queue"),
        ({"root": ".", "queue": "q", "path": "q"}, Misuse, "path and queue and root together name no queue"),
        ({"root": ".", "queue": ""}, Misuse, "option queue must not be empty"),
        ({"root": "none", "queue": "q"}, QueueNotFound, "/none: there is no such folder"),
        ({"root": ".", "queue": "q"}, QueueNotFound, "q: there is no such queue"),
        ({"path": "none"}, QueueNotFound, "/none: there is no queue here"),
        ({"path": "none", "colour": "red"}, Misuse, "unknown option colour"),
        ({"path": "none", "MAXROWS": "many"}, Misuse, "option maxRows must be a whole number"),
        ({"path": "none", "timeout": "soon"}, Misuse, "option timeout must be a number of seconds"),
    ],
)
def test_what_is_wrong_in_any_use_is_refused_when_spark_makes_the_source(
    options: dict[str, str], kind: type[Exception], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=words):
        PenstockDataSource(options)


def test_a_relative_path_is_that_of_the_driver(queue: Queues, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An executor, which unpickles the writers, has another working directory."""
    q = queue()
    monkeypatch.chdir(q.path.parent)
    source = PenstockDataSource({"path": q.path.name})
    columns = StructType([StructField("body", StringType())])
    job, sink = source.writer(columns, overwrite=False), source.streamWriter(columns, overwrite=False)
    monkeypatch.chdir(tmp_path)
    body = [pa.RecordBatch.from_arrays([pa.array(["x"])], names=["body"])]
    job.commit([job.write(iter(body))])
    sink.commit([sink.stage(iter(body), "query", 0, 0, 0)], 0)
    assert q.qsize() == 2
