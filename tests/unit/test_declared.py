"""penstock.toml: what it may say, what changes by it, and that twice is as good as once."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock import Misuse, QueueManager
from penstock.manager import Change, Declared, read_declared
from penstock.manager.declared import perform, plan
from penstock.store.backoff import Backoff

FULL = """
[defaults]
durability = "relaxed"
data_bytes = 65536

[policies.patient]
lease = 300
max_attempts = 5
backoff = { first = 1, factor = 2, most = 600 }

[queues.orders]
policy = "patient"
depth = 500
max_attempts = 3

[queues.bills]
remote_clients = false
active = false
dead_letter = "orders"
mode = 0o660

[permissions.mail]
"orders" = ["produce"]
"*" = ["browse"]
"""


def declared(tmp_path: Path, text: str) -> Declared:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    return read_declared(file)


def made_so(manager: QueueManager, wanted: Declared) -> list[Change]:
    changes = plan(manager, wanted)
    for change in changes:
        perform(manager, change)
    return changes


def test_all_that_is_declared_is_made_and_twice_is_as_good_as_once(tmp_path: Path) -> None:
    with QueueManager(tmp_path) as manager:
        wanted = declared(tmp_path, FULL)
        changes = made_so(manager, wanted)
        assert [(change.action, change.name) for change in changes] == [
            ("defaults", ""), ("create", "orders"), ("create", "bills"), ("deactivate", "bills"),
            ("grant", "mail"), ("grant", "mail"),
        ]  # fmt: skip
        orders, bills = manager.find("orders"), manager.find("bills")
        assert (orders.options.depth, orders.options.lease, orders.options.max_attempts) == (500, 300, 3)
        assert orders.options.backoff == Backoff(1, 2, 600)
        assert orders.options.durability == "relaxed"
        assert (bills.options.depth, bills.options.remote_clients, bills.active) == (1000, False, False)
        assert (bills.options.dead_letter, bills.options.mode) == (orders.place, 0o660)
        assert manager.permissions() == {"mail": {"orders": ["produce"], "*": ["browse"]}}
        assert plan(manager, wanted) == []
        assert plan(QueueManager(tmp_path), wanted) == []


def test_what_differs_changes_and_messages_stay(tmp_path: Path) -> None:
    with QueueManager(tmp_path) as manager:
        made_so(manager, declared(tmp_path, FULL))
        with manager.open("orders") as q:
            id = q.put("kept")
        text = FULL.replace("depth = 500", "depth = 900").replace("lease = 300", "lease = 30")
        text = text.replace("active = false", "active = true").replace('"orders" = ["produce"]', "")
        changes = made_so(manager, declared(tmp_path, text))
        assert [(change.action, change.name, change.options) for change in changes] == [
            ("configure", "orders", {"depth": (500, 900), "lease": (300, 30)}),
            ("activate", "bills", {}),
            ("revoke", "mail", {"orders": (["produce"], None)}),
        ]
        with manager.open("orders") as q:
            assert (q.get().id, q.stats().slots) == (id, 900)


def test_a_queue_that_is_not_declared_is_reported_and_stays(tmp_path: Path) -> None:
    with QueueManager(tmp_path) as manager:
        made_so(manager, declared(tmp_path, FULL))
        manager.create("old", max_attempts=1)
        with manager.open("old") as q:
            q.put("bad")
            q.get().fail("no")
        only = "[queues.orders]\n"
        assert made_so(manager, declared(tmp_path, only)) == [
            Change(action="undeclared", name="bills"), Change(action="undeclared", name="old")
        ]  # fmt: skip
        assert [each.name for each in manager.list()] == ["bills", "old", "old.dead", "orders"]
        assert manager.permissions() and manager.defaults.durability == "relaxed", "what it does not mention stays"
        made_so(manager, declared(tmp_path, "[permissions]\n[defaults]\n"))
        assert manager.permissions() == {} and manager.defaults.durability == "commit"


def test_what_can_never_be_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    with QueueManager(tmp_path) as manager:
        made_so(manager, declared(tmp_path, FULL))
        wanted = declared(tmp_path, FULL.replace("depth = 500", "depth = 900\nexclusive_keys = true"))
        with pytest.raises(Misuse, match="orders: exclusive_keys: fixed"):
            plan(manager, wanted)
        assert manager.find("orders").options.depth == 500


def test_a_queue_in_use_is_told_and_the_rest_is_done_next_time(tmp_path: Path) -> None:
    with QueueManager(tmp_path) as manager:
        made_so(manager, declared(tmp_path, FULL))
        wanted = declared(tmp_path, FULL.replace("depth = 500", "depth = 900"))
        with penstock.open(tmp_path / "orders"), pytest.raises(penstock.QueueInUse):
            made_so(manager, wanted)
        assert len(made_so(manager, wanted)) == 1


@pytest.mark.parametrize(
    "text, what",
    [
        ("[queues.a\n", "line 1"),
        ("[gizmos.x]\n", r"\[gizmos\]: no such table"),
        ("queues = 3\n", "queues must be a table"),
        ("[queues]\na = 3\n", r"a must be a table: \[queues.a\]"),
        ("[queues.a]\ncolour = 'red'\n", r"\[queues.a\]: colour: no such option"),
        ("[queues.a]\ndepth = 'many'\n", r"\[queues.a\]: .*depth"),
        ("[queues.a]\npolicy = 'x'\n", r"\[queues.a\]: there is no policy 'x'"),
        ("[queues.a]\nactive = 1\n", r"\[queues.a\]: active must be true or false"),
        ("[queues.'a/b']\n", "name of a queue"),
        ("[queues.a]\nlease = -3\n", r"\[queues.a\]: lease must be"),
        ("[queues.a]\ndepth = 0\n", r"\[queues.a\]: depth must be"),
        ("[queues.a]\nmode = 0o777\n", r"\[queues.a\]: mode must be"),
        ("[queues.a]\nbackoff = { first = -1 }\n", r"\[queues.a\]: .*backoff"),
        ("[queues.a]\nbackoff = { first = 1, zz = 2 }\n", r"\[queues.a\]: backoff: zz: no such field; there are first"),
        ("[macros.m]\nmembers = [{ name = 'a', bogus = 1 }]\n", r"\[macros.m\]: a member: bogus: no such field"),
        ("[defaults]\ndata_bytes = 1\n", r"\[defaults\]: data_bytes must be"),
        ("[policies.p]\nactive = true\n", r"\[policies.p\]: active: no such option"),
        ("[defaults]\nrelationship = 'friend'\n", r"\[defaults\]: relationship"),
        ("[permissions.m]\n'*' = ['fly']\n", r"\[permissions.m\]: rights must be"),
        ("[permissions.m]\n'*' = 'produce'\n", r"\[permissions.m\]: rights must be"),
        ("[permissions]\nm = ['produce']\n", r"m must be a table"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(Misuse, match=rf"penstock\.toml: .*{what}"):
        declared(tmp_path, text)


def test_a_macro_queue_is_not_what_is_declared_as_a_queue_nor_the_other_way_round(tmp_path: Path) -> None:
    with QueueManager(tmp_path) as manager:
        made_so(manager, declared(tmp_path, "[queues.a]\n[macros.m]\nmembers = ['a']\n"))
        with pytest.raises(Misuse, match=r"\[queues.m\]: there is a macro queue of this name"):
            plan(manager, declared(tmp_path, "[queues.a]\n[queues.m]\n"))
        with pytest.raises(Misuse, match=r"\[macros.a\]: there is a queue of its own of this name"):
            plan(manager, declared(tmp_path, "[macros.a]\n"))


NESTED = "".join(f"[macros.m{n}]\nmembers = ['{f'm{n - 1}' if n else 'b'}']\n" for n in range(10))


@pytest.mark.parametrize(
    "text, what",
    [
        ("[macros.m]\nmembers = ['none']\n", r"\[macros.m\]: m: there is no queue none"),
        ("[macros.m]\nmembers = ['b', 'b']\n", r"\[macros.m\]: m: b cannot be a member twice"),
        ("[macros.n]\nmembers = ['b']\n[macros.m]\nmembers = ['b', 'n']\n", r"\[macros.m\]: m: b cannot .*n > b"),
        ("[queues.c]\nrelationship = 'consumer'\n[macros.m]\nmembers = ['c']\n", r"\[macros.m\]: .*is consumer"),
        ("[defaults]\nmodel = 'one-way'\n[queues.c]\n[macros.m]\nmembers = ['c']\n", r"\[macros.m\]: .*is one-way"),
        (NESTED, "nest 8 deep"),
        ("[queues.a]\ndepth = 2\n", r"\[queues.a\]: .*in the way"),
        ("[queues.c]\ndead_letter = 'old'\n", r"\[queues.c\]: c: its dead letters cannot go to old"),
        ("[queues.c]\ndead_letter = 'c'\n", r"\[queues.c\]: .*cannot be its own dead-letter queue"),
        ("[queues.a]\ndead_letter = 'old'\n", r"\[queues.a\]: a: its dead letters cannot go to old"),
        ("[queues.c]\ndead_letter = 'm'\n[macros.m]\n", r"\[macros.m\]: m: the dead letters of c go"),
        ("[queues.a]\nmodel = 'one-way'\n", r"\[queues.a\]: old: a cannot be a member"),
    ],
)
def test_what_would_be_refused_on_the_way_is_refused_before_anything_is_made(
    tmp_path: Path, text: str, what: str
) -> None:
    with QueueManager(tmp_path) as manager:
        manager.create("a", depth=5, data_bytes=65536, durability="relaxed")
        with manager.open("a") as q:
            q.put_many(range(5))
        manager.create_macro("old", ["a"])
        with pytest.raises(Misuse, match=what):
            plan(manager, declared(tmp_path, "[queues.b]\n" + text))


def test_what_was_acknowledged_is_in_nobodys_way(tmp_path: Path) -> None:
    with QueueManager(tmp_path) as manager:
        manager.create("a", depth=5, data_bytes=65536)
        with manager.open("a") as q:
            q.put_many(range(5))
            for message in q.get_many(5):
                message.ack()
        wanted = declared(tmp_path, "[queues.a]\ndepth = 2\n")
        assert [change.options for change in plan(manager, wanted)] == [{"depth": (5, 2)}]
        with penstock.open(tmp_path / "a"):
            assert plan(manager, wanted), "it is in use, which passes"
        made_so(manager, wanted)
        assert manager.find("a").options.depth == 2
