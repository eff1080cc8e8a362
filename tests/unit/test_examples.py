"""The examples work, as a user runs them."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import penstock
from tests.conftest import assert_whole

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ["--guests", "40", "--seconds", "2", "--senders", "2", "--receivers", "3"]


def _start(*arguments: str, temporary: Path | None = None, example: str = "wakeup.py") -> subprocess.Popen[str]:
    # The same penstock as these tests run: compiled or interpreted.
    environment = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    if temporary is not None:
        environment["TMPDIR"] = str(temporary)
    command = [sys.executable, str(EXAMPLES / example), *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def test_every_wake_up_call_is_made_though_a_receiver_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "hotel"
    process = _start(*SMALL, "--dir", str(folder))
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 0, text
    assert re.search(r"calls booked +40\nguests called +40\n", text), text
    assert re.search(r"receivers killed +1; guest \d+ was called by another one", text), text
    assert "#" in text and "median" in text and "every booked call was made" in text
    assert_whole(folder / "queue")
    with penstock.open(folder / "queue") as q:
        assert (q.qsize(), q.stats().acks, q.stats().returned) == (0, 40, 1)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_wake_up_service_leaves_no_process_and_no_files(tmp_path: Path, how: int) -> None:
    process = _start("--guests", "40", "--seconds", "20", temporary=tmp_path)
    assert process.stdout is not None
    assert "booked" in process.stdout.readline()  # the first look: all have been started
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 7
    time.sleep(0.3)
    process.send_signal(how)
    text, _ = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in text, text
    _, left = psutil.wait_procs(family, timeout=10)
    assert left == []
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    process = _start("--dir", str(tmp_path))
    text, _ = process.communicate(timeout=20)
    assert process.returncode == 2 and "not empty" in text
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.txt"]


SAID = {
    "jobs.py": (
        ["--jobs", "30"],
        r"is killed.*27 thumbnails; 3 dead letters.*max_attempts after 3 attempts.*has its thumb",
    ),
    "customers.py": (
        ["--customers", "8", "--orders", "5"],
        r"is killed.*8 customers, 5 orders each; .* 0 out of order",
    ),
    "ask.py": (
        ["--questions", "12"],
        r"is killed with a question in hand.*asked for Brno: \d+ euros.*36 of 36 questions have got their own answer",
    ),
    "bulkmail.py": (["--mails", "300"], r"mails wait for large.example.*mails to small.example over .*dead letters"),
    "priorities.py": (
        ["--jobs", "30"],
        r"^urgent job 1\n.*normal job 1\n.*whenever job 10\n30 jobs, each after all that was more urgent",
    ),
    "fanout.py": (["--orders", "6"], r"warehouse: 6 orders.*billing: 6 orders.*archive: 3 orders, from 3 to 5"),
    "reminders.py": (["--seconds", "0.5"], r"cancelled.*4 reminders, 4 asked for twice, 1 no longer worth it"),
}


@pytest.mark.parametrize("example", SAID)
def test_an_example_does_what_it_says(tmp_path: Path, example: str) -> None:
    arguments, said = SAID[example]
    process = _start(*arguments, temporary=tmp_path, example=example)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 0, text
    assert re.search(said, text, re.DOTALL), text
    assert list(tmp_path.iterdir()) == []


# One that is over within a moment may be interrupted while it removes its files.
@pytest.mark.parametrize("example", [example for example in SAID if example != "fanout.py"])
def test_an_example_that_is_interrupted_leaves_no_process_and_no_files(tmp_path: Path, example: str) -> None:
    process = _start(temporary=tmp_path, example=example)
    while not list(tmp_path.glob("*/*/queue.json")) and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.2)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in text, text
    _, left = psutil.wait_procs(family, timeout=10)
    assert left == []
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def wakeup() -> Any:
    spec = importlib.util.spec_from_file_location("wakeup_example", EXAMPLES / "wakeup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _call(guest: int, attempt: int, *, last: bool) -> dict[str, Any]:
    return {"guest": guest, "message": "id", "attempt": attempt, "awake": last, "last": last, "late_s": 0.001}


def test_the_account_finds_what_went_wrong(wakeup: Any) -> None:
    booked = {1: {"guest": 1, "repeats": 1}, 2: {"guest": 2, "repeats": 0}}
    right = [_call(1, 1, last=False), _call(1, 2, last=True), _call(2, 1, last=True)]
    assert wakeup.Account(booked, right).faults() == []
    assert wakeup.Account(booked, right[:-1]).faults()  # lost
    assert wakeup.Account(booked, [*right, _call(2, 1, last=True)]).faults()  # made twice
    assert wakeup.Account(booked, [*right, _call(3, 1, last=True)]).faults()  # made up
    assert wakeup.Account(booked, [*right[:2], _call(2, 2, last=True)]).faults()  # an attempt that nobody made
    killed = [{"died": 2, "message": "id"}]
    assert wakeup.Account(booked, [*right[:2], _call(2, 2, last=True)], killed).faults() == []


def test_the_histogram_counts_every_call(wakeup: Any) -> None:
    late_s = [-0.001, 0.0, 0.0003, 0.004, 0.004, 0.7, 3.0]
    lines = wakeup.histogram(late_s)
    counts = [int(re.split(r" ms +", line)[1].split()[0]) for line in lines]
    assert sum(counts) == len(late_s) and counts[-1] == 1
    assert wakeup.histogram([]) == []
