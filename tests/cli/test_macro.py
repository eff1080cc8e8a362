"""The program on macro queues: declared, listed, put to and got from as one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.cli import exits
from penstock.cli.top import Watch, waiting_in
from tests.cli.conftest import Run, one_error, rows

DECLARED = """
[queues.urgent]
depth = 50
[queues.normal]
depth = 50

[macros.work]
members = [{ name = "urgent", priority = 2 }, "normal"]
consuming = "member-priority"

[macros.outer]
members = ["work"]
active = false
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "penstock.toml").write_text(DECLARED)
    return tmp_path


def test_macro_queues_are_declared_and_made_so(run: Run, root: Path) -> None:
    shown = run("apply", root, "--dry-run")
    assert "work: would be created: members = urgent:2 normal:0" in shown.stdout
    run("apply", root)
    assert "all is as declared" in run("apply", root).stdout
    with penstock.QueueManager(root) as manager:
        assert not manager.find("outer").active
        manager.remove_member("work", "normal")
    assert "work: changed: members = urgent:2 normal:0 (was urgent:2)" in run("apply", root).stdout


@pytest.mark.parametrize(
    "table, reason",
    [
        ("[macros.work]\nmembers = ['none']", "there is no queue none"),
        ("[macros.work]\nproducing = 'random'", r"\[macros.work\]: producing must be one of"),
        ("[macros.a]\nmembers = ['b']\n[macros.b]\nmembers = ['a']", "members of each other"),
        ("[queues.work]\n[macros.work]\n", "a queue of this name as well"),
    ],
)
def test_what_cannot_be_declared_is_an_error(run: Run, tmp_path: Path, table: str, reason: str) -> None:
    (tmp_path / "penstock.toml").write_text(table)
    with pytest.raises(penstock.Misuse, match=reason), penstock.QueueManager(tmp_path) as manager:
        from penstock.manager.declared import perform, plan, read_declared

        for change in plan(manager, read_declared(tmp_path / "penstock.toml")):
            perform(manager, change)


def test_commands_take_a_macro_queue_for_a_queue(run: Run, root: Path) -> None:
    run("apply", root)
    work = root / "work"
    run("put", root / "normal", "later")
    run("put", work, "now")
    listed = run("ls", root).stdout
    assert str(work) in listed and str(root / "urgent") in listed
    assert run("peek", work).stdout.count("waiting") == 2
    assert '"waiting":2' in run("stat", work, "--json").stdout.replace(" ", "")
    assert "urgent, normal" in run("stat", work).stdout
    assert [run("get", work).stdout.strip() for _ in range(2)] == ["now", "later"]
    assert run("get", work, code=None).exit_code != 0
    run("put", work, "gone")
    run("purge", work, "--yes")
    with pytest.raises(penstock.NotAQueue, match="a macro queue"):
        penstock.open(work)


def test_cancel_finds_a_message_in_whichever_member(run: Run, root: Path) -> None:
    run("apply", root)
    work = root / "work"
    ids = [run("put", root / name, "x").stdout.strip() for name in ("normal", "urgent")]
    assert "not a message id" in one_error(run("cancel", work, ids[0], "no-id", code=exits.USAGE))
    assert rows(run("stat", work, "--json"))[0]["waiting"] == 2, "nothing is removed before all words are ids"
    assert rows(run("cancel", work, *ids, "--json")) == [{"id": id, "cancelled": True} for id in ids]
    assert "is not waiting" in run("cancel", work, ids[0], code=exits.NOTHING).stdout


def test_redrive_brings_back_the_dead_letters_of_all_members(run: Run, root: Path) -> None:
    run("apply", root)
    work = root / "work"
    assert "0 dead letters brought back, 0 left" in run("redrive", work, code=exits.NOTHING).stdout
    for name in ("normal", "urgent"):
        with penstock.open(root / name) as q:
            q.put_many([b"x"] * 2)
            for message in q.get_many(2):
                message.dead_letter("broken")
    assert rows(run("redrive", work, "--limit", "3", "--json")) == [{"moved": 3, "left": 1}]
    assert "1 dead letters brought back, 0 left" in run("redrive", work, "--reason", "broken").stdout
    assert rows(run("stat", work, "--json"))[0]["waiting"] == 4


# ---------------------------------------------------------------- members that do not work


def damage(queue: Path) -> None:
    (queue / "kernel").write_bytes(b"")


def test_a_macro_queue_is_shown_with_the_members_that_work(run: Run, root: Path) -> None:
    run("apply", root)
    run("put", root / "normal", "x")
    damage(root / "urgent")
    (every,) = rows(run("stat", root, "--json"))
    work = every["queues"]["work"]
    assert (work["state"], work["error"], work["stats"]["waiting"]) == ("configured", None, 1)
    assert "kernel" in work["stats"]["failed"]["urgent"]
    assert every["total"]["waiting"] == 1
    (listed,) = (row for row in rows(run("ls", root, "--json")) if row["name"] == "work")
    assert (listed["state"], listed["waiting"], list(listed["failed"])) == ("configured", 1, ["urgent"])
    for command in ("stat", "ls"):
        text = run(command, root).stdout
        assert "urgent:" in text, text


@pytest.mark.parametrize("harm", [damage, shutil.rmtree])
def test_a_macro_queue_none_of_whose_members_works_has_failed(
    run: Run, root: Path, harm: Callable[[Path], None]
) -> None:
    run("apply", root)
    for name in ("normal", "urgent"):
        harm(root / name)
    (every,) = rows(run("stat", root, "--json"))
    listed = {row["name"]: row for row in rows(run("ls", root, "--json"))}
    for name in ("work", "outer"):
        figures = every["queues"][name]
        assert (figures["state"], figures["stats"]) == ("failed", None)
        assert "urgent" in figures["error"]
        assert listed[name]["state"] == "failed" and "urgent" in listed[name]["error"]


def test_a_macro_queue_without_members_is_empty_and_works(run: Run, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("[macros.none]\n")
    run("apply", tmp_path)
    (listed,) = rows(run("ls", tmp_path, "--json"))
    assert (listed["state"], listed["slots"], listed["failed"]) == ("configured", 0, {})


# ---------------------------------------------------------------- top


def test_top_shows_a_macro_queue_as_its_members_together(run: Run, root: Path) -> None:
    run("apply", root)
    with penstock.open(root / "urgent") as urgent, penstock.open(root / "normal") as normal:
        urgent.put_many([b"x"] * 3)
        normal.put_many([b"x"] * 2)
        held = [urgent.get(block=False), normal.get(block=False)]
        (line,) = rows(run("top", root, "--once", "--interval", "10ms", "--json"))
        assert len(held) == 2
    shown = {Path(row["path"]).name: row for row in line["queues"]}
    assert list(shown) == ["normal", "outer", "urgent", "work"]
    for name in ("work", "outer"):
        assert (shown[name]["waiting"], shown[name]["pending"], shown[name]["holders"]) == (3, 2, 2)
        assert (shown[name]["slots"], shown[name]["puts_per_s"], shown[name]["failed"]) == (100, 0, {})
    assert waiting_in(line["queues"]) == 3, "each message once"
    assert waiting_in([shown["work"]]) == 3
    (alone,) = rows(run("top", root / "work", "--once", "--interval", "10ms", "--json"))
    assert alone["queues"][0]["waiting"] == 3 + 2, "what was got came back"
    assert str(root / "work") in run("top", root, "--once", "--interval", "10ms").stdout


def test_top_shows_the_others_beside_a_damaged_queue(run: Run, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("apply", root)
    damage(root / "urgent")
    (root / "bare").mkdir()
    (root / "bare" / "queue.json").write_bytes(b"{")
    (line,) = rows(run("top", root, "--once", "--interval", "10ms", "--json"))
    shown = {Path(row["path"]).name: row for row in line["queues"]}
    assert [name for name, row in shown.items() if "error" in row] == ["bare", "urgent"]
    assert "kernel" in shown["urgent"]["error"] and list(shown["work"]["failed"]) == ["urgent"]
    assert (shown["normal"]["waiting"], shown["work"]["slots"]) == (0, 50)
    monkeypatch.chdir(root)
    assert "kernel" in run("top", "--once", "--interval", "10ms").stdout
    assert "kernel" in one_error(run("top", root / "urgent", root, "--once", code=exits.DAMAGED)), "it was named"


def test_a_member_that_works_again_is_no_burst_of_puts(run: Run, root: Path) -> None:
    run("apply", root)
    with penstock.open(root / "urgent") as urgent:
        urgent.put_many([b"x"] * 40)
    kernel = root / "urgent" / "kernel"
    good = kernel.read_bytes()
    damage(root / "urgent")
    watch = Watch(root / "work", named=True)
    watch.begin()
    assert watch.look()["puts_per_s"] == 0
    kernel.write_bytes(good)
    back = watch.look()
    assert (back["waiting"], back["puts_per_s"]) == (40, None)
    assert watch.look()["puts_per_s"] == 0
