"""penstock create."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

import penstock
from penstock.cli import exits

from .conftest import END_S, Run, Start, one_error, rows


def test_create_makes_a_queue_with_the_given_sizes(run: Run, tmp_path: Path) -> None:
    run("create", tmp_path / "q", "--slots", "1k", "--data-bytes", "2M", "--spill-bytes", "64KiB", "--lease", "5m",
        "--durability", "relaxed")  # fmt: skip
    options = json.loads((tmp_path / "q" / "queue.json").read_text())
    assert options["slots"] == 1000
    assert options["data_bytes"] == 2 << 20
    assert options["spill_bytes"] == 64 << 10
    assert options["lease_s"] == 300
    assert options["durability"] == "relaxed"


def test_create_without_options_has_the_library_s_defaults(run: Run, tmp_path: Path) -> None:
    (made,) = rows(run("create", tmp_path / "q", "--json"))
    options = json.loads((tmp_path / "q" / "queue.json").read_text())
    with penstock.create(tmp_path / "other") as other:
        stats = other.stats()
    assert (made["slots"], made["data_bytes"]) == (stats.slots, stats.data_bytes)
    theirs = json.loads((tmp_path / "other" / "queue.json").read_text())
    for name in ("slots", "data_bytes", "spill_bytes", "lease_s", "durability"):
        assert options[name] == theirs[name]


def test_create_spreads_data_and_index_over_other_directories(run: Run, tmp_path: Path) -> None:
    run("create", tmp_path / "q", "--data-bytes", "1M", "--data-dir", tmp_path / "a", "--data-dir", tmp_path / "b",
        "--kernel-dir", tmp_path / "k")  # fmt: skip
    assert list((tmp_path / "a").rglob("data.0"))
    assert list((tmp_path / "b").rglob("data.1"))
    assert list((tmp_path / "k").rglob("kernel"))
    run("put", tmp_path / "q", "hello")
    assert run("get", tmp_path / "q").stdout == "hello\n"
    assert "file system of" in run("doctor", tmp_path / "q").stdout


def test_create_where_something_is_already_is_refused(run: Run, small: Path) -> None:
    assert "already" in one_error(run("create", small, code=exits.NO_QUEUE))


def test_create_where_nothing_may_be_written_is_one_line(run: Run) -> None:
    one_error(run("create", "/sys/penstock-test", code=exits.SYSTEM))  # not even by root


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_create_that_is_interrupted_leaves_nothing_behind(start: Start, tmp_path: Path, number: int, code: int) -> None:
    process = start("create", tmp_path / "q", "--data-bytes", "1G")
    end = time.monotonic() + END_S
    while not any(tmp_path.rglob("data.0")) and time.monotonic() < end:
        time.sleep(0.001)
    process.send_signal(number)
    out, error = process.communicate(timeout=END_S)
    assert process.returncode == code
    assert (out, error) == (b"", b"")
    assert list(tmp_path.iterdir()) == []
