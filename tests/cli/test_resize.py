"""penstock resize and upgrade: other sizes and the newest layout, offline."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import penstock
from penstock.cli import exits
from penstock.store import resizing

from .conftest import Run, Start, one_error, rows


def test_a_queue_gets_other_sizes_and_keeps_what_is_in_it(run: Run, small: Path) -> None:
    run("put", small, "--lines", input="".join(f"{i}\n" for i in range(20)))
    before = rows(run("peek", small, "-n", "0", "--json"))
    assert "200 slots, 2 MiB of data" in run("resize", small, "--slots", "200", "--data-bytes", "2M").stdout
    (found,) = rows(run("resize", small, "--slots", "50", "--json"))
    assert (found["slots"], found["data_bytes"], found["changed"]) == (50, 2 << 20, True)
    assert rows(run("stat", small, "--json"))[0]["slots"] == 50
    assert rows(run("peek", small, "-n", "0", "--json")) == before
    assert "has these sizes already" in run("resize", small, "--slots", "50").stdout


def test_what_is_in_the_way_is_one_line_that_says_what_fits(run: Run, small: Path) -> None:
    run("put", small, "--lines", input="".join(f"{i}\n" for i in range(20)))
    line = one_error(run("resize", small, "--slots", "10", code=exits.USAGE))
    assert "10 messages are behind slot 11" in line and "at least 20 slots" in line


def test_living_clients_are_named(run: Run, small: Path) -> None:
    with penstock.open(small):
        for words in (["resize", small, "--slots", "200"], ["upgrade", small]):
            line = one_error(run(*words, code=exits.BUSY))
            assert f"process {os.getpid()}" in line and str(small) in line


@pytest.mark.parametrize(
    "words", [[], ["--slots", "0"], ["--slots", "many"], ["--data-bytes", "1"], ["--data-bytes", "999999999T"]]
)
def test_sizes_that_cannot_be_are_usage_errors(run: Run, small: Path, words: list[str]) -> None:
    one_error(run("resize", small, *words, code=exits.USAGE))


def test_a_queue_of_this_version_is_current(run: Run, small: Path) -> None:
    assert "the queue is current" in run("upgrade", small).stdout
    (found,) = rows(run("upgrade", small, "--json"))
    assert (found["changed"], found["slots"]) == (False, 100)


def test_a_resize_that_was_cut_short_is_found_and_completed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "queue"
    with penstock.create(path, slots=10, data_bytes=1 << 16, durability="relaxed") as q:
        q.put(b"kept")
    options = json.loads((path / "queue.json").read_text())
    options["slots_most"] = 10
    del options["check"]
    (path / resizing.NEXT).write_text(json.dumps(options))
    (finding,) = rows(run("check", path, "--json", code=exits.NOTHING))[0]["findings"]
    assert finding["what"] == resizing.CUT_SHORT
    assert run("get", path).stdout == "kept\n"
    assert rows(run("check", path, "--json"))[0]["ok"] is True
    assert not (path / resizing.NEXT).exists()


def test_killed_on_the_way_it_is_one_or_the_other(run: Run, start: Start, tmp_path: Path) -> None:
    path = tmp_path / "queue"
    with penstock.create(path, slots=1000, data_bytes=1 << 20, durability="relaxed") as q:
        q.put_many([b"%d" % i for i in range(500)])
    process = start("resize", path, "--slots", "300k", "--data-bytes", "512M")
    while not (path / "kernel-next").exists() and process.poll() is None:
        pass
    process.kill()
    process.wait()
    with penstock.open(path) as q:
        assert q.stats().slots in (1000, 300_000)
        assert [message.data for message in q.get_many(1000)] == [b"%d" % i for i in range(500)]
    assert rows(run("check", path, "--json"))[0]["ok"] is True
