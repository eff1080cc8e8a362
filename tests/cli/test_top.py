"""penstock top: figures of queues, again and again, on a terminal and without one."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.cli import exits
from penstock.cli.screen import HIDE, SHOW, width_of
from penstock.cli.top import table
from penstock.timequeue.administration import glance

from .conftest import END_S, Run, Start, one_error, rows


def test_once_shows_one_interval_with_rates(run: Run, small: Path, large: Path) -> None:
    with penstock.open(small) as q:
        q.put_many([b"a"] * 5)
        q.put(b"first", priority=9)
        held = q.get(block=False)
        q.get(block=False).release()
        (line,) = rows(run("top", small, large, "--once", "--interval", "50ms", "--json"))
        first, second = line["queues"]
        held.ack()
    assert (first["path"], second["path"]) == (str(small), str(large))
    assert (first["waiting"], first["pending"], first["retries"], first["holders"]) == (5, 1, 1, 1)
    assert first["clients"] == 0  # both are this process
    assert first["oldest_s"] >= first["late_s"] > 0
    assert (second["waiting"], second["oldest_s"], second["late_s"], second["puts_per_s"]) == (0, None, None, 0)


def test_a_queue_with_nothing_due_says_when_the_next_is(run: Run, small: Path) -> None:
    with penstock.open(small) as q:
        q.put(b"later", delay=1000)
    (line,) = rows(run("top", small, "--once", "--interval", "10ms", "--json"))
    (row,) = line["queues"]
    assert (row["oldest_s"], row["late_s"]) == (None, None)
    assert 900 < row["next_due_in_s"] < 1000
    assert "in 16m" in run("top", small, "--once", "--interval", "10ms").stdout


def test_late_is_about_what_is_delivered_next_and_oldest_about_all(run: Run, small: Path) -> None:
    with penstock.open(small) as q:
        q.put(b"old", deliver_at=time.time() - 1000)
        q.put(b"urgent", deliver_at=time.time() - 10, priority=5)
    (line,) = rows(run("top", small, "--once", "--interval", "10ms", "--json"))
    (row,) = line["queues"]
    assert 999 < row["oldest_s"] < 1100
    assert 9 < row["late_s"] < 110


def test_claims_count_as_held(run: Run, small: Path) -> None:
    with penstock.open(small) as q:
        q.put_many([b"a"] * 5)
        with q.receiver("report") as receiver:
            receiver.claim(2)
    (line,) = rows(run("top", small, "--once", "--interval", "10ms", "--json"))
    (row,) = line["queues"]
    assert (row["waiting"], row["claimed"], row["holders"]) == (3, 2, 1)


def test_without_a_terminal_a_line_comes_for_every_look(start: Start, small: Path) -> None:
    with penstock.open(small) as q:
        process = start("top", small, "--interval", "100ms")
        assert process.stdout is not None and process.stderr is not None
        header = process.stdout.readline().decode()
        assert header.split()[:3] == ["time", "queue", "waiting"]
        q.put_many([b"x"] * 50)
        seen = [process.stdout.readline().decode().split() for _ in range(4)]
        assert seen[-1][2] == "50"
        assert any(float(row[4]) > 0 for row in seen)  # put/s
        process.send_signal(signal.SIGINT)
        assert process.wait(END_S) == exits.INTERRUPTED
        assert process.stderr.read() == b""
        assert b"\x1b" not in process.stdout.read()


def test_a_reader_that_goes_away_ends_it(start: Start, small: Path) -> None:
    process = start("top", small, "--json", "--interval", "50ms")
    assert process.stdout is not None and process.stderr is not None
    assert json.loads(process.stdout.readline())["queues"][0]["waiting"] == 0
    process.stdout.close()
    assert process.wait(END_S) == exits.NO_READER
    assert process.stderr.read() == b""


def test_a_queue_that_vanishes_is_a_line_and_the_others_go_on(start: Start, small: Path, tmp_path: Path) -> None:
    path = tmp_path / "short-lived"
    penstock.create(path, slots=10, data_bytes=1 << 16).close()
    process = start("top", path, small, "--json", "--interval", "100ms")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["queues"][0]["waiting"] == 0
    shutil.rmtree(path)
    for _ in range(50):
        gone, there = json.loads(process.stdout.readline())["queues"]
        if "error" in gone:
            break
    assert "there is no queue here" in gone["error"]
    assert there["waiting"] == 0
    penstock.create(path, slots=10, data_bytes=1 << 16).close()
    for _ in range(50):
        back = json.loads(process.stdout.readline())["queues"][0]
        if "error" not in back:
            break
    assert back["waiting"] == 0
    process.send_signal(signal.SIGTERM)
    assert process.wait(END_S) == exits.TERMINATED


def test_without_names_it_is_about_all_queues_below_here(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no queues below" in one_error(run("top", "--once", code=exits.NO_QUEUE))
    for name in ("b", "a"):
        penstock.create(tmp_path / name, slots=10, data_bytes=1 << 16).close()
    (line,) = rows(run("top", "--once", "--interval", "10ms", "--json"))
    assert [Path(row["path"]).name for row in line["queues"]] == ["a", "b"]


def test_a_folder_stands_for_the_queues_in_it(run: Run, small: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("b", "a"):
        penstock.create(root / name, slots=10, data_bytes=1 << 16).close()
    (line,) = rows(run("top", root, small, "--once", "--interval", "10ms", "--json"))
    assert [row["path"] for row in line["queues"]] == [str(root / "a"), str(root / "b"), str(small)]
    (root / "empty").mkdir()
    assert "empty: not a queue" in one_error(run("top", root / "empty", "--once", code=exits.NO_QUEUE))


def test_percentiles_are_those_of_the_messages_since_the_last_look(start: Start, small: Path) -> None:
    with penstock.open(small) as q:
        q.put(b"old", deliver_at=time.time() - 5)
        time.sleep(0.05)
        q.get(block=False).ack()
        process = start("top", small, "--json", "--interval", "200ms")
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())["queues"][0]
        assert (first["waiting_p99_s"], first["lateness_p99_s"]) == (None, None)
        q.put(b"new")
        q.get(block=False).ack()
        seen = [json.loads(process.stdout.readline())["queues"][0]["waiting_p99_s"] for _ in range(4)]
        assert any(each is not None and each < 0.05 for each in seen) and seen.count(None) == 3
        process.send_signal(signal.SIGTERM)
        process.wait(END_S)


@pytest.mark.parametrize("interval", ["0", "soon", "-1"])
def test_an_interval_that_cannot_be_is_a_usage_error(run: Run, small: Path, interval: str) -> None:
    one_error(run("top", small, "--interval", interval, code=exits.USAGE))


def test_top_does_not_keep_an_operator_from_the_queue(start: Start, run: Run, small: Path) -> None:
    """It has the queue open only while it looks."""
    process = start("top", small, "--json", "--interval", "300ms")
    assert process.stdout is not None
    process.stdout.readline()
    run("resize", small, "--slots", "200")
    for _ in range(50):
        if json.loads(process.stdout.readline())["queues"][0].get("slots") == 200:
            break
    else:
        raise AssertionError("it does not see the new size")
    process.send_signal(signal.SIGTERM)
    process.wait(END_S)


def test_looking_costs_the_queue_no_sync(tmp_path: Path) -> None:
    small = tmp_path / "orders"
    with penstock.create(small, slots=100, data_bytes=1 << 20, durability="relaxed", index_sync_ms=0) as q:
        q.put_many([b"x"] * 10)
        before = q.stats().index_syncs
        for _ in range(5):
            assert glance(small, busy_s=1).stats.waiting == 10
        assert q.stats().index_syncs == before
        assert len(q.stats().clients) == 1


# ---------------------------------------------------------------- a terminal


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, words: list[object], *, rows: int, columns: int) -> None:
        self.master, slave = pty.openpty()
        self.size(rows, columns)
        source = str(Path(penstock.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *map(str, words)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "PYTHONPATH": source, "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""

    def size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, done: Callable[[str], bool]) -> str:
        end_s = time.monotonic() + END_S
        while not done(self.seen):
            assert time.monotonic() < end_s, self.seen
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.master, 65536).decode()
                except OSError:  # the program has ended
                    break
        return self.seen

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(END_S)
        self.read_until(lambda text: text.endswith(SHOW))
        os.close(self.master)
        return code


def shown(text: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9?]*[A-Za-z]", "", text).replace("\r", "").splitlines()


@pytest.mark.parametrize("number, code", [(signal.SIGINT, exits.INTERRUPTED), (signal.SIGTERM, exits.TERMINATED)])
def test_on_a_terminal_it_draws_in_place_and_gives_the_cursor_back(small: Path, number: int, code: int) -> None:
    terminal = Terminal(["top", small, "--interval", "100ms"], rows=24, columns=200)
    terminal.read_until(lambda text: text.count("\x1b[3F") >= 3)  # up three lines, and the same again
    assert terminal.seen.startswith(HIDE)
    assert terminal.end(number) == code
    assert terminal.seen.endswith(SHOW)
    assert "Traceback" not in terminal.seen
    lines = shown(terminal.seen)
    assert lines[0].startswith("penstock top") and lines[1].split()[0] == "queue" and str(small) in lines[2]


def test_a_narrow_and_low_terminal_shows_what_matters_most(tmp_path: Path) -> None:
    paths = [tmp_path / f"queue-with-a-long-name-{i}" for i in range(9)]
    for path in paths:
        penstock.create(path, slots=10, data_bytes=1 << 16).close()
    terminal = Terminal(["top", *paths, "--interval", "100ms"], rows=6, columns=30)
    terminal.read_until(lambda text: text.count("\x1b[5F") >= 2)
    lines = shown(terminal.seen)
    assert max(map(len, lines)) <= 30
    assert lines[1].split()[:2] == ["queue", "waiting"] and "stored" not in lines[1]
    assert lines[2].startswith("…") and lines[4].startswith("... and 7 more")
    terminal.size(24, 100)
    terminal.read_until(lambda text: "\x1b[2J" in text and text.count("\x1b[11F") >= 1)
    assert terminal.end(signal.SIGINT) == exits.INTERRUPTED


def test_lines_are_never_longer_than_asked_for() -> None:
    row = {
        "path": "/var/lib/queues/orders", "waiting": 1_000_000, "pending": 5, "claimed": 0, "oldest_s": 4000.0,
        "late_s": 0.5, "next_due_in_s": None, "retries": 3, "clients": 12, "holders": 4, "stored_bytes": 1 << 30,
        "puts_per_s": 123456.7, "gets_per_s": 1.5, "acks_per_s": 0.0, "retries_per_s": None, "syncs_per_s": 12.0,
        "waiting_p99_s": 0.0123, "lateness_p99_s": None,
    }  # fmt: skip
    rows = [row, {"path": "/gone", "error": "/gone: there is no queue here\x1b[2J; " + "x" * 200}]
    for width in range(12, 200):
        lines = table(rows, width)
        assert len(lines) == 3 and max(map(len, lines)) <= width, width
        assert "\x1b" not in "".join(lines)
        assert "1000000" in lines[1] or width < 16
        assert max(map(width_of, table([{**row, "path": "/var/lib/注文の列"}], width))) <= width
    wanted = "/var/lib/queues/orders 1000000 5 123457 1.5 0 1h06m 0.5s - 3 12 4 12 12.3ms - 1 GiB"
    assert lines[1].split() == wanted.split()
