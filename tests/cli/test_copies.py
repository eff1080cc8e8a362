"""penstock backup, export and import."""

from __future__ import annotations

import gzip
import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest

import penstock
from penstock.cli import exits
from penstock.timequeue import check_queue

from .conftest import END_S, Run, Start, one_error, rows


@pytest.fixture
def orders(small: Path) -> Path:
    """A queue with three messages of different kinds."""
    with penstock.open(small) as q:
        q.put_many([b"bytes", "text", penstock.Draft(body={"order": 7}, priority=3, type="order", delay=3600)])
    return small


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A queue whose second of three messages lost a byte of its body."""
    path = tmp_path / "damaged"
    with penstock.create(path, slots=10, data_bytes=1 << 16) as q:
        q.put_many([b"first", b"second-body", b"third"])
    at = (path / "data.0").read_bytes().index(b"second-body")
    with open(path / "data.0", "r+b") as file:
        file.seek(at)
        file.write(b"X")
    return path


def bodies(path: Path) -> list[object]:
    with penstock.open(path) as q:
        return [message.body for message in sorted(q.browse(state="all"), key=lambda m: m.number)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------- backup


def test_backup_makes_a_queue_with_the_same_messages_and_ids(run: Run, orders: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert run("backup", orders, copy).stdout == f"{copy}: 3 messages, 768 B\n"
    assert "fine" in run("check", copy).stdout
    assert rows(run("peek", copy, "--json")) == rows(run("peek", orders, "--json"))
    assert run("get", copy).stdout == "bytes\n"
    assert bodies(orders) == [b"bytes", "text", {"order": 7}]


def test_backup_prints_what_it_copied_as_json(run: Run, orders: Path, tmp_path: Path) -> None:
    (same,) = rows(run("backup", orders, tmp_path / "copy", "--json"))
    (other,) = rows(run("backup", orders, tmp_path / "other", "--new-identity", "--json"))
    (original,) = rows(run("stat", orders, "--json"))
    assert same["uuid"] == original["uuid"] != other["uuid"]
    assert (same["path"], same["messages"], same["pending"]) == (str(tmp_path / "copy"), 3, 0)
    assert (same["used_bytes"], same["spilled_bytes"], same["gone"], same["findings"]) == (768, 0, 0, [])


def test_backup_never_overwrites(run: Run, orders: Path, tmp_path: Path) -> None:
    run("backup", orders, tmp_path / "copy")
    assert "already" in one_error(run("backup", orders, tmp_path / "copy", code=exits.NO_QUEUE))
    (tmp_path / "file").write_text("mine")
    assert "already" in one_error(run("backup", orders, tmp_path / "file", code=exits.NO_QUEUE))
    assert names(tmp_path) == ["copy", "file", "orders"]


def test_backup_of_a_damaged_message_says_where_leaves_it_out_and_is_an_error(
    run: Run, damaged: Path, tmp_path: Path
) -> None:
    result = run("backup", damaged, tmp_path / "copy", code=exits.DAMAGED)
    assert f"{damaged / 'data.0'}:256: message 2" in result.stderr
    assert "2 messages" in result.stdout
    assert bodies(tmp_path / "copy") == [b"first", b"third"]
    (found,) = rows(run("backup", damaged, tmp_path / "again", "--json", code=exits.DAMAGED))
    assert [finding["offset"] for finding in found["findings"]] == [256]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_backup_that_is_interrupted_leaves_nothing(start: Start, tmp_path: Path, number: int, code: int) -> None:
    path = tmp_path / "q"
    penstock.create(path, slots=10, data_bytes=256 << 20, durability="relaxed").close()
    process = start("backup", path, tmp_path / "copy")
    end = time.monotonic() + END_S
    while not list(tmp_path.glob(".copy.*/data.0")) and time.monotonic() < end:
        time.sleep(0.005)
    process.send_signal(number)
    assert process.communicate(timeout=END_S) == (b"", b"")
    assert process.returncode == code
    assert not (tmp_path / "copy").exists()
    if number != signal.SIGKILL:
        assert names(tmp_path) == ["q"]
    assert check_queue(path) == []


# ---------------------------------------------------------------- export


def test_export_writes_a_file_that_import_reads(run: Run, orders: Path, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    assert run("export", orders, file).stdout == f"{file}: 3 messages\n"
    assert run("import", tmp_path / "new", file, "--create").stdout == "3 messages put\n"
    assert bodies(tmp_path / "new") == bodies(orders) == [b"bytes", "text", {"order": 7}]
    assert check_queue(tmp_path / "new") == []
    assert names(tmp_path) == ["new", "orders", "orders.jsonl"]


def test_export_to_standard_output_is_json_lines_and_nothing_else(run: Run, orders: Path) -> None:
    for words in ([], ["-"], ["--json"]):
        result = run("export", orders, *words)
        head, *found, end = rows(result)
        assert (head["penstock_export"], end) == (1, {"messages": 3})
        assert [row["codec"] for row in found] == ["bytes", "str", "json"]
        assert result.stderr == ""


def test_export_of_some_states(run: Run, orders: Path) -> None:
    with penstock.open(orders) as q:
        held = q.get(block=False)
        assert [row["id"] for row in rows(run("export", orders, "--state", "pending"))[1:-1]] == [held.id]
        assert len(rows(run("export", orders, "--state", "waiting"))) == 4


def test_export_says_as_json_what_it_wrote_and_never_overwrites(run: Run, orders: Path, tmp_path: Path) -> None:
    file = tmp_path / "x"
    assert rows(run("export", orders, file, "--json")) == [
        {"path": str(file), "messages": 3, "gone": 0, "findings": []}
    ]
    before = file.read_bytes()
    assert "exists" in one_error(run("export", orders, file, code=exits.SYSTEM))
    assert file.read_bytes() == before
    one_error(run("export", orders, tmp_path / "none" / "x", code=exits.SYSTEM))
    assert names(tmp_path) == ["orders", "x"]


def test_export_to_a_device_is_not_refused(run: Run, orders: Path) -> None:
    run("export", orders, "/dev/null")


def test_export_of_a_damaged_message_says_where_and_leaves_it_out(run: Run, damaged: Path, tmp_path: Path) -> None:
    result = run("export", damaged, code=exits.DAMAGED)
    assert f"{damaged / 'data.0'}:256: message 2" in result.stderr
    assert json.loads(result.stdout.splitlines()[-1]) == {"messages": 2}
    (found,) = rows(run("export", damaged, tmp_path / "x", "--json", code=exits.DAMAGED))
    assert [finding["offset"] for finding in found["findings"]] == [256]


def test_export_whose_reader_goes_away_ends_quietly(start: Start, large: Path) -> None:
    with penstock.open(large) as q:
        q.put_many([bytes(100)] * 10_000)
    process = start("export", large)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(100)
    process.stdout.close()
    assert process.wait(timeout=END_S) == exits.NO_READER
    assert process.stderr.read() == b""


def test_export_that_is_interrupted_leaves_no_file(start: Start, large: Path, tmp_path: Path) -> None:
    with penstock.open(large) as q:
        q.put_many([b"x"] * 20_000)
    process = start("export", large, tmp_path / "x")
    end = time.monotonic() + END_S
    while not list(tmp_path.glob(".x.*")) and time.monotonic() < end:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=END_S)
    if process.returncode == exits.INTERRUPTED:  # else it was done before the signal came
        assert names(tmp_path) == ["many"]
    else:
        assert (process.returncode, names(tmp_path)) == (0, ["many", "x"])


# ---------------------------------------------------------------- import


def test_import_from_standard_input_and_through_a_pipe(run: Run, orders: Path, tmp_path: Path) -> None:
    text = run("export", orders).stdout
    run("create", tmp_path / "new", "--slots", "10", "--data-bytes", "64K")
    assert run("import", tmp_path / "new", input=text).stdout == "3 messages put\n"
    assert rows(run("import", tmp_path / "new", "-", "--json", input=text)) == [
        {"path": str(tmp_path / "new"), "imported": 3, "skipped": 0}
    ]
    assert len(bodies(tmp_path / "new")) == 6
    (tmp_path / "x.gz").write_bytes(gzip.compress(text.encode()))
    assert "not an export" in one_error(run("import", tmp_path / "new", tmp_path / "x.gz", code=exits.USAGE))


def test_import_create_makes_a_queue_like_the_exported_one_and_never_takes_another(
    run: Run, orders: Path, tmp_path: Path
) -> None:
    run("export", orders, tmp_path / "x")
    assert "already" in one_error(run("import", orders, tmp_path / "x", "--create", code=exits.NO_QUEUE))
    run("import", tmp_path / "new", tmp_path / "x", "--create")
    ours, theirs = (rows(run("stat", path, "--json"))[0] for path in (orders, tmp_path / "new"))
    assert (ours["slots"], ours["data_bytes"]) == (theirs["slots"], theirs["data_bytes"])
    assert ours["uuid"] != theirs["uuid"]


def test_import_into_a_full_queue_says_how_many_are_in_and_goes_on_with_skip(
    run: Run, large: Path, tmp_path: Path
) -> None:
    with penstock.open(large) as q:
        q.put_many(list(range(1300)))
    run("export", large, tmp_path / "x")
    run("create", tmp_path / "new", "--slots", "1100", "--data-bytes", "1M", "--durability", "relaxed")
    line = one_error(run("import", tmp_path / "new", tmp_path / "x", code=exits.FULL))
    assert "slots" in line
    assert line.endswith("1000 messages are in, go on with --skip 1000")
    run("get", tmp_path / "new", "-n", "1000", "--batch", "1000")
    assert run("import", tmp_path / "new", tmp_path / "x", "--skip", "1000").stdout == "300 messages put\n"
    assert bodies(tmp_path / "new") == list(range(1000, 1300))
    assert rows(run("import", tmp_path / "new", tmp_path / "x", "--json", code=exits.FULL))[0]["imported"] == 500


def test_import_of_a_file_that_was_cut_short_puts_nothing(run: Run, large: Path, small: Path, tmp_path: Path) -> None:
    with penstock.open(large) as q:
        q.put_many(list(range(50)))
    whole = run("export", large).stdout_bytes
    for cut in (0, 1, 100, len(whole) // 2, len(whole) - 3, len(whole) - 18):
        (tmp_path / "x").write_bytes(whole[:cut])
        one_error(run("import", small, tmp_path / "x", code=exits.USAGE))
        one_error(run("import", small, input=whole[:cut], code=exits.USAGE))
    assert bodies(small) == []
    (tmp_path / "x").write_bytes(whole[:-1])  # the last newline says nothing
    run("import", small, tmp_path / "x")
    assert len(bodies(small)) == 50


def test_import_names_a_wrong_line(run: Run, orders: Path, small: Path, tmp_path: Path) -> None:
    head, first, _, third, end = run("export", orders).stdout.splitlines()
    (tmp_path / "x").write_text("\n".join([head, first, "nonsense", third, end]))
    before = bodies(small)
    line = one_error(run("import", small, tmp_path / "x", code=exits.USAGE))
    assert "line 3" in line
    assert "nothing was put" in line
    assert bodies(small) == before


def test_import_that_skips_past_the_end_says_so(run: Run, orders: Path, small: Path, tmp_path: Path) -> None:
    run("export", orders, tmp_path / "x")
    before = bodies(small)
    line = one_error(run("import", small, tmp_path / "x", "--skip", "4", code=exits.USAGE))
    assert line.endswith(f"{tmp_path / 'x'}: --skip 4 is past the end: it has 3 messages; nothing was put")
    text = (tmp_path / "x").read_text()
    assert "standard input: --skip 9" in one_error(run("import", small, "--skip", "9", input=text, code=exits.USAGE))
    assert run("import", small, tmp_path / "x", "--skip", "3").stdout == "0 messages put\n"
    assert bodies(small) == before


def test_import_names_the_file_that_is_no_export(run: Run, small: Path, tmp_path: Path) -> None:
    (tmp_path / "x").write_text('nonsense\n{"messages":0}\n')
    assert f"{tmp_path / 'x'}: line 1:" in one_error(run("import", small, tmp_path / "x", code=exits.USAGE))
    assert "standard input: line 1:" in one_error(run("import", small, input="nonsense", code=exits.USAGE))


def test_export_names_the_file_that_cannot_be_written(run: Run, start: Start, orders: Path, tmp_path: Path) -> None:
    assert "/dev/full: No space left" in one_error(run("export", orders, "/dev/full", code=exits.SYSTEM))
    missing = tmp_path / "no" / "x"
    assert f" {missing}: No such file" in one_error(run("export", orders, missing, code=exits.SYSTEM))
    with open("/dev/full", "wb") as full:
        process = start("export", orders, stdout=full)
    assert process.communicate(timeout=END_S)[1] == b"penstock: standard output: No space left on device\n"


def test_import_of_a_file_that_is_not_there_is_one_line(run: Run, small: Path, tmp_path: Path) -> None:
    assert "nofile" in one_error(run("import", small, tmp_path / "nofile", code=exits.SYSTEM))


def test_import_that_is_interrupted_says_how_many_are_in(run: Run, start: Start, large: Path, tmp_path: Path) -> None:
    with penstock.open(large) as q:
        q.put_many(list(range(1500)))
    lines = run("export", large).stdout_bytes.splitlines(keepends=True)
    run("create", tmp_path / "new", "--slots", "2000", "--data-bytes", "1M", "--durability", "relaxed")
    process = start("import", tmp_path / "new", stdin=subprocess.PIPE)
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(b"".join(lines[:1100]))
    process.stdin.flush()
    with penstock.open(tmp_path / "new") as q:
        end = time.monotonic() + END_S
        while q.qsize() < 1000 and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=END_S) == exits.INTERRUPTED
        assert process.stderr.read() == b"penstock: interrupted; 1000 messages are in, go on with --skip 1000\n"
        assert q.qsize() == 1000


@pytest.mark.parametrize("command", ["backup", "export", "import"])
def test_progress_is_shown_on_a_terminal_and_only_there(
    run: Run, start: Start, large: Path, tmp_path: Path, command: str
) -> None:
    with penstock.open(large) as q:
        q.put_many([b"x" * 100] * 5000)
    run("export", large, tmp_path / "x")
    target = {"backup": "copy", "export": "y", "import": "x"}[command]
    ours, theirs = pty.openpty()
    process = start(command, large, tmp_path / target, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # the other end was closed
        pass
    finally:
        os.close(ours)
    assert process.wait(timeout=END_S) == 0
    assert {"backup": b"copying", "export": b"exporting", "import": b"importing"}[command] in shown
