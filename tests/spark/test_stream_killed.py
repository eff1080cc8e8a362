"""The driver is killed at each step of a batch: the same rows are seen again, and every message in the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import penstock

pytest.importorskip("pyspark")

from .killing import run

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = 100


def kill_at(step: str, at: int, folder: Path) -> None:
    """Start the query in a process of its own, and kill it and its Java when it gets there."""
    mark = folder / "mark"
    core = str(Path(penstock.__file__).parents[1])
    environment = {
        **os.environ,
        "PYTHONPATH": f"{core}{os.pathsep}{ROOT}",
        "PENSTOCK_KILL": json.dumps({"step": step, "at": at, "mark": str(mark)}),
    }
    command = [sys.executable, "-m", "tests.spark.killing", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as driver:
        try:
            deadline = time.monotonic() + 120
            while not mark.exists():
                assert driver.poll() is None and time.monotonic() < deadline, f"it did not get to {step}"
                time.sleep(0.02)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)  # Spark's Python workers have a group of their own, and live on


@pytest.mark.parametrize("step, at", [("claimed", 2), ("reading", 2), ("sunk", 1), ("committed", 1)])
def test_the_driver_is_killed(step: str, at: int, spark: Any, queue: Any, tmp_path: Path) -> None:
    q = queue(slots=256, data_bytes=1 << 20)
    ids = list(q.put_many([b"%d" % i for i in range(MESSAGES)]))
    kill_at(step, at, tmp_path)
    open_claims = [(claim.claim, claim.messages) for claim in q.claims()]
    assert open_claims[-1] == (2, 40)
    run(spark, tmp_path)
    runs = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    batches: dict[int, list[str]] = {}
    for batch, rows in runs:
        assert sorted(batches.setdefault(batch, rows)) == sorted(rows), f"batch {batch} has other rows"
    assert sorted(chain.from_iterable(batches.values())) == sorted(ids)
    assert len(runs) - len(batches) == (1 if step == "sunk" else 0)  # a sink that knows its batches sees no other
    assert q.qsize() == 0 and q.stats().claimed == 0 and q.claims() == []
