"""The program on macro queues: declared, listed, put to and got from as one."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from tests.cli.conftest import Run

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
