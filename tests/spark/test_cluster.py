"""Executors that are processes of their own, and killed: in a local cluster, and with a master and workers."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("pyspark")
import pyspark

from penstock.spark import java
from tests.spark import steps
from tests.spark.archive import java_options
from tests.spark.cluster import MESSAGES, ROWS
from tests.spark.processes import Started
from tests.spark.thoroughness import SLOW

pytestmark = pytest.mark.timeout(600)  # Spark on a busy machine takes its time


@pytest.fixture
def running(needs_java: None) -> Iterator[ExitStack]:
    """What is started here is ended, whatever happens."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def queues(queue: Any) -> tuple[Any, Any]:
    source, target = (queue(name, slots=256, data_bytes=1 << 20) for name in ("in", "out"))
    return source, target


def executor_of(worker: int) -> int:
    """The Java process that has this Python process as a worker."""
    return next(each.pid for each in psutil.Process(worker).parents() if "java" in each.name())


def kill_executor_at(step: str, batch: int, driver: Started, folder: Path) -> int:
    steps.stop_at(folder, step, batch)
    worker = driver.wait_for(lambda: steps.stopped(folder), step)
    executor = executor_of(worker)
    assert "CoarseGrainedExecutorBackend" in " ".join(psutil.Process(executor).cmdline())
    os.kill(executor, signal.SIGKILL)
    return executor


def start_driver(folder: Path, master: str, running: ExitStack) -> Started:
    driver = Started([sys.executable, "-m", "tests.spark.cluster", str(folder), master], folder / "said.driver")
    running.callback(driver.kill)
    return driver


def assert_once(folder: Path, source: Any, target: Any) -> None:
    """Batch write, batch read and stream all had each message once."""
    written = json.loads((folder / "found").read_text())
    assert Counter(body for _, body in written) == Counter(str(i) for i in range(MESSAGES))
    sent = Counter((message.headers["from"], message.data.decode()) for message in target.browse())
    assert sent == Counter((id_, body) for id_, body in written)
    assert source.qsize() == 0 and source.stats().claimed == 0 and source.claims() == []
    assert list((target.path / "staging").iterdir()) == []


def test_executors_are_killed_while_they_read_and_while_they_stage(
    queues: Any, running: ExitStack, tmp_path: Path
) -> None:
    """Their tasks are tried again by others, and each message is sent once."""
    driver = start_driver(tmp_path, "local-cluster[2,1,1024]", running)
    killed = [kill_executor_at(step, batch, driver, tmp_path) for batch, step in enumerate(("reading", "staging"))]
    assert len(set(killed)) == 2
    driver.wait()
    assert_once(tmp_path, *queues)
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert {(batch, part) for batch, part, _ in rows} == {(batch, part) for batch in range(3) for part in range(2)}
    assert len(rows) > 2 * MESSAGES // ROWS  # something was read again


@pytest.mark.skipif(not SLOW, reason="starts six Java processes; PENSTOCK_SLOW=1 runs it, as .ci/run does")
def test_a_stream_through_a_master_and_two_workers(queues: Any, running: ExitStack, tmp_path: Path) -> None:
    master = start_master(tmp_path, running)
    driver = start_driver(tmp_path, master, running)
    kill_executor_at("staged", 1, driver, tmp_path)
    driver.wait()
    assert_once(tmp_path, *queues)


def start_master(folder: Path, running: ExitStack) -> str:
    """A master and two workers on loopback, as processes; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        "JAVA_HOME": java.home_for_spark(java.find()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": java_options(),
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
    }
    where = ["--host", "127.0.0.1", "--webui-port", "0"]
    address = f"spark://127.0.0.1:{port}"
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    commands = {"master": ["org.apache.spark.deploy.master.Master", *where, "--port", f"{port}"]}
    for name in ("worker-1", "worker-2"):
        limits = ["--cores", "1", "--memory", "600m", "--work-dir", str(folder / name)]
        commands[name] = ["org.apache.spark.deploy.worker.Worker", *where, *limits, address]
    started = {}
    for name, command in commands.items():
        started[name] = Started([spark_class, *command], folder / f"said.{name}", **environment)
        running.callback(started[name].kill)
    for name in ("worker-1", "worker-2"):
        started[name].wait_for(lambda name=name: "Successfully registered" in started[name].said(), "its master")
    return address
