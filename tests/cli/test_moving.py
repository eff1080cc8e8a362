"""penstock redrive and move, and what goes with them."""

from __future__ import annotations

from pathlib import Path

import penstock
from penstock.cli import exits

from .conftest import Run, one_error, rows


def dead(run: Run, path: Path, count: int) -> None:
    run("create", path, "--slots", "20", "--data-bytes", "64K", "--max-attempts", "1", "--durability", "relaxed")
    with penstock.open(path) as q:
        for n in range(count):
            q.put(b"%d" % n, type="ab"[n % 2])
        for message in q.get_many(count):
            message.fail(f"error {message.data.decode()}")


def test_dead_letters_are_shown_and_brought_back(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    dead(run, path, 4)
    letters = rows(run("peek", tmp_path / "orders.dead", "--json"))
    assert [letter["error"] for letter in letters] == [f"error {n}" for n in range(4)]
    assert {letter["reason"] for letter in letters} == {"max_attempts"}
    assert letters[0]["came_from"] == str(path) and len(letters[0]["history"]) == 1
    assert rows(run("redrive", path, "--type", "a", "--limit", "1", "--json")) == [{"moved": 1, "left": 3}]
    assert run("redrive", path, "--reason", "expired", code=exits.NOTHING).stdout.startswith("0 dead letters")
    assert run("redrive", path).stdout == "3 dead letters brought back, 0 left\n"
    assert rows(run("redrive", path, "--json", code=exits.NOTHING)) == [{"moved": 0, "left": 0}]
    stats = rows(run("stat", path, "--json"))[0]
    assert (stats["waiting"], stats["dead_lettered"], stats["moved_in"]) == (4, 4, 4)


def test_messages_are_moved(run: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        run("create", tmp_path / name, "--slots", "20", "--data-bytes", "64K", "--durability", "relaxed")
    ids = [run("put", tmp_path / "one", f"{n}", "--type", "ab"[n % 2]).stdout.strip() for n in range(4)]
    assert run("move", tmp_path / "one", tmp_path / "two", "--type", "b").stdout == "2 messages moved, 2 left\n"
    assert [row["id"] for row in rows(run("peek", tmp_path / "two", "--json"))] == [ids[1], ids[3]]
    assert run("cancel", tmp_path / "two", ids[1]).stdout
    assert rows(run("move", tmp_path / "one", tmp_path / "two", "--json")) == [{"moved": 2, "left": 0}]
    assert "in" in one_error(run("move", tmp_path / "two", tmp_path / "two", code=exits.USAGE))


def test_puts_with_limits(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "q"
    run("create", path, "--slots", "20", "--data-bytes", "64K", "--expired", "dead_letter", "--dedup-window", "1h")
    first = run("put", path, "a", "--dedup-id", "x").stdout
    assert run("put", path, "b", "--dedup-id", "x").stdout == first
    run("put", path, "gone", "--ttl", "0")
    run("put", path, "c", "--max-attempts", "2", "--backoff", "5s", "--lease", "1m", "--expires-at", "4000000000")
    assert run("get", path, "--count", "5").stdout == "a\nc\n"
    (letter,) = rows(run("peek", tmp_path / "q.dead", "--json"))
    assert (letter["body"], letter["reason"]) == ("gone", "expired")


def test_an_export_keeps_what_a_message_brings(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    dead(run, path, 1)
    with penstock.open(tmp_path / "orders.dead") as q:
        q.put(b"own", expires_at=4_000_000_000, max_attempts=3, backoff=7, lease=9, dedup_id="d")
    run("export", tmp_path / "orders.dead", tmp_path / "file")
    run("import", tmp_path / "copy", tmp_path / "file", "--create")
    with penstock.open(tmp_path / "copy") as q:
        letter, own = q.get_many(2)
        assert (letter.reason, letter.error, letter.attempts_before) == ("max_attempts", "error 0", 1)
        assert (own.max_attempts, own.dedup_id, own.meta.b, own.meta.l) == (3, "d", (7, 1, 2592000, 0), 9_000_000)
