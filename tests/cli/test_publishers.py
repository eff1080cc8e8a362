"""penstock publishers."""

from __future__ import annotations

from pathlib import Path

import penstock
from penstock.cli import exits

from .conftest import Run, one_error, rows


def test_publishers_are_listed_and_forgotten(run: Run, small: Path) -> None:
    assert run("publishers", "ls", small).stdout == "no publishers\n"
    with penstock.open(small) as q:
        q.put_once("nightly", 7, [b"a"])
        q.put_once("other", 0, [])
    found = rows(run("publishers", "ls", small, "--json"))
    assert [(row["publisher"], row["last"]) for row in found] == [("nightly", 7), ("other", 0)]
    assert all(row["seen_at"] > 1e9 for row in found)
    assert len(rows(run("publishers", "ls", small, "other", "--json"))) == 1
    text = run("publishers", "ls", small).stdout
    assert "nightly" in text and "7" in text
    assert run("publishers", "forget", small, "nightly").stdout == "publisher nightly is forgotten\n"
    assert rows(run("publishers", "forget", small, "other", "--json")) == [{"publisher": "other", "forgotten": True}]
    assert run("publishers", "ls", small, "--json").stdout == ""


def test_what_cannot_be_forgotten_is_said_in_one_line(run: Run, small: Path, tmp_path: Path) -> None:
    assert "which publisher" in one_error(run("publishers", "forget", small, code=exits.USAGE))
    assert "'nobody'" in one_error(run("publishers", "forget", small, "nobody", code=exits.NOTHING))
    assert not (small / "published").exists()
    line = one_error(run("publishers", "ls", tmp_path / "missing", code=exits.NO_QUEUE))
    assert str(tmp_path / "missing") in line
