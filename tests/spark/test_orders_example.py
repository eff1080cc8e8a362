"""The example that `make run` shows: every message is accounted for, and no process is left, however it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psutil
import pytest

import penstock
from examples.orders.plan import DEAD, QUEUES
from tests.conftest import assert_whole

pytest.importorskip("pyspark")

from penstock.spark import java

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = 300
SMALL = ["--messages", str(MESSAGES), "--seconds", "8", "--producers", "2"]

pytestmark = pytest.mark.timeout(300)  # Spark starts twice; on a busy machine that takes its time


@pytest.fixture(autouse=True)
def with_java() -> None:
    try:
        java.find()
    except java.NoJava as error:
        pytest.skip(str(error))


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    command = [sys.executable, "-m", "examples.orders", "--dir", str(folder), *arguments]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **pipes)


def _processes_of(folder: Path) -> list[str]:
    """Of all processes of this user those that have the folder in their arguments or in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            told = [*process.cmdline(), *process.environ().values()]
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
        if any(str(folder) in each for each in told):
            found.append(f"{process.pid} {' '.join(process.cmdline())[:200]}")
    return found


def test_every_message_is_accounted_for_though_a_producer_and_spark_are_killed(tmp_path: Path) -> None:
    folder = tmp_path / "shops"
    process = _start(folder, *SMALL)
    text, _ = process.communicate(timeout=280)
    assert process.returncode == 0, text
    account = json.loads((folder / "account.json").read_text())
    assert account["ok"] and account["faults"] == []
    assert account["put"] == account["out"] == MESSAGES
    assert account["duplicates"] == account["lost"] == 0
    kinds = {line["type"]: line for line in account["types"]}
    assert kinds.keys() == {"order", "payment", "refused order"} and all(line["out"] for line in kinds.values())
    assert account["applied"] == MESSAGES - kinds["refused order"]["put"]
    assert account["retries"] > 0 and account["letters"] == {
        "ValueError: an order for nothing": kinds["refused order"]["out"]
    }
    assert account["reminders"]["fired"] > 0 and account["windows"] > 1
    happened = "\n".join(event["what"] for event in account["events"])
    assert re.search(r"producer 0 killed(.|\n)*producer 0 started again", happened), happened
    assert re.search(r"Spark driver .*killed(.|\n)*Spark is up again", happened), happened
    # The terminal is for people: not a word of Java.
    assert "every message was applied once" in text and str(folder / "report.html") in text
    assert not re.search(r"WARN|ERROR|Exception|\bat org\.|log4j|Traceback", text), text
    assert _processes_of(folder) == []
    for name in QUEUES:
        assert_whole(folder / "queues" / name)
        with penstock.open(folder / "queues" / name) as q:
            assert (q.qsize(), q.stats().claimed) == (kinds["refused order"]["out"] if name == DEAD else 0, 0)
    _check_page((folder / "report.html").read_text())


def _check_page(page: str) -> None:
    """It needs nothing else, and has its plots and figures."""
    opened: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attributes: Any) -> None:
            opened.append(tag)
            assert not {"src", "href"} & dict(attributes).keys()

    Parser().feed(page)
    assert opened.count("svg") >= 10 and opened.count("table") >= 6 and "script" not in opened  # wide and narrow plots
    assert "every message once" in page and "Spark driver (Python and Java) killed" in page
    # What the queues remember: the errors of the bank are in their history only.
    assert "ConnectionError: the bank does not answer" in page and "Waiting time" in page


def _has(running: list[str], word: str) -> bool:
    return any(word in each for each in running)


def _has_queries(folder: Path) -> bool:
    return (folder / "journals" / "driver.jsonl").exists()


def _at_once(folder: Path) -> bool:
    return True


@pytest.mark.parametrize("how, has_begun", [(signal.SIGINT, _has_queries), (signal.SIGTERM, _at_once)])
def test_a_stopped_run_leaves_no_process(tmp_path: Path, how: int, has_begun: Callable[[Path], bool]) -> None:
    folder = tmp_path / "shops"
    process = _start(folder, "--messages", "3000", "--seconds", "100")
    deadline = time.monotonic() + 120
    running: list[str] = []
    while not (has_begun(folder) and _has(running, "java") and _has(running, "consumers")):
        assert process.poll() is None and time.monotonic() < deadline, running
        time.sleep(0.1)
        running = _processes_of(folder)
    process.send_signal(how)
    process.send_signal(how)  # impatient
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in text and f"is in {folder}" in text, text
    assert _processes_of(folder) == []


def test_a_folder_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    process = _start(tmp_path)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 2 and "not an empty folder" in text
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.txt"]


def test_without_a_java_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.orders import __main__ as program

    def none() -> Any:
        raise java.NoJava(["PATH: /usr is Java 8"])

    monkeypatch.setattr(java, "find", none)
    assert "is Java 8. What to do: install Java 17" in str(program.missing())
