"""penstock put."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import penstock
from penstock.cli import exits

from .conftest import END_S, Run, Start, one_error, rows


def test_put_prints_the_id_and_the_message_has_every_option(run: Run, small: Path) -> None:
    result = run("put", small, "hello", "--deliver-at", "2000-01-02T03:04:05+01:00", "--priority", "3",
                 "--type", "order", "--key", "example.com", "--header", "a=b", "--header", "c=d=e")  # fmt: skip
    with penstock.open(small) as q, q.get(block=False) as message:
        assert result.stdout == f"{message.id}\n"
        assert message.body == b"hello"
        assert message.deliver_at == datetime(2000, 1, 2, 2, 4, 5, tzinfo=UTC)
        assert (message.priority, message.type, message.key) == (3, "order", "example.com")
        assert message.headers == {"a": "b", "c": "d=e"}


def test_put_as_text_and_as_json_gives_these_values_back(run: Run, small: Path) -> None:
    run("put", small, "Grüße", "--as", "text")
    run("put", small, '{"order": 7}', "--as", "json")
    with penstock.open(small) as q:
        assert [m.body for m in q.get_many(2)] == ["Grüße", {"order": 7}]


def test_put_with_a_delay_waits_for_its_time(run: Run, small: Path) -> None:
    run("put", small, "later", "--delay", "1h")
    one_error(run("get", small, code=exits.NOTHING))
    (row,) = rows(run("peek", small, "--json"))
    wait = datetime.fromisoformat(row["deliver_at"]) - datetime.fromisoformat(row["enqueued_at"])
    assert abs(wait.total_seconds() - 3600) < 1


def test_put_with_an_epoch_time_keeps_its_microseconds(run: Run, small: Path) -> None:
    run("put", small, "later", "--deliver-at", "4000000000.25")
    assert rows(run("peek", small, "--json"))[0]["deliver_at"] == "2096-10-02T07:06:40.250000+00:00"


def test_put_reads_the_body_from_standard_input_or_a_file_byte_for_byte(run: Run, small: Path, tmp_path: Path) -> None:
    anything = bytes(range(256)) + b"\n\r\n"
    (tmp_path / "body").write_bytes(anything)
    run("put", small, "-", input=anything)
    run("put", small, "--file", tmp_path / "body")
    run("put", small, "")
    with penstock.open(small) as q:
        assert [m.body for m in q.get_many(3)] == [anything, anything, b""]


def test_put_from_a_file_that_is_not_there_is_one_line(run: Run, small: Path, tmp_path: Path) -> None:
    assert "nofile" in one_error(run("put", small, "--file", tmp_path / "nofile", code=exits.SYSTEM))
    assert "nofile" in one_error(run("put", small, "--lines", "--file", tmp_path / "nofile", code=exits.SYSTEM))


def test_put_into_a_full_queue_says_what_ran_out(run: Run, small: Path) -> None:
    with penstock.open(small) as q:
        q.put_many([b"x"] * 100)
    line = one_error(run("put", small, "y", code=exits.FULL))
    assert "all 100 slots are in use" in line and "--timeout" in line and line.endswith("`penstock resize` (--slots)")
    start = time.monotonic()
    assert "slots" in one_error(run("put", small, "y", "--timeout", "100ms", code=exits.FULL))
    assert time.monotonic() - start >= 0.1


def test_put_of_a_body_that_can_never_fit_is_a_usage_error(run: Run, small: Path) -> None:
    assert "--data-bytes" in one_error(run("put", small, "-", input=bytes(2 << 20), code=exits.USAGE))


def test_put_without_room_for_the_body_names_the_option(run: Run, small: Path) -> None:
    with penstock.open(small) as q:
        for _ in range(3):
            q.put(bytes(300_000))
    line = one_error(run("put", small, "-", input=bytes(300_000), code=exits.FULL))
    assert line.endswith("`penstock resize` (--data-bytes)") and "data_bytes=" not in line


def test_put_lines_from_standard_input_puts_10000_messages_in_order(run: Run, large: Path) -> None:
    lines = [f"line {i}" for i in range(10_000)]
    result = run("put", large, "--lines", input="\n".join(lines) + "\n")
    assert result.stdout == "10000 messages put\n"
    assert result.stderr == ""
    with penstock.open(large) as q:
        assert [m.body.decode() for m in q.browse()] == lines


def test_put_lines_from_a_file_puts_10000_messages_and_can_print_their_ids(
    run: Run, large: Path, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("\n".join(f"line {i}" for i in range(10_000)))  # no newline at the end
    found = rows(run("put", large, "--lines", "--file", tmp_path / "lines", "--ids", "--json"))
    with penstock.open(large) as q:
        assert [m.id for m in q.browse()] == [row["id"] for row in found]
        assert q.qsize() == 10_000


def test_put_lines_keeps_empty_lines_and_bytes_that_are_not_text(run: Run, small: Path) -> None:
    run("put", small, "--lines", "-", input=b"\xff\xfe\n\na\r\n")
    with penstock.open(small) as q:
        assert [m.body for m in q.browse()] == [b"\xff\xfe", b"", b"a\r"]


def test_put_lines_of_nothing_puts_nothing(run: Run, small: Path) -> None:
    assert run("put", small, "--lines", input="").stdout == "0 messages put\n"


def test_put_lines_fills_the_queue_to_the_last_slot_and_says_how_many_were_put(run: Run, small: Path) -> None:
    result = run("put", small, "--lines", input="x\n" * 150, code=exits.FULL)
    assert "100 lines were put" in one_error(result)
    with penstock.open(small) as q:
        assert q.qsize() == 100
        q.purge()
    result = run("put", small, "--lines", "--json", input="x\n" * 150, code=exits.FULL)
    assert rows(result) == [{"put": 100}]


def test_put_lines_with_a_timeout_goes_on_as_room_comes(run: Run, start: Start, small: Path) -> None:
    process = start("put", small, "--lines", "--timeout", "10s", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"".join(b"%d\n" % i for i in range(250)))
    process.stdin.close()
    process.stdin = None
    result = run("get", small, "--count", "250", "--timeout", "10s")
    assert result.stdout.split() == [str(i) for i in range(250)]
    assert process.communicate(timeout=END_S) == (b"250 messages put\n", b"")


def test_put_lines_that_are_not_json_names_the_line(run: Run, small: Path) -> None:
    line = one_error(run("put", small, "--lines", "--as", "json", input='1\n{"a": 2}\nx\n4\n', code=exits.USAGE))
    assert "line 3" in line
    assert "2 lines were put" in line
    with penstock.open(small) as q:
        assert [m.body for m in q.browse()] == [1, {"a": 2}]


def test_put_lines_does_not_wait_for_a_full_batch_and_ends_cleanly_on_ctrl_c(start: Start, small: Path) -> None:
    process = start("put", small, "--lines", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"first\nsec")
    process.stdin.flush()
    with penstock.open(small) as q:
        with q.get(timeout=END_S) as message:
            assert message.body == b"first"
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=END_S)
        assert process.returncode == exits.INTERRUPTED
        assert (out, error) == (b"", b"penstock: interrupted; 1 lines were put\n")
        assert q.qsize() == 0


def test_put_lines_shows_its_progress_on_a_terminal_and_only_there(start: Start, large: Path, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("x\n" * 3000)
    ours, theirs = pty.openpty()
    try:
        process = start("put", large, "--lines", "--file", tmp_path / "lines", stderr=theirs)
        out, _ = process.communicate(timeout=END_S)
        assert out == b"3000 messages put\n"
        assert b"putting" in os.read(ours, 100_000)
    finally:
        os.close(ours)
        os.close(theirs)


def _answer(path: Path, replies: list[object]) -> None:
    with penstock.open(path) as q:
        for reply in replies:
            message = q.get(timeout=END_S)
            if message.wants_reply:
                message.reply(reply)
            else:
                message.ack()


def test_put_waits_for_a_receiver_and_prints_the_reply(run: Run, small: Path) -> None:
    receiver = threading.Thread(target=_answer, args=(small, [b"\xff", "text", {"a": 1}, b"ok", None]))
    receiver.start()
    asked = ("put", small, "?", "--model", "two-way", "--timeout", f"{END_S}s")
    assert run(*asked).stdout_bytes == b"\xff"
    assert run(*asked).stdout == "text\n"
    assert run(*asked).stdout == '{"a": 1}\n'
    assert json.loads(run(*asked, "--json").stdout) == {"kind": "bytes", "body": "ok"}
    acknowledged = run("put", small, "!", "--model", "acknowledged", "--timeout", f"{END_S}s")
    assert acknowledged.stdout.count("-") == 2, "its id"
    receiver.join()


def test_put_without_an_answer_in_time_says_so(run: Run, small: Path) -> None:
    result = run("put", small, "?", "--model", "two-way", "--timeout", "10ms", code=exits.NOTHING)
    assert "was not answered within" in one_error(result)
    one_error(run("put", small, "--lines", "--model", "two-way", input="a\n", code=exits.USAGE))
    assert run("put", small, "stored", "--model", "one-way").stdout
    assert run("put", small, "--lines", "--model", "queued-acknowledged", input="a\nb\n").stdout == "2 messages put\n"
