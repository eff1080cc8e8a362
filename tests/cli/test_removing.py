"""penstock cancel and purge."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import subprocess
import termios
from pathlib import Path

import pytest

import penstock
from penstock.cli import exits

from .conftest import END_S, Run, Start, one_error, rows


def test_cancel_removes_waiting_messages(run: Run, small: Path) -> None:
    ids = [run("put", small, body).stdout.strip() for body in "abc"]
    run("cancel", small, ids[0], ids[2])
    assert [row["body"] for row in rows(run("peek", small, "--json"))] == ["b"]


def test_cancel_of_a_message_that_is_gone_or_taken_is_exit_code_1(run: Run, small: Path) -> None:
    first, second = (run("put", small, body).stdout.strip() for body in "ab")
    with penstock.open(small) as q:
        message = q.get(block=False)
        result = run("cancel", small, first, second, code=exits.NOTHING)
        assert result.stdout.splitlines() == [f"{first} is not waiting", f"{second} cancelled"]
        message.ack()
    assert "is not waiting" in run("cancel", small, second, code=exits.NOTHING).stdout


def test_cancel_checks_every_id_before_it_removes_anything(run: Run, small: Path) -> None:
    good = run("put", small, "a").stdout.strip()
    assert "nonsense" in one_error(run("cancel", small, good, "nonsense", code=exits.USAGE))
    prefix = good.partition("-")[0]
    assert run("cancel", small, f"{prefix}-0-0", f"{prefix}-1-0", f"{prefix}-ffffffff-1", code=1)
    assert len(rows(run("peek", small, "--json"))) == 1


def test_purge_removes_everything_that_waits_only_with_yes(run: Run, small: Path) -> None:
    run("put", small, "--lines", input="a\nb\n")
    run("put", small, "c", "--delay", "1h")
    assert "--yes" in one_error(run("purge", small, code=exits.USAGE))
    assert len(rows(run("peek", small, "--json"))) == 3
    assert run("purge", small, "--yes").stdout == "3 messages removed\n"
    assert rows(run("peek", small, "--json")) == []


@pytest.mark.parametrize(
    ("answer", "code", "left"), [(b"y\n", 0, 0), (b"n\n", 1, 1), (b"\n", 1, 1), (b"\x03", 130, 1), (b"\x04", 130, 1)]
)
def test_purge_asks_on_a_terminal(start: Start, small: Path, answer: bytes, code: int, left: int) -> None:
    with penstock.open(small) as q:
        q.put(b"a")
        ours, theirs = pty.openpty()
        try:
            process = start(
                "purge", small, stdin=theirs, stderr=theirs, start_new_session=True, preexec_fn=_own_the_terminal
            )
            asked = b""
            while b"[y/N]" not in asked:
                asked += os.read(ours, 1000)
            assert b"1 waiting" in asked
            for _ in range(END_S):  # a Ctrl-C that comes just before the read begins does not end the read
                os.write(ours, answer)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=1)
                    break
        finally:
            os.close(ours)
            os.close(theirs)
        assert process.returncode == code
        assert q.qsize() == left


def _own_the_terminal() -> None:
    """So that its Ctrl-C is a signal for us."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
