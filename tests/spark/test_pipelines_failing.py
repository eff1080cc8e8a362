"""What stops ``penstock pipeline run`` is told in one line, with exit code 1, and no message is lost by it: a real Java
that fails for want of memory while outcomes are sent, and one that is killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock

pytest.importorskip("pyspark")

from penstock.spark import Pipeline
from tests.spark.archive import java_options
from tests.spark.processes import Started

pytestmark = pytest.mark.timeout(300)

COUNT = 64  # of 8 MiB each, once they are called: what Java is given here


def started(folder: Path, *arguments: str) -> Started:
    with penstock.QueueManager(folder / "queues") as manager:
        for name in ("in", "out"):
            manager.create(name, depth=2000, data_bytes=64 << 20, durability="relaxed")
        with manager.open("in") as queue:
            queue.put_many(list(range(COUNT)))
    function = "large" if arguments else "slow"
    (folder / "pipe.toml").write_text(
        'name = "pipe"\nroot = "queues"\nsource = "in"\n[options]\npartitions = 8\n'
        f'[[step]]\ncall = "tests.spark.pipesteps:{function}"\n[[step]]\nput = "out"\n'
    )
    command = [sys.executable, "-m", "penstock", "pipeline", "run", "pipe.toml", "--master", "local[2]", *arguments]
    return Started(command, folder / "said", JAVA_TOOL_OPTIONS=java_options())


def stopped(folder: Path, driver: Started) -> str:
    """What it said: a line, beside what Java says of its own threads. All messages are there still."""
    assert driver.process.wait(200) == 1, driver.said()
    of_java = ("Picked up JAVA_TOOL_OPTIONS", "Exception in thread ", "\tat ")
    (line,) = [each for each in driver.said().splitlines() if not each.startswith(of_java)]
    assert line.startswith("penstock: ")
    with penstock.open(folder / "queues/in") as queue:
        stats = queue.stats()
        assert (stats.waiting + stats.claimed, stats.acks) == (COUNT, 0)
    return line


def test_a_java_that_fails_ends_the_pipeline_in_a_line_and_every_message_comes_out_once(
    spark: Any, tmp_path: Path
) -> None:
    for name in ("memory", "killed"):
        (tmp_path / name).mkdir()
    drivers = [started(tmp_path / "memory", "--memory", "512m"), started(tmp_path / "killed")]
    try:
        short, killed = drivers
        called = tmp_path / "killed/called"
        killed.wait_for(called.exists, "the first call")
        os.kill(java_of(killed.pid), signal.SIGKILL)
        assert "Java has ended (signal 9)" in stopped(tmp_path / "killed", killed)
        said = stopped(tmp_path / "memory", short)
        assert "memory" in said and "--memory" in said
    finally:
        for driver in drivers:
            driver.kill()
    (tmp_path / "memory/small").touch()
    for name in ("memory", "killed"):
        Pipeline.load(tmp_path / name / "pipe.toml").run(spark)
        for queue, expected in (("in", []), ("out", list(range(COUNT)))):
            with penstock.open(tmp_path / name / "queues" / queue) as found:
                assert sorted(message.body for message in found.browse(state="all")) == expected


def java_of(pid: int) -> int:
    """The Java that a driver has started."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, rest = path.read_text().partition(" (")
        except OSError:
            continue
        name, _, fields = rest.rpartition(") ")
        if name == "java" and int(fields.split()[1]) == pid:
            return int(number)
    raise AssertionError(f"{pid} has no Java")
