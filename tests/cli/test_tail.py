"""penstock tail: what is put is shown as it comes, in its order, and nothing is taken."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from subprocess import DEVNULL, Popen

import pytest

import penstock
from penstock.cli import exits
from penstock.timequeue.following import Following
from penstock.timequeue.puts import entry
from tests.crash.rig import in_child

from .conftest import END_S, Run, Start, rows


def line(process: Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode()


def wait_for_another(queue: penstock.TimeQueue) -> None:
    """Until the program has it open."""
    end_s = time.monotonic() + END_S
    while len(queue._mine().living()) < 2:
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_the_last_messages_are_shown_in_the_order_in_which_they_were_put(run: Run, small: Path) -> None:
    run("put", small, "--lines", input="".join(f"{i}\n" for i in range(20)))
    run("put", small, "urgent", "--priority", "9")
    run("put", small, "later", "--delay", "1h", "--type", "order", "--key", "k")
    text = run("tail", small, "--no-follow").stdout.splitlines()
    assert [each.rpartition("  ")[2] for each in text] == [*(str(i) for i in range(12, 20)), "urgent", "later"]
    assert "type=order  key=k  5 B" in text[-1]
    assert [row["body"] for row in rows(run("tail", small, "--no-follow", "-n", "2", "--json"))] == ["urgent", "later"]
    assert len(rows(run("tail", small, "--no-follow", "-n", "1000", "--json"))) == 22
    assert run("tail", small, "--no-follow", "-n", "0").stdout == ""
    with penstock.open(small) as q:
        assert (q.qsize(), q.stats().gets) == (22, 0)


def test_types_and_keys_are_chosen_before_they_are_counted(run: Run, large: Path) -> None:
    with penstock.open(large) as q:
        for i in range(1000):
            q.put(b"%d" % i, type="abc"[i % 3], key="xy"[i % 2])
    found = rows(run("tail", large, "--no-follow", "-n", "3", "--type", "a", "--json"))
    assert [row["body"] for row in found] == ["993", "996", "999"]
    found = rows(run("tail", large, "--no-follow", "--type", "a", "--type", "b", "--key", "x", "--json", "-n", "2"))
    assert [row["body"] for row in found] == ["994", "996"]
    assert run("tail", large, "--no-follow", "--key", "z").stdout == ""


def test_messages_with_a_receiver_are_shown_as_pending(run: Run, small: Path) -> None:
    with penstock.open(small) as q:
        q.put_many([b"a", b"b"])
        q.get(block=False)
        found = rows(run("tail", small, "--no-follow", "--json"))
    assert [(row["body"], row["state"], row["attempts"]) for row in found] == [("a", "pending", 1), ("b", "waiting", 0)]


def test_what_is_put_is_followed_until_ctrl_c(start: Start, small: Path) -> None:
    with penstock.open(small) as q:
        q.put(b"old")
        process = start("tail", small, "--json", "--interval", "20ms", "--type", "t", "-n", "0")
        wait_for_another(q)
        time.sleep(0.3)
        for start_at in (0, 25):
            for i in range(start_at, start_at + 25):
                q.put({"n": i}, type="t", delay=i % 2)
                q.put(b"other", type="u")
            seen = [json.loads(line(process))["body"]["n"] for _ in range(25)]
            assert seen == list(range(start_at, start_at + 25))
            q.ack_many(q.get_many(3))
        process.send_signal(signal.SIGINT)
        assert process.wait(END_S) == exits.INTERRUPTED
        assert process.stderr is not None and process.stderr.read() == b""
        assert q.stats().gets == 6


def test_a_reader_that_goes_away_ends_it_though_nothing_is_put(start: Start, small: Path) -> None:
    with penstock.open(small) as q:
        q.put(b"x")
    process = start("tail", small)
    assert line(process).endswith("x\n")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(END_S) == exits.NO_READER
    assert process.stderr.read() == b""


def test_a_queue_that_vanishes_ends_it_with_one_line(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "queue"
    with penstock.create(path, slots=10, data_bytes=1 << 16) as q:
        q.put(b"x")
    process = start("tail", path, "--interval", "20ms", stdin=DEVNULL)
    assert line(process).endswith("x\n")
    shutil.rmtree(path)
    assert process.wait(END_S) == exits.NO_QUEUE
    assert process.stderr is not None
    assert process.stderr.read().decode() == f"penstock: {path}: the queue is not there any more\n"


def test_a_damaged_message_is_said_and_passed_over(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "queue"
    with penstock.create(path, slots=10, data_bytes=1 << 16, durability="relaxed") as q:
        q.put_many([b"one", b"two", b"three"])
    with open(path / "data.0", "r+b") as file:
        file.seek(256 + 56)  # the body of the second record
        file.write(b"\xff\xff\xff")
    result = run("tail", path, "--no-follow", "--json")
    assert [row["body"] for row in rows(result)] == ["one", "three"]
    assert result.stderr.count("\n") == 1 and "message 2" in result.stderr


def test_one_that_was_begun_earlier_and_published_later_is_not_missed(small: Path) -> None:
    with penstock.open(small) as q, penstock.open(small) as other:
        following = Following(q)
        assert following.newest(10) == []
        client, producer = other._mine(), other._producer
        slow = [entry(b"slow", 1, None, None, 0, None, None, None)]
        client.turn(producer._reserve, slow)
        q.put(b"quick")
        assert [message.data for message in following.news()] == [b"quick"]
        assert list(following.news()) == []
        producer._copy(slow, 1, sync=False, batch=True)
        client.turn(producer._publish, slow, None)
        client.filling.clear()
        assert [message.data for message in following.news()] == [b"slow"]
        q.put(b"last")
        assert [message.data for message in following.news()] == [b"last"]
        assert list(following.news()) == []


def test_a_producer_that_died_is_not_waited_for(small: Path) -> None:
    def die() -> None:
        other = penstock.open(small)
        other._mine().turn(other._producer._reserve, [entry(b"never", 1, None, None, 0, None, None, None)])

    with penstock.open(small) as q:
        following = Following(q)
        assert in_child(die) == 0
        for i in range(4):
            q.put(b"%d" % i)
            assert [message.data for message in following.news()] == [b"%d" % i]
        assert following._seen == set()
        assert q.stats().filling == 0


@pytest.mark.parametrize("words", [["--lines", "-1"], ["--interval", "soon"], ["--interval", "0"], ["--lines", "x"]])
def test_bad_values_are_usage_errors(run: Run, small: Path, words: list[str]) -> None:
    run("tail", small, *words, code=exits.USAGE)


def test_it_does_not_keep_a_queue_from_its_receivers(start: Start, small: Path) -> None:
    process = start("tail", small, "--interval", "10ms", stdout=DEVNULL)
    with penstock.open(small) as q:
        wait_for_another(q)
        for i in range(200):
            q.put(b"%d" % i)
            q.get(timeout=5).ack()
    process.send_signal(signal.SIGTERM)
    assert process.wait(END_S) == exits.TERMINATED
