"""penstock get: nothing is lost, whatever becomes of the output."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import IO

import pytest

import penstock
from penstock.cli import exits

from .conftest import END_S, Run, Start, one_error, rows


def test_get_writes_the_body_and_acknowledges(run: Run, small: Path) -> None:
    run("put", small, "hello")
    assert run("get", small).stdout == "hello\n"
    with penstock.open(small) as q:
        assert (q.qsize(), q.stats().acks) == (0, 1)


def test_get_on_an_empty_queue_is_exit_code_1_in_one_line(run: Run, small: Path) -> None:
    assert "no message is due" in one_error(run("get", small, code=exits.NOTHING))


def test_get_with_a_timeout_waits_that_long_and_no_longer(run: Run, small: Path) -> None:
    start = time.monotonic()
    one_error(run("get", small, "--timeout", "200ms", code=exits.NOTHING))
    assert 0.2 <= time.monotonic() - start < 5


def test_get_takes_a_number_of_messages_and_is_content_with_fewer(run: Run, small: Path) -> None:
    run("put", small, "--lines", input="a\nb\nc\n")
    assert run("get", small, "-n", "2").stdout == "a\nb\n"
    assert run("get", small, "-n", "2").stdout == "c\n"


def test_get_in_batches_gives_the_same_as_one_by_one(run: Run, large: Path) -> None:
    text = "".join(f"{i}\n" for i in range(2500))
    run("put", large, "--lines", input=text)
    assert run("get", large, "--follow", "--timeout", "0", "--batch", "1000").stdout == text
    assert run("get", large, "--follow", "--timeout", "0").stdout == ""


def test_get_raw_gives_the_bytes_and_nothing_else(run: Run, small: Path) -> None:
    anything = bytes(range(256))
    run("put", small, "-", input=anything)
    assert run("get", small, "--raw").stdout_bytes == anything


def test_get_json_has_bytes_that_are_not_text_as_base64(run: Run, small: Path) -> None:
    with penstock.open(small) as q:
        q.put_many([b"\xff", b"a", "b", {"c": 1}, None])
    found = rows(run("get", small, "-n", "9", "--json"))
    assert [(row["kind"], row.get("body"), row.get("body_base64")) for row in found] == [
        ("bytes", None, "/w=="),
        ("bytes", "a", None),
        ("text", "b", None),
        ("json", {"c": 1}, None),
        ("json", None, None),
    ]


@pytest.mark.parametrize("option", ["--keep", "--no-ack"])
def test_get_with_keep_gives_the_messages_back(run: Run, small: Path, option: str) -> None:
    run("put", small, "--lines", input="a\nb\n")
    assert run("get", small, option, "-n", "5").stdout == "a\nb\n"
    assert run("get", small, "-n", "5").stdout == "a\nb\n"


def test_get_follow_writes_what_comes_until_ctrl_c(run: Run, start: Start, small: Path) -> None:
    process = start("get", small, "--follow", "--json")
    assert process.stdout is not None
    for body in ("a", "b"):
        run("put", small, body)
        assert b'"body": "%s"' % body.encode() in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.stdout.read() == b""
    _, error = process.communicate(timeout=END_S)
    assert (process.returncode, error) == (exits.INTERRUPTED, b"")
    with penstock.open(small) as q:
        stats = q.stats()
        assert (stats.acks, stats.pending, stats.waiting, len(stats.clients)) == (2, 0, 0, 1)


def unread_bytes(pipe: IO[bytes]) -> int:
    """What is in a pipe and not yet in the buffer of its reader."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_get_follow_that_is_interrupted_while_its_reader_is_slow_loses_nothing(start: Start, large: Path) -> None:
    """Every message is either whole in the output or in the queue again; what was acknowledged is in the output."""
    bodies = [b"%05d" % i + b"x" * 1000 for i in range(2000)]
    with penstock.open(large) as q:
        q.put_many(bodies)
        process = start("get", large, "--follow")
        assert process.stdout is not None
        seen = process.stdout.read(5 * 1006)
        end = time.monotonic() + END_S
        while unread_bytes(process.stdout) < 1006:  # then the writer waits until that is read
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        seen += process.stdout.read()  # not communicate(), which passes over what is buffered here
        _, error = process.communicate(timeout=END_S)
        assert (process.returncode, error) == (exits.INTERRUPTED, b"")
        stats = q.stats()
        written = [line for line in seen.split(b"\n") if len(line) == 1005]
        left = [m.body for m in q.browse()]
        assert stats.pending == 0
        assert left == bodies[stats.acks :]
        assert written[: stats.acks] == bodies[: stats.acks]


def test_get_gives_a_message_back_when_its_reader_is_gone(run: Run, start: Start, small: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    run("put", small, "precious")
    process = start("get", small, stdout=writing)
    os.close(writing)
    _, error = process.communicate(timeout=END_S)
    assert (process.returncode, error) == (exits.NO_READER, b"")
    with penstock.open(small) as q:
        stats = q.stats()
        assert (stats.waiting, stats.pending, stats.acks, stats.releases) == (1, 0, 0, 1)
    assert run("get", small).stdout == "precious\n"


def test_get_follow_into_head_loses_nothing_that_head_did_not_get(start: Start, large: Path) -> None:
    bodies = [b"%05d" % i + b"x" * 1000 for i in range(2000)]
    with penstock.open(large) as q:
        q.put_many(bodies)
        process = start("get", large, "--follow")
        assert process.stdout is not None
        head = process.stdout.read(3 * 1006)
        process.stdout.close()
        process.stdout = None
        _, error = process.communicate(timeout=END_S)
        assert (process.returncode, error) == (exits.NO_READER, b"")
        assert head == b"\n".join(bodies[:3]) + b"\n"
        stats = q.stats()
        # What the reader took out of the pipe is out of our hands (its buffer takes more than it asked for); what it
        # left there is here.
        assert [m.body for m in q.browse()] == bodies[stats.acks :]
        assert stats.pending == 0
        assert stats.acks * 1006 <= 3 * 1006 + 8192


def test_get_follow_acknowledges_nothing_that_is_only_in_the_pipe(start: Start, large: Path) -> None:
    with penstock.open(large) as q:
        q.put_many([b"first", b"second", b"third"])
        process = start("get", large, "--follow", "--lease", "0.3")
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 6) == b"first\n"
        time.sleep(1)  # longer than the lease, which is extended meanwhile
        assert (q.stats().acks, q.stats().pending, q.stats().expired) == (1, 1, 0)
        process.stdout.close()
        process.stdout = None
        process.communicate(timeout=END_S)
        assert process.returncode == exits.NO_READER
        assert [m.data for m in q.browse()] == [b"second", b"third"]


def test_get_in_batches_gives_the_whole_batch_back_when_the_output_fails(start: Start, large: Path) -> None:
    bodies = [b"%d" % i for i in range(500)]
    with penstock.open(large) as q:
        q.put_many(bodies)
        with open("/dev/full", "wb") as full:
            process = start("get", large, "--follow", "--batch", "100", stdout=full)
            _, error = process.communicate(timeout=END_S)
        assert process.returncode == exits.SYSTEM
        assert error == b"penstock: No space left on device\n"
        assert [m.body for m in q.browse()] == bodies
        assert q.stats().acks == 0


def test_get_that_is_killed_gives_its_message_back(start: Start, large: Path) -> None:
    with penstock.open(large) as q:
        q.put(bytes(200_000))  # more than a pipe holds: it hangs in the write
        process = start("get", large, stdout=subprocess.PIPE)
        end = time.monotonic() + END_S
        while q.stats().pending == 0 and time.monotonic() < end:
            time.sleep(0.01)
        process.kill()
        process.wait()
        with q.get(timeout=END_S) as message:
            assert message.attempts == 2


def test_get_whose_lease_ends_while_it_writes_says_so(run: Run, start: Start, large: Path) -> None:
    with penstock.open(large) as q:
        q.put(bytes(200_000))
        process = start("get", large, "--lease", "100ms")
        end = time.monotonic() + END_S
        while q.stats().pending == 0 and time.monotonic() < end:
            time.sleep(0.01)
        with q.get(timeout=END_S) as message:
            assert message.attempts == 2
        out, error = process.communicate(timeout=END_S)
        assert len(out) == 200_001
        assert process.returncode == exits.NOTHING
        assert b"longer than its lease" in error
        assert error.count(b"\n") == 1
