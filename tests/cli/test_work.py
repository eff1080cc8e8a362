"""``penstock work``: real processes that are stopped, killed, over their time, and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli import exits
from penstock.cli.work import Pool

from .conftest import END_S, Run, Start

JOBS = """
import asyncio, multiprocessing, os, signal, subprocess, sys, time
from pathlib import Path

HERE = Path(__file__).parent

def note(message):
    with open(HERE / "notes", "a") as notes:
        notes.write(f"{message.body}\\n")

def shout(message):
    print("shouted", message.body)
    note(message)

async def gently(message):
    await asyncio.sleep(0)
    note(message)

def fail_first(message):
    note(message)
    if message.attempts == 1:
        raise ValueError("not yet")

def die_first(message):
    note(message)
    if message.attempts == 1:
        os.kill(os.getpid(), signal.SIGKILL)

def hang_first(message):
    note(message)
    if message.attempts == 1:
        time.sleep(60)

def slowly(message):
    (HERE / f"began-{message.body}").touch()
    while not (HERE / "go").exists():
        time.sleep(0.01)
    note(message)

def start_another(message):
    if message.attempts == 1:
        child = subprocess.Popen(["sleep", "60"])
        (HERE / "another").write_text(str(child.pid))
        child.wait()

def leave(message):
    note(message)
    sys.exit(3)

def leave_quietly(message):
    note(message)
    if message.attempts == 1:
        sys.exit(0)

def leave_answered(message):
    note(message)
    message.ack()
    sys.exit(0)

def start_a_fork(message):
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    child.terminate()
    child.join(10)
    (HERE / "ended").write_text(str(child.exitcode))
    child.kill()

def double(message):
    return {"twice": 2 * message.body}

def answer_nonsense_first(message):
    return object() if message.attempts == 1 else "sense"

def raise_much(message):
    raise ValueError("x" * 1_000_000)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + END_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def notes(folder: Path) -> list[str]:
    path = folder / "notes"
    return path.read_text().split() if path.exists() else []


def fill(path: Path, count: int) -> None:
    with penstock.open(path) as q:
        q.put_many([f"m{n}" for n in range(count)])


def left(path: Path) -> tuple[int, int, int]:
    with penstock.open(path) as q:
        stats = q.stats()
        return stats.waiting, stats.pending, stats.acks


def events(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_a_pool_works_until_the_queue_is_empty(start: Start, small: Path, folder: Path) -> None:
    fill(small, 60)
    process = start("work", small, "jobs:shout", "--processes", "3", "--prefetch", "5", "--until-empty", "--json")
    out, error = process.communicate(timeout=END_S)
    assert process.returncode == exits.OK
    assert sorted(notes(folder)) == sorted(f"m{n}" for n in range(60))
    assert left(small) == (0, 0, 60)
    done = [event for event in events(out) if event["event"] == "done"]
    assert len({event["id"] for event in done}) == 60
    assert error.count(b"shouted") == 60, "with --json standard output is the log's"


def test_a_pool_takes_only_the_types_and_keys_that_it_is_told(run: Run, small: Path, folder: Path) -> None:
    with penstock.open(small) as q:
        q.put_many([penstock.Draft(body=f"m{n}", type="abc"[n % 3], key="xy"[n % 2]) for n in range(12)])
    run("work", small, "jobs:shout", "--until-empty", "--type", "a", "--type", "b", "--key", "y")
    assert notes(folder) == ["m1", "m3", "m7", "m9"]
    run("work", small, "jobs:gently", "--once", "--type", "c")
    assert notes(folder)[4:] == ["m2"]
    run("work", small, "jobs:gently", "--once", "--type", "nobody's", code=exits.NOTHING)
    assert left(small) == (7, 0, 5)


def test_once_is_one_message_and_says_when_there_is_none(run: Run, small: Path, folder: Path) -> None:
    fill(small, 2)
    run("work", small, "jobs:gently", "--once")
    assert notes(folder) == ["m0"]
    assert left(small) == (1, 0, 1)
    run("work", small, "jobs:gently", "--once")
    run("work", small, "jobs:gently", "--once", code=exits.NOTHING)


def test_a_message_whose_function_raised_is_logged_and_tried_again_later(
    start: Start, small: Path, folder: Path
) -> None:
    fill(small, 2)
    process = start("work", small, "jobs:fail_first", "--retry-delay", "200ms")
    until(lambda: len(notes(folder)) == 4)
    until(lambda: left(small) == (0, 0, 2))
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=END_S)
    assert process.returncode == exits.TERMINATED
    assert error.count(b"ValueError: not yet") == 4, "in a line each, and with the traceback"
    assert notes(folder) == ["m0", "m1", "m0", "m1"]


@pytest.mark.parametrize(("options", "waits_s"), [([], 600), (["--retry-delay", "2h"], 7200)])
def test_a_message_whose_function_raised_waits_for_its_backoff_unless_a_delay_is_given(
    start: Start, tmp_path: Path, folder: Path, options: list[str], waits_s: float
) -> None:
    path = tmp_path / "with-backoff"
    with penstock.create(path, slots=10, data_bytes=1 << 16, backoff=600) as q:
        q.put("m0")
        process = start("work", path, "jobs:fail_first", "--until-empty", *options)
        process.communicate(timeout=END_S)
        (message,) = q.browse()
        assert message.attempts == 1
        assert waits_s - 60 < message.deliver_at.timestamp() - time.time() <= waits_s


def test_a_worker_that_is_killed_is_started_again_and_its_message_comes_back(
    start: Start, small: Path, folder: Path
) -> None:
    fill(small, 3)
    process = start("work", small, "jobs:die_first", "--prefetch", "1", "--until-empty", "--json")
    out, _ = process.communicate(timeout=END_S)
    assert process.returncode == exits.OK
    assert left(small)[:2] == (0, 0)
    assert sorted(notes(folder)) == ["m0", "m0", "m1", "m1", "m2", "m2"]
    crashed = [event for event in events(out) if event["event"] == "crashed"]
    assert len(crashed) == 3
    assert all(event["message"] and event["again_s"] > 0 for event in crashed)


def test_a_function_that_ends_its_process_is_no_end_of_the_pool(start: Start, small: Path, folder: Path) -> None:
    fill(small, 1)
    process = start("work", small, "jobs:leave", "--retry-delay", "0", "--json")
    until(lambda: len(notes(folder)) >= 4)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=END_S)
    assert left(small) == (1, 0, 0)
    pauses = [event["again_s"] for event in events(out) if event["event"] == "crashed"]
    assert pauses[:3] == [0.1, 0.2, 0.4], "later and later, if it does nothing but die"


def test_a_function_that_ends_its_process_without_an_error_does_not_say_that_the_queue_is_empty(
    start: Start, small: Path, folder: Path
) -> None:
    fill(small, 3)
    process = start("work", small, "jobs:leave_quietly", "--retry-delay", "0", "--until-empty")
    process.communicate(timeout=END_S)
    assert process.returncode == exits.OK
    assert left(small) == (0, 0, 3)
    assert sorted(notes(folder)) == ["m0", "m0", "m1", "m1", "m2", "m2"]


def test_a_function_that_acknowledges_and_ends_its_process_has_not_crashed(
    start: Start, small: Path, folder: Path
) -> None:
    fill(small, 3)
    process = start("work", small, "jobs:leave_answered", "--until-empty", "--json")
    out, _ = process.communicate(timeout=END_S)
    assert left(small) == (0, 0, 3)
    assert notes(folder) == ["m0", "m1", "m2"]
    assert "crashed" not in {event["event"] for event in events(out)}


def test_what_the_function_forks_can_be_terminated(run: Run, small: Path, folder: Path) -> None:
    fill(small, 1)
    run("work", small, "jobs:start_a_fork", "--once")
    assert int((folder / "ended").read_text()) == -signal.SIGTERM


def test_a_report_that_a_signal_cuts_short_is_sent_to_its_end(start: Start, small: Path, folder: Path) -> None:
    fill(small, 1)
    process = start("work", small, "jobs:raise_much", "--json", "--retry-delay", "1h")
    until(lambda: left(small)[1] == 1)
    os.kill(process.pid, signal.SIGSTOP)  # so that the worker waits in the middle of its report
    time.sleep(0.3)
    for worker in _children(process.pid):
        for _ in range(3):
            os.kill(worker, signal.SIGTERM)
            time.sleep(0.05)
    os.kill(process.pid, signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    out, error = process.communicate(timeout=END_S)
    assert process.returncode == exits.TERMINATED, error
    assert left(small)[1:] == (0, 0)
    assert {event["event"] for event in events(out)} >= {"failed", "ended"}


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_worker_that_cannot_be_started_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    pool = Pool({"queue": "q", "function": "f"}, 2, None, json=True)
    open_files = os.listdir("/proc/self/fd")
    pool._start_due()
    pool._start_due()  # not yet
    assert [event["again_s"] for event in events(capsys.readouterr().out.encode())] == [0.1, 0.1]
    assert os.listdir("/proc/self/fd") == open_files


def test_once_ends_when_its_worker_dies(run: Run, small: Path, folder: Path) -> None:
    fill(small, 1)
    run("work", small, "jobs:die_first", "--once", code=exits.NOTHING)
    assert notes(folder) == ["m0"]
    assert left(small)[2] == 0


def test_what_the_function_started_is_killed_with_it_when_it_is_over_its_time(
    start: Start, small: Path, folder: Path
) -> None:
    fill(small, 1)
    process = start("work", small, "jobs:start_another", "--time-limit", "300ms", "--until-empty")
    process.communicate(timeout=END_S)
    pid = int((folder / "another").read_text())
    until(lambda: not _alive(pid))


def test_a_worker_over_its_time_is_killed_and_its_message_comes_back(start: Start, small: Path, folder: Path) -> None:
    fill(small, 2)
    process = start("work", small, "jobs:hang_first", "-p", "2", "--time-limit", "300ms", "--until-empty", "--json")
    out, _ = process.communicate(timeout=END_S)
    assert process.returncode == exits.OK
    assert left(small) == (0, 0, 2)
    assert sum(event["event"] == "over_time" for event in events(out)) == 2


@pytest.mark.parametrize(
    "number, code",
    [(signal.SIGTERM, exits.TERMINATED), (signal.SIGINT, exits.INTERRUPTED), (signal.SIGHUP, exits.HUNG_UP)],
)
def test_a_stop_finishes_what_is_in_hand_and_gives_back_the_rest(
    start: Start, small: Path, folder: Path, number: int, code: int
) -> None:
    fill(small, 20)
    process = start("work", small, "jobs:slowly", "-p", "2", "--prefetch", "5")
    until(lambda: len(list(folder.glob("began-*"))) == 2)
    process.send_signal(number)
    time.sleep(0.3)
    assert process.poll() is None
    (folder / "go").touch()
    process.communicate(timeout=END_S)
    assert process.returncode == code
    assert len(notes(folder)) == 2
    assert left(small) == (18, 0, 2)


def test_a_second_signal_stops_at_once_and_everything_comes_back(start: Start, small: Path, folder: Path) -> None:
    fill(small, 4)
    process = start("work", small, "jobs:slowly", "-p", "2")
    until(lambda: len(list(folder.glob("began-*"))) == 2)
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
    process.communicate(timeout=END_S)
    assert process.returncode == exits.TERMINATED
    assert notes(folder) == []
    with penstock.open(small) as q:
        assert len(q.get_many(10, wait=5)) == 4


def test_workers_of_a_pool_that_is_killed_finish_and_end(start: Start, small: Path, folder: Path) -> None:
    fill(small, 4)
    process = start("work", small, "jobs:slowly", "-p", "2", "--json")
    assert process.stdout is not None
    pids = [json.loads(process.stdout.readline())["pid"] for _ in range(2)]
    until(lambda: len(list(folder.glob("began-*"))) == 2)
    process.kill()
    process.wait(END_S)
    time.sleep(0.3)  # its workers hear of it
    (folder / "go").touch()
    until(lambda: not any(_alive(pid) for pid in pids))
    assert left(small) == (2, 0, 2)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_leases_are_kept_while_the_function_works(start: Start, small: Path, folder: Path) -> None:
    fill(small, 1)
    process = start("work", small, "jobs:slowly", "--lease", "300ms")
    until(lambda: list(folder.glob("began-*")))
    with penstock.open(small) as q:
        assert q.get_many(1, wait=1.0) == []
        assert q.stats().expired == 0
    (folder / "go").touch()
    until(lambda: left(small) == (0, 0, 1))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=END_S)


def test_the_pool_is_found_from_a_relative_path(small: Path, folder: Path) -> None:
    fill(small, 1)
    source = os.path.relpath(Path(penstock.__file__).parents[1], folder)
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "work", str(small), "jobs:shout", "--once"],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        timeout=END_S,
    )
    assert (done.returncode, done.stdout) == (exits.OK, b"shouted m0\n")


def test_what_the_function_returns_is_the_reply_to_a_question(start: Start, small: Path, folder: Path) -> None:
    process = start("work", small, "jobs:double", "--processes", "2")
    with penstock.open(small) as q:
        assert q.put(21, model="two-way", timeout=END_S) == {"twice": 42}
        assert q.put_many([1, 2], model="two-way", timeout=END_S) == [{"twice": 2}, {"twice": 4}]
        assert q.put(3, model="acknowledged", timeout=END_S)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=END_S)
    assert left(small) == (0, 0, 4)


def test_a_function_that_returns_no_body_has_failed(start: Start, small: Path, folder: Path) -> None:
    process = start("work", small, "jobs:answer_nonsense_first", "--retry-delay", "0")
    with penstock.open(small) as q:
        assert q.put("?", model="two-way", timeout=END_S) == "sense"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=END_S)
