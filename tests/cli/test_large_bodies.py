"""penstock put --file and get --output: bodies that need not fit into memory."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest

import penstock
from penstock.cli import exits

from .conftest import END_S, Run, Start, one_error, rows

BODY = bytes(range(256)) * (3 << 12)  # 3 MB: more than a piece


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "body"
    path.write_bytes(BODY)
    return path


def bodies(queue: Path) -> list[Path]:
    return list((queue / "bodies").iterdir())


def test_a_file_goes_in_and_out_again(run: Run, large: Path, file: Path, tmp_path: Path) -> None:
    run("put", large, "--file", file, "--type", "image")
    assert [body.stat().st_size for body in bodies(large)] == [len(BODY)]
    (found,) = rows(run("peek", large, "--json"))
    assert (found["type"], found["body_base64"][:4]) == ("image", "AAEC")
    assert f" {len(BODY)} " in run("peek", large).stdout
    assert run("get", large, "--output", tmp_path / "out").stdout == ""
    assert (tmp_path / "out").read_bytes() == BODY
    with penstock.open(large) as q:
        assert (q.qsize(), q.stats().acks) == (0, 1)


@pytest.mark.parametrize("words", [["-"], ["--file", "-"]])
def test_standard_input_is_streamed(start: Start, large: Path, words: list[str]) -> None:
    process = start("put", large, *words, stdin=subprocess.PIPE)
    out, error = process.communicate(BODY, timeout=END_S)
    assert (process.returncode, error) == (0, b"")
    with penstock.open(large) as q, q.get(block=False) as message:
        assert message.id == out.decode().strip() and message.data == BODY


def test_a_body_from_standard_input_can_have_another_kind(run: Run, small: Path) -> None:
    run("put", small, "--file", "-", "--as", "json", input=b'{"a": 1}')
    with penstock.open(small) as q, q.get(block=False) as message:
        assert message.body == {"a": 1}


@pytest.mark.parametrize(("option", "end"), [("--raw", b""), ("--batch=3", b"\n")])
def test_large_bodies_are_written_to_standard_output_in_order(
    start: Start, large: Path, option: str, end: bytes
) -> None:
    with penstock.open(large) as q:
        q.put_many([b"first", BODY, b"third"])
    out, error = start("get", large, option, "-n", "3").communicate(timeout=END_S)
    assert error == b"" and out == b"first" + end + BODY + end + b"third" + end


def test_nothing_is_made_where_there_is_no_message(run: Run, small: Path, tmp_path: Path) -> None:
    one_error(run("get", small, "--output", tmp_path / "out", code=exits.NOTHING))
    assert not (tmp_path / "out").exists()
    assert "not both" in run("get", small, "--output", tmp_path / "out", "--json", code=exits.USAGE).stderr


def test_a_file_that_cannot_be_written_gives_the_message_back(run: Run, large: Path, tmp_path: Path) -> None:
    run("put", large, "hello")
    one_error(run("get", large, "--output", tmp_path / "missing" / "out", code=exits.SYSTEM))
    assert "No space left" in one_error(run("get", large, "--output", "/dev/full", code=exits.SYSTEM))
    assert run("get", large, "--output", tmp_path / "out").stdout == ""
    assert (tmp_path / "out").read_bytes() == b"hello"


def test_a_damaged_body_is_cut_off_the_file_and_given_back(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "queue"
    out = tmp_path / "out"
    with penstock.create(path, slots=10, data_bytes=16 << 20, durability="relaxed") as q:
        q.put_many([b"first", BODY])
    (body,) = bodies(path)
    with open(body, "r+b") as damaged:
        damaged.seek(2 << 20)
        damaged.write(b"\xff\xfe")
    assert body.name in one_error(run("get", path, "-n", "2", "--output", out, code=exits.DAMAGED))
    assert out.read_bytes() == b"first"
    one_error(run("get", path, "--output", tmp_path / "other", code=exits.NOTHING))  # it comes back after a lease
    assert not (tmp_path / "other").exists()
    with penstock.open(path) as q:
        assert [message.attempts for message in q.browse()] == [1]


def test_a_get_that_is_interrupted_leaves_no_file(start: Start, large: Path, tmp_path: Path) -> None:
    """It hangs in a pipe that nobody reads: the body of the first message, all of it, is larger."""
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with penstock.open(large) as q:
            q.put(BODY)
            process = start("get", large, "--output", tmp_path / "fifo")
            end = time.monotonic() + END_S
            while q.stats().pending == 0 and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            process.wait(timeout=END_S)
            assert process.returncode == exits.INTERRUPTED
            with q.get(timeout=0) as message:
                assert (message.attempts, message.data) == (2, BODY)
    finally:
        os.close(reader)


def test_progress_is_shown_on_a_terminal(start: Start, large: Path, file: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        for words in (["put", large, "--file", file], ["get", large, "--output", tmp_path / "out"]):
            process = start(*words, stderr=theirs)
            process.communicate(timeout=END_S)
            assert process.returncode == 0
            assert b"ting" in os.read(ours, 100_000)
    finally:
        os.close(ours)
        os.close(theirs)
