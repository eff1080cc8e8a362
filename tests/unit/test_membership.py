"""What a macro queue is made of: how it is written down, read and changed, and what cannot be a member of what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock import Misuse, QueueManager
from penstock.errors import NameTaken, NotAQueue, QueueNotFound, WrongState
from penstock.manager.directory import members_of
from penstock.manager.membership import Member, macro_options

SMALL: dict[str, Any] = {"depth": 20, "data_bytes": 16 << 10, "durability": "relaxed"}


@pytest.fixture
def manager(tmp_path: Path) -> QueueManager:
    manager = QueueManager(tmp_path)
    for name in ("a", "b", "c"):
        manager.create(name, **SMALL)
    return manager


def test_a_macro_queue_has_a_name_a_uuid_members_and_policies(manager: QueueManager) -> None:
    made = manager.create_macro("all", ["a", ("b", 7), {"name": "c", "priority": -1}], producing="shortest")
    assert manager.find("all") == manager.find(made.uuid or "") == made
    assert made.kind == "macro" and made.macro is not None
    assert made.macro.members == [Member(name="a"), Member(name="b", priority=7), Member(name="c", priority=-1)]
    assert (made.macro.producing, made.macro.consuming) == ("shortest", "member-priority")
    assert [info.name for info in manager.list()] == ["a", "all", "b", "c"]
    assert QueueManager(manager.root).find("all") == manager.find("all")
    written = json.loads((manager.root / "all" / "entry.json").read_text())
    assert (written["kind"], written["uuid"], written["macro"]["producing"]) == ("macro", made.uuid, "shortest")
    assert written["macro"]["members"][1] == {"name": "b", "priority": 7}


def test_by_default_the_first_that_is_available_takes_and_priority_decides(manager: QueueManager) -> None:
    macro = manager.create_macro("all", ["a"]).macro
    assert macro is not None and (macro.producing, macro.consuming) == ("first-available", "member-priority")


def test_members_are_found_by_a_path_through_macro_queues(manager: QueueManager) -> None:
    manager.create_macro("inner", [("a", 9), "b"])
    manager.create_macro("outer", ["c", ("inner", 5)])
    found = members_of(manager.root / "outer")
    assert [(leaf.name, leaf.priority) for leaf in found] == [("c", 0), ("a", 5), ("b", 5)]
    assert [leaf.uuid for leaf in found] == [manager.find(leaf.name).uuid for leaf in found]
    assert [leaf.place for leaf in found] == [str(manager.root / leaf.name) for leaf in found]
    assert [leaf.name for leaf in members_of(manager.root / "c")] == ["c"]
    with pytest.raises(QueueNotFound):
        members_of(manager.root / "none")


def test_members_and_policies_are_changed_one_by_one(manager: QueueManager) -> None:
    manager.create_macro("all", ["a"])
    manager.add_member("all", "b", priority=3)
    manager.remove_member("all", "a")
    manager.configure("all", consuming="oldest", remote_clients=False)
    found = manager.find("all")
    assert found.macro == macro_options({"members": [("b", 3)], "consuming": "oldest"})
    assert not found.options.remote_clients
    assert manager.changes("all", consuming="oldest", members=[("b", 4)]) == {
        "members": ([Member(name="b", priority=3)], [Member(name="b", priority=4)])
    }


@pytest.mark.parametrize(
    "members, reason",
    [
        (["a", "a"], "a cannot be a member twice: as a, twice"),
        (["a", "inner"], "a cannot be a member twice: as a, and as inner > a"),
        (["inner", "deeper"], "inner cannot be a member twice"),
        (["none"], "there is no queue none here"),
        (["for-consumers"], "its relationship is consumer, and that of the macro queue both"),
        (["for-nobody-far"], "its remote_clients is off"),
        (["../a"], "the name of a queue is"),
        ([7], "a member is a name"),
        ([("a", "high")], "a member is a name"),
        ([("a", True)], "a member is a name"),
        ("a", "several names"),
    ],
)
def test_what_cannot_be_a_member_is_refused_with_the_reason(manager: QueueManager, members: Any, reason: str) -> None:
    manager.create_macro("inner", ["a"])
    manager.create_macro("deeper", ["inner"])
    manager.create("for-consumers", relationship="consumer", **SMALL)
    manager.create("for-nobody-far", remote_clients=False, **SMALL)
    with pytest.raises(Misuse, match=reason):
        manager.create_macro("all", members)
    assert not (manager.root / "all").exists()


@pytest.mark.parametrize("options", [{"producing": "random"}, {"consuming": "first-available"}, {"depth": 5}])
def test_an_option_that_a_macro_queue_does_not_have_is_refused(manager: QueueManager, options: Any) -> None:
    with pytest.raises(Misuse):
        manager.create_macro("all", ["a"], **options)
    manager.create_macro("all", ["a"])
    before = manager.find("all")
    with pytest.raises(Misuse):
        manager.configure("all", **options)
    assert manager.find("all") == before


def test_a_macro_queue_is_never_in_itself(manager: QueueManager) -> None:
    manager.create_macro("inner", ["a"])
    manager.create_macro("outer", ["inner"])
    for macro, member in (("inner", "outer"), ("inner", "inner"), ("outer", "outer")):
        with pytest.raises(Misuse, match=r"cannot be a member of itself|twice"):
            manager.add_member(macro, member)


def test_a_change_further_down_makes_no_member_double(manager: QueueManager) -> None:
    manager.create_macro("inner", ["a"])
    manager.create_macro("outer", ["inner", "b"])
    with pytest.raises(Misuse, match="outer: b cannot be a member twice"):
        manager.add_member("inner", "b")
    with pytest.raises(Misuse, match="outer: inner cannot be a member"):
        manager.configure("inner", relationship="consumer")
    manager.create_macro("outermost", ["outer", "c"])
    with pytest.raises(Misuse, match=r"outermost: c cannot be a member twice: .*outer > inner > c"):
        manager.add_member("inner", "c")


def test_a_member_keeps_its_name_and_what_makes_it_fit(manager: QueueManager) -> None:
    manager.create_macro("all", ["a"])
    with pytest.raises(Misuse, match="rename is not possible while it is a member of all"):
        manager.rename("a", "z")
    with pytest.raises(Misuse, match="destroy is not possible while it is a member of all"):
        manager.destroy("a")
    with pytest.raises(Misuse, match="its relationship is producer"):
        manager.configure("a", relationship="producer")
    manager.remove_member("all", "a")
    manager.rename("a", "z")
    manager.destroy("z")


def test_destroying_a_macro_queue_touches_no_member(manager: QueueManager) -> None:
    manager.create_macro("all", ["a", "b"])
    with manager.open("a") as a:
        a.put("kept")
    manager.rename("all", "every")
    manager.destroy("every")
    assert [info.name for info in manager.list()] == ["a", "b", "c"]
    with manager.open("a") as a:
        assert a.get().body == "kept"


def test_only_a_macro_queue_has_members_and_names_are_shared(manager: QueueManager) -> None:
    manager.create_macro("all", ["a"])
    for call in (manager.add_member, manager.remove_member):
        with pytest.raises(Misuse, match="for macro queues"):
            call("b", "c")
        with pytest.raises(WrongState, match="its state is unknown"):
            call("none", "c")
    for name in ("all", "a"):
        with pytest.raises(NameTaken):
            manager.create_macro(name)
    with pytest.raises(NameTaken):
        manager.create("all")


def test_the_path_of_a_macro_queue_is_not_mistaken_for_one_of_a_queue(manager: QueueManager) -> None:
    import penstock

    manager.create_macro("all", ["a"])
    with pytest.raises(NotAQueue, match="a macro queue"):
        penstock.open(manager.root / "all")


@pytest.mark.parametrize("model", ["two-way", "acknowledged"])
def test_a_message_that_is_answered_once_is_not_copied(manager: QueueManager, model: str) -> None:
    manager.create("d", model=model, **SMALL)
    with pytest.raises(Misuse, match=f"copy-to-all is not possible with the model {model}"):
        manager.create_macro("all", ["d"], model=model, producing="copy-to-all")
    manager.create_macro("all", ["d"], model=model)
    with pytest.raises(Misuse, match="copy-to-all is not possible"):
        manager.configure("all", producing="copy-to-all")
    manager.create_macro("copies", producing="copy-to-all")
    with pytest.raises(Misuse, match="copy-to-all is not possible"):
        manager.configure("copies", model=model)


def test_more_copies_than_can_be_made_are_refused(manager: QueueManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.manager.membership.COPIES_MAX", 3)
    manager.create("d", **SMALL)
    too_many = "copies go to 3 queues at most, not 4"
    with pytest.raises(Misuse, match=too_many):
        manager.create_macro("all", ["a", "b", "c", "d"], producing="copy-to-all")
    manager.create_macro("all", ["a", "b", "c"], producing="copy-to-all")
    with pytest.raises(Misuse, match=too_many):
        manager.add_member("all", "d")
    manager.create_macro("outer", ["all"], producing="copy-to-all")
    with pytest.raises(Misuse, match=f"outer: {too_many}"):
        manager.add_member("outer", "d")
    manager.configure("all", producing="shortest")
    manager.add_member("outer", "d")
    with pytest.raises(Misuse, match=f"outer: {too_many}"):
        manager.configure("all", producing="copy-to-all")
