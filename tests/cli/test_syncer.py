"""``penstock syncer`` as a process."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.syncer import _Log
from penstock.errors import QueueInUse
from penstock.store import layout as L
from penstock.store import rig
from penstock.timequeue import syncasking
from tests.cli.conftest import Run, Start
from tests.fault.test_group_commit import Watch, until

END_S = 20.0


def heard(process: Any, event: str) -> dict[str, Any]:
    """The next line of that event."""
    for line in process.stdout:
        found: dict[str, Any] = json.loads(line)
        if found["event"] == event:
            return found
    raise AssertionError(f"it ended without {event}: {process.stderr.read()}")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client takes a component on a busy machine for one that does not answer."""
    monkeypatch.setattr(syncasking, "RECEIPT_S", END_S)
    monkeypatch.setattr(syncasking, "CONFIRM_S", END_S)


@pytest.fixture
def orders(tmp_path: Path) -> penstock.TimeQueue:
    return penstock.create(tmp_path / "root" / "orders", slots=100, data_bytes=1 << 16)


def no_sync(n: int) -> None:
    raise AssertionError("it was to be done by the synchronization component")


def put_without_a_sync(q: penstock.TimeQueue) -> None:
    rig.observe(Watch(no_sync))
    try:
        q.put(b"x")
    finally:
        rig.observe(None)


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_it_serves_a_queue_until_it_is_told_to_end(
    start: Start, orders: penstock.TimeQueue, number: int, code: int
) -> None:
    process = start("syncer", orders.path, "--json")
    assert heard(process, "serving")["queue"] == str(orders.path)
    put_without_a_sync(orders)
    process.send_signal(number)
    assert "1 requests by 1 syncs" in heard(process, "ended")["text"]
    assert process.wait(END_S) == code
    orders.put(b"by ourselves")
    assert orders.qsize() == 2
    orders.close()


def test_below_a_folder_it_serves_queues_that_come_later_and_lets_go_of_those_that_go(
    start: Start, orders: penstock.TimeQueue, tmp_path: Path
) -> None:
    process = start("syncer", tmp_path / "root", "--json")
    heard(process, "serving")
    with penstock.create(tmp_path / "root" / "later", slots=100, data_bytes=1 << 16) as later:
        assert heard(process, "serving")["queue"].endswith("later")
        put_without_a_sync(later)
        put_without_a_sync(orders)
    os.rename(tmp_path / "root" / "later", tmp_path / "elsewhere")
    assert heard(process, "ended")["queue"].endswith("later")
    put_without_a_sync(orders)
    orders.close()


def test_macro_queues_are_served_by_their_members(start: Start, run: Run, tmp_path: Path) -> None:
    with penstock.QueueManager(tmp_path / "root") as manager:
        manager.create("member")
        manager.create_macro("all", ["member"])  # it is looked at first
    process = start("syncer", tmp_path / "root", "--json")
    first = json.loads(process.stdout.readline())
    assert (first["event"], first["queue"]) == ("serving", str(tmp_path / "root" / "member"))
    process.send_signal(signal.SIGTERM)
    assert [json.loads(line)["event"] for line in process.stdout] == ["ended"]
    assert "a macro queue" in run("syncer", tmp_path / "root" / "all", code=3).stderr


def test_a_second_one_is_refused(start: Start, orders: penstock.TimeQueue, tmp_path: Path) -> None:
    first = start("syncer", orders.path, "--json")
    heard(first, "serving")
    second = start("syncer", orders.path)
    assert second.wait(END_S) == 5
    assert b"another synchronization component serves it" in second.stderr.read()
    third = start("syncer", tmp_path / "root", "--json")  # of a folder it may get some later
    assert "another synchronization component" in heard(third, "refused")["text"]
    first.kill()
    heard(third, "serving")
    orders.close()


def test_a_line_that_cannot_be_written_is_no_reason_to_end(start: Start, orders: penstock.TimeQueue) -> None:
    with open("/dev/full", "wb") as full:
        process = start("syncer", orders.path.parent, "--json", stdout=full)
    until(lambda: orders._mine().kernel.get(L.H_SYNCER) != 0 or process.poll() is not None, END_S)
    put_without_a_sync(orders)
    process.send_signal(signal.SIGTERM)
    assert process.wait(END_S) == 7  # only now: it says that its output was not taken
    orders.close()


def test_an_error_names_its_queue_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tell = _Log(json=False)
    tell("refused", tmp_path / "q", QueueInUse(str(tmp_path / "q"), "another one serves it"))
    tell("refused", tmp_path / "q", PermissionError(13, "Permission denied", str(tmp_path / "q" / "sync")))
    tell("failed", tmp_path / "q", OSError(24, "Too many open files"))
    assert capsys.readouterr().err.splitlines() == [
        f"penstock: {tmp_path}/q: in use: another one serves it",
        f"penstock: {tmp_path}/q/sync: Permission denied",
        f"penstock: {tmp_path}/q: Too many open files",
    ]


def test_a_queue_that_is_not_there_is_an_error(run: Run, tmp_path: Path) -> None:
    assert "there is no queue" in run("syncer", tmp_path / "nothing", code=3).stderr


@pytest.mark.parametrize(
    "words", [("--gather", "2s"), ("--idle", "1s"), ("--batch-requests", "0"), ("--batch-bytes", "0")]
)
def test_options_that_cannot_work_are_refused(run: Run, tmp_path: Path, words: tuple[str, str]) -> None:
    run("syncer", tmp_path, *words, code=2)


def test_one_that_was_killed_leaves_a_queue_that_works(start: Start, orders: penstock.TimeQueue) -> None:
    process = start("syncer", orders.path, "--json")
    heard(process, "serving")
    put_without_a_sync(orders)
    process.kill()
    process.wait()
    start_s = time.monotonic()
    orders.put(b"y")
    assert time.monotonic() - start_s < END_S and orders.qsize() == 2
    orders.close()
