"""Owns the history of queues as a DataFrame: which files there are, and reading them in Spark's tasks, a file each.

Never opens a queue: it lists and reads files, takes no lock, and changes nothing.
"""

from __future__ import annotations

import functools
import logging
import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.codec import decode_meta
from penstock.errors import QueueNotFound
from penstock.manager.directory import FileDirectory, is_entry
from penstock.spark import finding, sessions
from penstock.store import gather as G
from penstock.store import outcomes as O
from penstock.timequeue import history as files

log = logging.getLogger("penstock")

COLUMNS = StructType(
    [
        StructField("queue", StringType(), nullable=False),
        StructField("id", StringType(), nullable=False),
        StructField("type", StringType()),
        StructField("key", StringType()),
        StructField("priority", IntegerType(), nullable=False),
        StructField("attempts", IntegerType(), nullable=False),
        StructField("enqueued_at", TimestampType(), nullable=False),
        StructField("deliver_at", TimestampType(), nullable=False),
        StructField("taken_at", TimestampType()),
        StructField("done_at", TimestampType(), nullable=False),
        StructField("waiting_s", DoubleType()),
        StructField("lateness_s", DoubleType()),
        StructField("service_s", DoubleType()),
        StructField("owner", StringType(), nullable=False),
        StructField("result", StringType(), nullable=False),
        StructField("reason", StringType()),
        StructField("error", StringType()),
    ]
)
FILES = StructType(
    [
        StructField("queue", StringType(), nullable=False),
        StructField("file", StringType(), nullable=False),
        StructField("size_bytes", LongType(), nullable=False),
    ]
)


def history(where: str | os.PathLike[str] | Any, spark: SparkSession | None = None) -> DataFrame:
    """What became of the messages of a queue, of a macro queue's members, or of all queues of a root: a row for each
    outcome that was written when this was called, and that is still there when it is read.

    ``where`` is a path, or an open queue or manager. ``waiting_s`` is from the put to this delivery, ``lateness_s``
    from when it was due, ``service_s`` from the delivery to the end; all are null where there was no delivery.
    """
    session = spark or SparkSession.getActiveSession() or sessions.session()
    found = _listed(queues_of(where))
    if not found:
        return session.createDataFrame([], COLUMNS)
    listed = session.createDataFrame(found, FILES).coalesce(1).repartition(len(found))
    return listed.mapInArrow(read_files, COLUMNS)


def queues_of(where: str | os.PathLike[str] | Any) -> list[str]:
    """The directories of the queues that are meant, each once."""
    if isinstance(where, str | os.PathLike):
        path = Path(where)
    else:
        path = where.path if hasattr(where, "path") else where.root
    if not path.is_dir():
        raise QueueNotFound(f"{path}: there is no queue, and no folder with queues")
    if is_entry(path):
        found = finding.queues_of(str(path))
    else:
        found = [each.place for each in FileDirectory(path).entries() if each.macro is None and "://" not in each.place]
        if not found:
            raise QueueNotFound(f"{path}: there is no queue in this folder")
    return sorted({os.path.realpath(each) for each in found})


def _listed(queues: list[str]) -> list[tuple[str, str, int]]:
    """Files and how long they are now: what is appended later is left out, so that a DataFrame stays what it is."""
    found = []
    for queue in queues:
        for file in files.files_of(queue):
            try:
                found.append((queue, str(file), file.stat().st_size))
            except FileNotFoundError:  # it has just become too old
                continue
    return found


# ---------------------------------------------------------------- in the tasks


def read_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For ``mapInArrow``: the outcomes in the files that are listed."""
    for batch in batches:
        for row in batch.to_pylist():
            yield from read_file(row["queue"], Path(row["file"]), row["size_bytes"])


def read_file(queue: str, file: Path, size_bytes: int) -> Iterator[pa.RecordBatch]:
    damage = O.Damage()
    for head, rows, heap in files.read_blocks(file, damage, size_bytes):
        yield _batch(queue, head, rows, heap)
    if damage.blocks:
        log.warning("%s: %d damaged blocks were passed over", file, damage.blocks)


def _batch(queue: str, head: files.Head, rows: memoryview, heap: memoryview) -> pa.RecordBatch:
    words: Any = np.frombuffer(rows, dtype="<u8").reshape(-1, O.ROW_WORDS)
    what = words[:, O.O_WHAT]
    results = (what >> np.uint64(O.RESULT_SHIFT)) & np.uint64(0xF)
    # Texts are shared by many rows: each is decoded once.
    places, which = np.unique(
        np.stack([words[:, O.O_TEXTS], results], axis=1), axis=0, return_inverse=True
    )  # result, too: it says what the text means
    said = [_said(head, int(where), int(result), heap) for where, result in places]
    which = which.reshape(-1)
    columns = {name: pa.array([each[name] for each in said], pa.string()).take(pa.array(which)) for name in said[0]}
    times_us = {name: words[:, at].astype(np.int64) for name, at in TIMES.items()}
    taken = times_us["taken_at"] > 0
    due_us = np.maximum(times_us["enqueued_at"], times_us["deliver_at"])
    own = columns.pop("id")
    ids = _ids(head.id_prefix, words)
    columns |= {
        "queue": pa.repeat(pa.scalar(queue, pa.string()), len(words)),
        "id": ids if own.null_count == len(own) else pa.compute.coalesce(own, ids),
        "priority": pa.array((what >> np.uint64(O.PRIORITY_SHIFT)).astype(np.int32)),
        "attempts": pa.array((what >> np.uint64(O.ATTEMPTS_SHIFT) & np.uint64(O.ATTEMPTS_MOST)).astype(np.int32)),
        "waiting_s": _seconds(times_us["taken_at"] - times_us["enqueued_at"], taken),
        "lateness_s": _seconds(times_us["taken_at"] - due_us, taken),
        "service_s": _seconds(times_us["done_at"] - times_us["taken_at"], taken),
    }
    for name, us in times_us.items():
        columns[name] = pa.array(us, mask=~taken if name == "taken_at" else None)
    schema = _arrow_schema()
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)


TIMES = {
    "enqueued_at": O.O_ENQUEUED_US,
    "deliver_at": O.O_DELIVER_US,
    "taken_at": O.O_TAKEN_US,
    "done_at": O.O_DONE_US,
}


@functools.cache
def _arrow_schema() -> pa.Schema:
    return to_arrow_schema(COLUMNS, timezone="UTC")


def _said(head: files.Head, where: int, result: int, heap: memoryview) -> dict[str, str | None]:
    meta, text = files.texts_of(where, heap)
    said = decode_meta(meta)
    owner, reason, error = files.told(result, text, head)
    name = O.RESULTS.get(result, "unknown")
    return {
        "id": said.o,
        "type": said.t,
        "key": said.k,
        "owner": owner,
        "result": name,
        "reason": reason,
        "error": error,
    }


def _seconds(us: Any, there: Any) -> pa.Array:
    """The wall clock may have been set back meanwhile: nothing took less than no time."""
    return pa.array(np.maximum(us, 0) / 1e6, mask=~there)


def _ids(prefix: str, words: Any) -> pa.Array:
    references: Any = np.zeros((len(words), G.REFERENCE_WORDS), dtype=np.uint64)
    references[:, G.F_SLOT] = words[:, O.O_WHAT] & np.uint64(0xFFFFFFFF)
    references[:, G.F_NUMBER] = words[:, O.O_NUMBER]
    data, ends = G.identify(prefix.encode(), array("Q", references.tobytes()), 0, len(words))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(words), buffers)
