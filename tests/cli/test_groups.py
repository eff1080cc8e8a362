"""penstock groups, get by type and key, create with exclusive keys."""

from __future__ import annotations

import json
from pathlib import Path

import penstock
from penstock.cli import exits

from .conftest import Run, one_error, rows


def fill(path: Path) -> None:
    with penstock.open(path) as q:
        for n in range(6):
            q.put(f"{n}", type="odd" if n % 2 else "even", key=("a.example", "b.example")[n > 1])


def test_groups_are_listed(run: Run, small: Path) -> None:
    assert run("groups", small).stdout == "no groups\n"
    fill(small)
    found = rows(run("groups", small, "--json"))
    assert [(row["key"], row["waiting"], row["due"]) for row in found] == [("b.example", 4, 4), ("a.example", 2, 2)]
    by_age = rows(run("groups", small, "--by", "age", "--limit", "1", "--json"))
    assert [row["key"] for row in by_age] == ["a.example"]
    text = run("groups", small).stdout
    assert "b.example" in text and "4" in text


def test_a_wrong_order_and_a_missing_queue_are_said_in_one_line(run: Run, small: Path, tmp_path: Path) -> None:
    run("groups", small, "--by", "name", code=exits.USAGE)
    assert str(tmp_path / "missing") in one_error(run("groups", tmp_path / "missing", code=exits.NO_QUEUE))


def test_messages_are_got_by_type_and_key(run: Run, small: Path) -> None:
    fill(small)
    assert run("get", small, "--type", "odd", "--count", "2").stdout == "1\n3\n"
    assert run("get", small, "--key", "a.example", "--key", "b.example", "--type", "even", "--count", "9").stdout == (
        "0\n2\n4\n"
    )
    run("get", small, "--type", "even", code=exits.NOTHING)
    assert run("get", small, "--count", "9").stdout == "5\n"


def test_a_queue_with_exclusive_keys_is_made(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "queue"
    made = rows(run("create", path, "--slots", "10", "--data-bytes", "64K", "--exclusive-keys", "--json"))
    assert made[0]["exclusive_keys"] is True
    assert json.loads((path / "queue.json").read_text())["exclusive_keys"] is True
    with penstock.open(path) as q:
        q.put_many(["first", "second"], key="k")
        assert [message.body for message in q.get_many(5)] == ["first"]
