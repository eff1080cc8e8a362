"""QueueManager: queues by name, their states, options, permissions; what it writes and what it refuses."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock import (
    Misuse,
    NameTaken,
    NoAnswer,
    NoSuchQueue,
    NotPermitted,
    QueueExists,
    QueueInactive,
    QueueInUse,
    QueueManager,
    QueueNotFound,
    WrongRelationship,
    WrongState,
)
from penstock.interface import Queue
from penstock.manager import Entry, ManagedQueue, QueueOptions, State, kinds
from penstock.manager import root as root_module
from penstock.manager.directory import note, read_noted
from penstock.manager.options import CHANGEABLE, FIXED, NAMES
from penstock.manager.permissions import CALLS, Right
from penstock.manager.root import DESTROYED
from penstock.manager.states import ENDS, TRANSITIONS, after
from penstock.timequeue import resize_queue

SMALL: dict[str, Any] = {"data_bytes": 64 << 10, "durability": "relaxed"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def manager(root: Path) -> Iterator[QueueManager]:
    with QueueManager(root) as made:
        made.set_defaults(**SMALL)
        yield made


# ---------------------------------------------------------------- making, finding


def test_a_new_queue_has_the_defaults(root: Path) -> None:
    with QueueManager(root) as manager:
        made = manager.create("orders", data_bytes=1 << 16)
    assert (made.options.model, made.options.depth) == ("queued-acknowledged", 1000)
    assert made.options.remote_clients and made.options.relationship == "both"
    with penstock.open(root / "orders") as q:
        assert q.stats().slots == 1000


def test_defaults_are_the_roots_and_for_all_managers(manager: QueueManager) -> None:
    manager.set_defaults(depth=7, lease=5, **SMALL)
    other = QueueManager(manager.root)
    assert other.defaults.depth == 7
    options = other.create("orders").options
    assert (options.depth, options.lease, options.durability) == (7, 5, "relaxed")
    assert other.create("more", depth=9).options.depth == 9
    with pytest.raises(Misuse, match="colour"):
        manager.set_defaults(colour="red")
    assert manager.set_defaults(**SMALL).depth == 1000


def test_a_queue_is_found_by_name_and_by_uuid(manager: QueueManager) -> None:
    made = manager.create("orders")
    with penstock.open(made.place) as q:
        assert q.stats().uuid == made.uuid
    assert manager.find("orders") == made
    assert made.uuid is not None
    assert manager.find(made.uuid) == made == manager.find(made.uuid.upper())
    with manager.open(made.uuid) as opened:
        assert opened.called == "orders"
    with pytest.raises(QueueNotFound, match="nothing: there is no such queue: its state is unknown: find"):
        manager.find("nothing")
    assert manager.state("nothing") is State.UNKNOWN


def test_a_queue_that_somebody_else_made_is_one_of_the_roots(manager: QueueManager) -> None:
    penstock.create(manager.root / "plain", slots=10, data_bytes=1 << 16).close()
    (manager.root / "notes").mkdir()
    (manager.root / "notes" / "queue.json").write_text('{"something": "else"}')
    (found,) = manager.list()
    assert (found.name, found.state, found.options.depth, found.active) == ("plain", State.CONFIGURED, 10, True)
    with manager.open("plain") as q:
        assert q.qsize() == 0
    assert manager.deactivate("plain").active is False


def test_a_damaged_queue_is_listed_with_the_reason_and_can_be_destroyed(manager: QueueManager) -> None:
    manager.create("bad")
    manager.create("good")
    (manager.root / "bad" / "queue.json").write_bytes(b"{")
    bad, good = manager.list()
    assert (bad.state, good.state) == (State.FAILED, State.CONFIGURED)
    assert bad.error is not None and "queue.json" in bad.error
    with pytest.raises(penstock.Corrupt):
        manager.open("bad")
    manager.destroy("bad")
    assert [each.name for each in manager.list()] == ["good"]


def test_a_copy_that_was_never_opened_has_a_uuid_twice(manager: QueueManager) -> None:
    import shutil

    made = manager.create("orders")
    shutil.copytree(made.place, manager.root / "copy")
    assert made.uuid is not None
    with pytest.raises(Misuse, match="copy and orders"):
        manager.find(made.uuid)
    manager.open("copy").close()
    assert manager.find(made.uuid).name == "orders"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden", "a b", "x" * 300, "ä", None, 7, "a\n"])
def test_a_name_that_is_none_is_refused(manager: QueueManager, name: Any) -> None:
    with pytest.raises(Misuse):
        manager.create(name)
    assert manager.list() == []


def test_what_is_wrong_is_told_in_the_words_of_a_manager(manager: QueueManager, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="up to 200 letters"):
        manager.create("x" * 201)
    manager.create("x" * 200)
    with pytest.raises(Misuse, match=r"^depth must be"):
        manager.create("orders", depth=0)
    made = manager.create("orders")
    with pytest.raises(Misuse, match=r"^depth must be"):
        manager.configure("orders", depth=0)
    with pytest.raises(Misuse, match="remote must be True or False"):
        manager.open("orders", remote="zz")  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Misuse, match="not a folder"):
            QueueManager(path)
    with pytest.raises(QueueNotFound, match="no macro queue here"):
        penstock.MacroQueue(tmp_path / "nosuch")
    with pytest.raises(penstock.NotAQueue):
        penstock.MacroQueue(made.place)


def test_a_uuid_will_do_as_one_and_as_its_text(manager: QueueManager) -> None:
    made = manager.create("orders")
    identity = uuid.UUID(made.uuid)
    assert manager.find(identity) == manager.find(str(identity)) == made
    manager.create_macro("all")
    manager.add_member("all", identity)
    assert manager.state(identity) is State.CONFIGURED
    manager.open(identity).put("a")
    manager.close(identity)
    assert not manager.deactivate(identity).active
    for principal in (manager, manager.as_principal("mail")):
        with pytest.raises((NoSuchQueue, NotPermitted)):
            principal.find(uuid.uuid4())


@pytest.mark.parametrize(
    "options",
    [{"colour": 1}, {"depth": 0}, {"depth": "many"}, {"model": "telepathy"}, {"relationship": "friend"}, {"lease": 0},
     {"remote_clients": 1}, {"mode": 0o777}, {"backoff": -1}, {"max_attempts": 0}, {"durability": "eventual"}],
)  # fmt: skip
def test_an_option_that_cannot_be_is_refused_before_anything_is_done(
    manager: QueueManager, options: dict[str, Any]
) -> None:
    with pytest.raises(Misuse):
        manager.create("orders", **options)
    assert manager.list() == []
    manager.create("orders", lease=9)
    before = manager.find("orders")
    with pytest.raises(Misuse):
        manager.configure("orders", **options)
    assert manager.find("orders") == before


# ---------------------------------------------------------------- states


def test_every_call_in_every_state_is_in_the_table(manager: QueueManager) -> None:
    """All states are reached for real, and each call does what the table says or names state and call."""
    calls = {
        "create": lambda name: manager.create(name),
        "configure": lambda name: manager.configure(name, lease=7),
        "open": lambda name: manager.open(name),
        "close": lambda name: manager.close(name),
        "rename": lambda name: manager.rename(name, name + "-renamed"),
        "activate": lambda name: manager.activate(name),
        "deactivate": lambda name: manager.deactivate(name),
        "destroy": lambda name: manager.destroy(name),
    }
    of_macros = {"add_member", "remove_member"}  # see test_membership.py
    assert set(calls) | of_macros == {call for each in TRANSITIONS.values() for call in each} - ENDS
    ends = {"open": State.OPEN, "close": State.CLOSED, "configure": State.CONFIGURED, "create": State.CONFIGURED}
    number = 0
    for state in (State.UNKNOWN, State.CONFIGURED, State.OPEN, State.CLOSED, State.FAILED):
        for call, do in calls.items():
            number += 1
            name = f"q{number}"
            bring_to(manager, name, state)
            assert manager.state(name) is state
            if call not in TRANSITIONS[state]:
                with pytest.raises(WrongState, match=f"its state is {state}: {call} ") as caught:
                    do(name)
                assert (caught.value.state, caught.value.call, caught.value.queue) == (state, call, name)
                assert manager.state(name) is state
                continue
            if state is State.FAILED and call == "open":
                mend(manager, name)
            do(name)
            reached = name + "-renamed" if call == "rename" else name
            expected = ends.get(call, TRANSITIONS[state][call])
            if state is State.FAILED and call == "close":
                mend(manager, name)
            assert manager.state(reached) is expected, (state, call)


def bring_to(manager: QueueManager, name: str, state: State) -> None:
    if state is State.UNKNOWN:
        return
    manager.create(name)
    if state is State.FAILED:
        damaged = manager.root / name / "queue.json"
        damaged.rename(damaged.with_name("kept"))
        damaged.write_bytes(b"{")
        with pytest.raises(penstock.Corrupt):
            manager.open(name)
    if state in (State.OPEN, State.CLOSED):
        opened = manager.open(name)
        if state is State.CLOSED:
            opened.close()


def mend(manager: QueueManager, name: str) -> None:
    (manager.root / name / "kept").rename(manager.root / name / "queue.json")


@pytest.mark.parametrize("state", State)
def test_every_state_can_be_left(state: State) -> None:
    assert set(TRANSITIONS) == set(State)
    assert set(TRANSITIONS[state].values()) - {state}
    with pytest.raises(WrongState, match=f"{state}: nonsense"):
        after("orders", state, "nonsense")


def test_while_it_is_opened_and_closed_that_is_its_state(manager: QueueManager, monkeypatch: Any) -> None:
    manager.create("orders")
    seen = []
    from penstock.manager.kinds import KINDS

    class Slow:
        """Looks at the state in the middle."""

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def open(self, *given: Any, **options: Any) -> Any:
            seen.append(manager.state("orders"))
            with pytest.raises(WrongState, match="opening: destroy"):
                manager.destroy("orders")
            queue = self.inner.open(*given, **options)
            close = queue.close

            def closing() -> None:
                seen.append(manager.state("orders"))
                close()

            monkeypatch.setattr(queue, "close", closing, raising=False)
            return queue

    monkeypatch.setitem(KINDS, "queue", Slow(KINDS["queue"]))
    if penstock.compiled:
        pytest.skip("a compiled queue's close cannot be watched")
    manager.open("orders").close()
    assert seen == [State.OPENING, State.CLOSING]
    assert manager.state("orders") is State.CLOSED


def test_a_queue_can_be_opened_several_times_and_is_closed_with_the_last(manager: QueueManager) -> None:
    manager.create("orders")
    first, second = manager.open("orders"), manager.open("orders")
    first.close()
    first.close()
    assert first.closed and not second.closed
    assert manager.state("orders") is State.OPEN
    second.put("a")
    manager.close("orders")
    assert second.closed and manager.state("orders") is State.CLOSED
    with pytest.raises(penstock.QueueClosed):
        second.put("b")
    with manager.open("orders") as again:
        assert again.get().body == "a"


def test_threads_may_open_and_close_as_they_like(manager: QueueManager) -> None:
    manager.create("orders")
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                try:
                    with manager.open("orders") as q:
                        q.put("x")
                except WrongState as error:
                    assert error.state == State.CLOSING
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert manager.state("orders") is State.CLOSED


def test_closing_the_manager_closes_all_and_deletes_nothing(root: Path) -> None:
    with QueueManager(root) as manager:
        manager.grant("mail", "*", ["produce"])
        for name in ("a", "b"):
            manager.create(name, **SMALL)
        opened = [manager.open("a"), manager.open("b"), manager.as_principal("mail").open("a")]
        opened[2].put("kept")
    assert all(q.closed for q in opened)
    with QueueManager(root) as again:
        assert [each.name for each in again.list()] == ["a", "b"]
        assert again.open("a").get().body == "kept"


# ---------------------------------------------------------------- changing


def test_configure_changes_all_that_can_be_changed(manager: QueueManager) -> None:
    manager.create("orders")
    with manager.open("orders") as q:
        q.put("kept")
    changes: dict[str, Any] = {
        "model": "queued-acknowledged", "relationship": "consumer", "remote_clients": False, "depth": 2000,
        "data_bytes": 256 << 10, "spill_bytes": 1000, "lease": 5.0, "durability": "commit", "index_sync_ms": 500,
        "max_attempts": 3, "backoff": penstock.Backoff(1.0, 2.0), "dead_letter": "delete", "expired": "dead_letter",
        "dedup_window": 60.0, "history_bytes": 1 << 20, "history_age": 3600.0,
    }  # fmt: skip
    assert set(changes) == set(CHANGEABLE)
    assert set(manager.changes("orders", **changes)) == set(changes) - {"model"}
    made = manager.configure("orders", **changes)
    assert {name: getattr(made.options, name) for name in changes} == changes
    assert QueueManager(manager.root).find("orders").options == made.options
    assert manager.changes("orders", **changes) == {}
    with manager.open("orders") as q:
        message = q.get(block=False)
        assert message.body == "kept"
        message.release()


@pytest.mark.parametrize("name", FIXED)
def test_what_is_fixed_is_refused(manager: QueueManager, name: str) -> None:
    assert {*CHANGEABLE, *FIXED} == set(NAMES) == {field.name for field in msgspec.structs.fields(QueueOptions)}
    manager.create("orders")
    other = {"dedup_entries": 4096, "exclusive_keys": True, "notify": "file", "data_dirs": ["/tmp"],
             "kernel_dir": "/tmp", "mode": 0o666}  # fmt: skip
    with pytest.raises(Misuse, match=f"{name}: fixed when a queue is made"):
        manager.configure("orders", **{name: other[name]})


def test_a_change_that_is_refused_changes_nothing(manager: QueueManager) -> None:
    manager.create("orders", depth=10)
    with manager.open("orders") as q:
        q.put_many(range(10))
    before = manager.find("orders").options
    with pytest.raises(Misuse, match="in the way"):
        manager.configure("orders", depth=5, lease=3, remote_clients=False)
    assert manager.find("orders").options == before
    with penstock.open(manager.root / "orders"), pytest.raises(QueueInUse):
        manager.configure("orders", lease=3, remote_clients=False)
    assert manager.find("orders").options == before
    assert manager.state("orders") is State.CLOSED


def test_the_managers_own_options_change_while_others_have_it_open(manager: QueueManager) -> None:
    manager.create("orders")
    with QueueManager(manager.root) as other, other.open("orders", remote=True) as q:
        q.put("a")
        manager.configure("orders", remote_clients=False)
        with pytest.raises(NotPermitted, match="put is not permitted to remote clients"):
            q.put("b")
        with pytest.raises(NotPermitted, match="open is not permitted to remote clients"):
            other.open("orders", remote=True)
        manager.configure("orders", remote_clients=True)
        q.put("c")


def test_rename_keeps_all_but_the_name(manager: QueueManager) -> None:
    made = manager.create("orders", lease=7, remote_clients=False)
    with manager.open("orders") as q:
        id = q.put("kept")
    renamed = manager.rename("orders", "bills")
    assert (renamed.uuid, renamed.options, renamed.state) == (made.uuid, made.options, State.CONFIGURED)
    assert [each.name for each in manager.list()] == ["bills"]
    with manager.open("bills") as q:
        assert q.get().id == id


def test_a_rename_to_a_name_that_is_taken_or_of_a_queue_in_use_is_refused(manager: QueueManager) -> None:
    manager.create("orders")
    manager.create("bills")
    with pytest.raises(NameTaken, match=r"^orders: rename to bills is not possible: there is a queue of this name"):
        manager.rename("orders", "bills")
    with pytest.raises(NameTaken, match=r"^orders: rename to orders is not possible: that is its name") as refused:
        manager.rename("orders", "orders")
    assert (refused.value.queue, refused.value.call, refused.value.renamed) == ("orders", "rename", "orders")
    (manager.root / "notes").mkdir()
    with pytest.raises(QueueExists):
        manager.rename("orders", "notes")
    with penstock.open(manager.root / "orders"), pytest.raises(QueueInUse):
        manager.rename("orders", "more")
    assert [each.name for each in manager.list()] == ["bills", "orders"]


def test_a_rename_leaves_no_dead_letters_behind(manager: QueueManager) -> None:
    manager.create("orders", max_attempts=1)
    with manager.open("orders") as q:
        q.put("bad")
        q.get().fail("no")
    assert [each.name for each in manager.list()] == ["orders", "orders.dead"]
    with pytest.raises(Misuse, match=r"dead letters are in orders\.dead"):
        manager.rename("orders", "bills")
    with pytest.raises(Misuse, match="dead letters of orders"):
        manager.rename("orders.dead", "letters")
    manager.configure("orders", dead_letter="orders.dead")
    assert manager.find("orders").options.dead_letter == str(manager.root / "orders.dead")
    manager.rename("orders", "bills")
    with manager.open("bills") as q:
        assert q.redrive() == 1
        assert q.get().body == "bad"


def test_dead_letters_never_go_to_a_macro_queue(manager: QueueManager) -> None:
    manager.create("a")
    manager.create_macro("all", ["a"])
    manager.create_macro("b.dead", ["a"])
    for make in (
        lambda: manager.create("c", dead_letter="all"),
        lambda: manager.create("b"),
        lambda: manager.configure("a", dead_letter="all"),
        lambda: manager.configure("a", dead_letter=str(manager.root / "all")),
        lambda: manager.changes("a", dead_letter="all"),
    ):
        with pytest.raises(Misuse, match=r"its dead letters cannot go to (all|b\.dead): that is a macro queue"):
            make()
    manager.create("c", dead_letter="letters")
    for make in (
        lambda: manager.create_macro("letters", ["a"]),
        lambda: manager.create_macro("a.dead", ["a"]),
        lambda: manager.rename("all", "letters"),
    ):
        with pytest.raises(Misuse, match=r"the dead letters of [ac] go to the queue of this name"):
            make()
    manager.create("free")
    with pytest.raises(Misuse, match="cannot go to b"):
        manager.rename("free", "b")
    manager.create("b", dead_letter="delete")
    with pytest.raises(Misuse, match="cannot go to b"):
        manager.configure("b", dead_letter="beside")


@pytest.mark.parametrize("letters", ["a/b", "../x", "a b", ""])
def test_a_dead_letter_queue_is_a_name_or_a_whole_path(manager: QueueManager, letters: str) -> None:
    with pytest.raises(Misuse):
        manager.create("orders", dead_letter=letters)
    manager.create("orders")
    with pytest.raises(Misuse):
        manager.configure("orders", dead_letter=letters)


def test_only_destroy_deletes_and_only_the_one(manager: QueueManager, tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk"
    made = manager.create("orders", data_dirs=[str(elsewhere)], kernel_dir=str(elsewhere))
    manager.create("bills")
    assert len(list(elsewhere.iterdir())) == 2
    with penstock.open(made.place), pytest.raises(QueueInUse):
        manager.destroy("orders")
    manager.destroy("orders")
    assert manager.state("orders") is State.UNKNOWN
    assert list(elsewhere.iterdir()) == []
    names = {path.name for path in manager.root.iterdir()}
    assert names == {"bills", "manager.json", "manager.lock", "manager.changes"}
    with pytest.raises(NoSuchQueue, match="orders: there is no such queue: its state is unknown: destroy"):
        manager.destroy("orders")
    manager.create("orders")


def test_destroying_a_copy_leaves_the_files_of_the_original(manager: QueueManager, tmp_path: Path) -> None:
    import shutil

    elsewhere = tmp_path / "disk"
    made = manager.create("orders", data_dirs=[str(elsewhere)])
    shutil.copytree(made.place, manager.root / "copy")
    manager.destroy("copy")
    with manager.open("orders") as q:
        q.put("still here")


# ---------------------------------------------------------------- active, relationship


def test_a_deactivated_queue_lets_nothing_in_or_out_for_any_manager(manager: QueueManager) -> None:
    manager.create("orders")
    with QueueManager(manager.root) as other, other.open("orders") as q:
        q.put_many(["a", "b", "c"])
        message, loop = q.get(), q.consumer(wait=0)
        manager.deactivate("orders")
        for call in (lambda: q.put("c"), lambda: q.get(block=False), lambda: q.get_many(1), lambda: q.put_many([])):
            with pytest.raises(QueueInactive, match="orders: deactivated: "):
                call()
        with pytest.raises(QueueInactive), loop:
            next(iter(loop))
        assert q.qsize() == 2 and not other.find("orders").active
        q.ack(message)
        manager.activate("orders")
        assert q.get().body == "b"


def test_a_producer_and_a_consumer_do_their_part_only(manager: QueueManager) -> None:
    manager.create("orders")
    with manager.open("orders", relationship="producer") as source, \
         manager.open("orders", relationship="consumer") as sink:  # fmt: skip
        source.put("a")
        with pytest.raises(WrongRelationship, match="orders: get is not for a producer") as caught:
            source.get(block=False)
        assert (caught.value.relationship, caught.value.call) == ("producer", "get")
        with pytest.raises(WrongRelationship, match="put is not for a consumer"):
            sink.put("b")
        with pytest.raises(WrongRelationship):
            source.consumer()
        assert source.qsize() == sink.qsize() == 1
        sink.get().ack()
    manager.configure("orders", relationship="producer")
    with manager.open("orders") as q:
        q.put("c")
        with pytest.raises(WrongRelationship, match="get is not for a producer"):
            q.get(block=False)
    with pytest.raises(WrongRelationship, match="open is not for a consumer"):
        manager.open("orders", relationship="consumer")
    with pytest.raises(Misuse):
        manager.open("orders", relationship="friend")


def test_a_message_is_moved_between_managed_queues(manager: QueueManager) -> None:
    manager.create("orders")
    manager.create("bills", relationship="producer")
    with manager.open("orders") as orders, manager.open("bills") as bills:
        id = orders.put("a")
        orders.move(orders.get(), to=bills)
        assert (orders.qsize(), [m.id for m in bills.browse()]) == (0, [id])
        orders.put("b")
        orders.move(orders.get(), to=manager.root / "bills")
        assert bills.qsize() == 2


# ---------------------------------------------------------------- permissions


def test_the_model_of_a_queue_is_that_of_its_puts(manager: QueueManager) -> None:
    manager.create("asked", model="two-way")
    with manager.open("asked", relationship="producer") as asks, manager.open("asked") as answers:
        handle = asks.put("?", wait=False)
        answers.get(timeout=20).reply("!")
        assert handle.result(20) == "!"
        with pytest.raises(NoAnswer):
            asks.put("?", timeout=0)
        assert isinstance(asks.put("plain", model="queued-acknowledged"), str)
        assert len(asks.put_many(["x"], model="one-way")) == 1
        with pytest.raises(Misuse, match="put_once waits for no answer"):
            asks.put_once("p", 1, ["x"])
        for call in (lambda: asks.reply(None, "x"), lambda: asks.get(block=False)):
            with pytest.raises(WrongRelationship):
                call()
        QueueManager(manager.root).configure("asked", model="one-way")  # one of the manager's own: it counts at once
        assert isinstance(asks.put("stored"), str)
    with pytest.raises(Misuse, match="model must be one of"):
        manager.create("other", model="three-way")


def test_an_asker_needs_the_right_to_produce_and_who_answers_the_right_to_consume(manager: QueueManager) -> None:
    manager.create("asked")
    manager.grant("asker", "asked", ["produce"])
    manager.grant("clerk", "asked", ["consume"])
    with manager.as_principal("asker").open("asked") as asks, manager.as_principal("clerk").open("asked") as answers:
        handle = asks.put("?", model="two-way", wait=False)
        answers.reply(answers.get(timeout=20), "!")
        assert handle.result(20) == "!"
        assert not asks.answer(handle.id).done()
        with pytest.raises(NotPermitted):
            answers.answer(handle.id)
        with pytest.raises(NotPermitted):
            asks.reply(None, "x")


def test_every_call_of_the_interface_is_checked() -> None:
    offered = {name for name in vars(ManagedQueue) if not name.startswith("_")}
    promised = {name for name in vars(Queue) if not name.startswith("_")}
    unchecked = {"name", "called", "path", "closed", "close", "leave"}
    assert promised - unchecked <= offered
    assert offered - unchecked <= set(CALLS)
    for name in ("create", "configure", "rename", "destroy", "activate", "deactivate", "grant", "revoke"):
        assert CALLS[name].right is Right.ADMINISTER


ASKED = {
    Right.PRODUCE: lambda q: q.put("x"),
    Right.CONSUME: lambda q: q.get_many(1),
    Right.BROWSE: lambda q: list(q.browse()),
    Right.ADMINISTER: lambda q: q.purge(),
}


@pytest.mark.parametrize("right", Right)
def test_a_right_allows_its_calls_and_no_others(manager: QueueManager, right: Right) -> None:
    manager.create("orders")
    manager.grant("mail", "ord*", [right])
    view = manager.as_principal("mail")
    with view.open("orders") as q:
        for needed, call in ASKED.items():
            if needed is right:
                call(q)
                continue
            with pytest.raises(NotPermitted, match=f"not permitted to 'mail': it has no right to {needed}") as caught:
                call(q)
            assert caught.value.who == "'mail'"
    if right is not Right.ADMINISTER:
        for change in (lambda: view.destroy("orders"), lambda: view.configure("orders", lease=1),
                       lambda: view.deactivate("orders"), lambda: view.rename("orders", "ordered"),
                       lambda: view.create("order66"), lambda: view.grant("mail", "*", ["administer"])):  # fmt: skip
            with pytest.raises(NotPermitted):
                change()
    assert manager.find("orders").active and len(manager.list()) == 1


def test_without_any_right_a_queue_cannot_be_seen(manager: QueueManager) -> None:
    manager.create("orders")
    manager.create("bills")
    manager.grant("mail", "orders", ["browse"])
    view = manager.as_principal("mail")
    assert [each.name for each in view.list()] == ["orders"]
    for call in (view.open, view.find, view.state, view.close):
        with pytest.raises(NotPermitted, match="bills"):
            call("bills")
        with pytest.raises(NotPermitted, match="nothing"):  # nor whether there is one
            call("nothing")
    assert manager.as_principal("nobody").list() == []


def test_a_right_that_is_taken_back_is_gone_at_once(manager: QueueManager) -> None:
    manager.create("orders")
    manager.grant("mail", "*", ["produce", "browse"])
    with QueueManager(manager.root) as other, other.as_principal("mail").open("orders") as q:
        q.put("a")
        manager.grant("mail", "*", ["browse"])
        with pytest.raises(NotPermitted):
            q.put("b")
        assert q.qsize() == 1
        manager.revoke("mail", "*")
        with pytest.raises(NotPermitted):
            q.qsize()
    assert manager.permissions() == {}


def test_an_administrator_of_all_may_grant_and_one_of_some_may_not(manager: QueueManager) -> None:
    manager.grant("root", "*", ["administer"])
    manager.grant("some", "some-*", ["administer"])
    manager.as_principal("root").grant("mail", "a", ["produce"])
    with pytest.raises(NotPermitted):
        manager.as_principal("some").grant("some", "*", ["consume"])
    manager.as_principal("some").create("some-queue")
    with pytest.raises(NotPermitted):
        manager.as_principal("some").rename("some-queue", "other")
    with pytest.raises(NotPermitted):
        manager.as_principal("some").create("other")
    with pytest.raises(Misuse):
        manager.as_principal("some").as_principal("root")


def test_a_principal_moves_messages_only_where_it_may_put(manager: QueueManager) -> None:
    manager.create("orders")
    manager.create("bills")
    manager.grant("mail", "orders", ["produce", "consume"])
    manager.grant("mail", "bills", ["browse"])
    view = manager.as_principal("mail")
    with view.open("orders") as orders, view.open("bills") as bills:
        orders.put("a")
        message = orders.get()
        with pytest.raises(NotPermitted, match="bills: put"):
            orders.move(message, to=bills)
        with pytest.raises(Misuse, match="only to queues that its manager has opened"):
            orders.move(message, to=manager.root / "bills")
        assert bills.qsize() == 0


@pytest.mark.parametrize("rights", [[], "produce", ["fly"], [7], None])
def test_rights_that_are_none_are_refused(manager: QueueManager, rights: Any) -> None:
    with pytest.raises(Misuse, match="rights must be some of"):
        manager.grant("mail", "*", rights)
    for principal, pattern in (("", "*"), ("mail", ""), (7, "*"), ("mail", None)):
        with pytest.raises(Misuse):
            manager.grant(principal, pattern, ["produce"])  # type: ignore[arg-type]
    assert manager.permissions() == {}


def test_a_damaged_file_of_permissions_permits_nothing(manager: QueueManager) -> None:
    manager.create("orders")
    manager.grant("mail", "*", ["produce"])
    view = manager.as_principal("mail")
    (manager.root / "manager.json").write_bytes(b"{")
    with pytest.raises(penstock.Corrupt, match=r"manager\.json"):
        view.open("orders")


# ---------------------------------------------------------------- other directories


class Site:
    """A directory of a site: queues that are elsewhere."""

    def __init__(self, *entries: Entry) -> None:
        self._entries = entries

    def entries(self) -> tuple[Entry, ...]:
        return self._entries

    def find(self, name: str) -> Entry | None:
        return next((entry for entry in self._entries if entry.name == name), None)

    def find_uuid(self, uuid: str) -> Entry | None:
        return next((entry for entry in self._entries if entry.uuid == uuid), None)


def test_names_are_looked_up_in_further_directories(manager: QueueManager, tmp_path: Path) -> None:
    with penstock.create(tmp_path / "far", slots=10, data_bytes=1 << 16) as q:
        uuid = q.stats().uuid
    far = Entry(name="far", uuid=uuid, kind="queue", place=str(tmp_path / "far"), options=QueueOptions())
    away = Entry(name="away", uuid=None, kind="queue", place="penstock://other/away", options=QueueOptions())
    with QueueManager(manager.root, directories=[Site(far, away)]) as wide:
        wide.create("near")
        assert [each.name for each in wide.list()] == ["away", "far", "near"]
        with wide.open("far") as one, wide.open(uuid) as two:
            one.put("hello")
            assert two.get().body == "hello"
        with pytest.raises(Misuse, match="penstock://other/away"):
            wide.open("away")
        with pytest.raises(Misuse, match="far: not in"):
            wide.destroy("far")
        assert (tmp_path / "far" / "kernel").exists()


# ---------------------------------------------------------------- in each other's way


def test_what_another_thread_has_opened_of_a_new_queue_can_be_closed(
    manager: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came when the queue was there, and its maker was not through."""
    opened: list[ManagedQueue] = []
    forget = manager._handed.forget

    def slow(name: str) -> None:
        opened.append(manager.open(name))
        forget(name)

    monkeypatch.setattr(manager._handed, "forget", slow)
    manager.create("orders")
    monkeypatch.undo()
    opened[0].close()
    assert opened[0].closed and manager.state("orders") == State.CLOSED
    manager.destroy("orders")


def test_a_configure_that_was_killed_beside_an_open_queue_shuts_nobody_out(manager: QueueManager, root: Path) -> None:
    manager.create("orders", lease=5)
    with penstock.open(root / "orders"):
        place = root / "orders"
        note(place, msgspec.structs.replace(read_noted(place), wanted={"lease": 7}))
        with QueueManager(root) as other:
            assert other.state("orders") == State.CONFIGURING
            with other.open("orders") as q:
                q.put(b"m")
            assert not other.deactivate("orders").active
            assert other.activate("orders").active
            with pytest.raises(QueueInUse):
                other.configure("orders", lease=9)
    assert manager.configure("orders", max_attempts=3).options.lease == 7


def test_a_configure_that_was_half_done_when_somebody_came_is_done_later(
    manager: QueueManager, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.create("orders", depth=100, lease=5)
    came: list[penstock.TimeQueue] = []

    def resize_then_somebody(place: Path, **sizes: Any) -> Any:
        done = resize_queue(place, **sizes)
        came.append(penstock.open(place))
        return done

    monkeypatch.setattr(kinds, "resize_queue", resize_then_somebody)
    with pytest.raises(QueueInUse):
        manager.configure("orders", depth=200, lease=7)
    monkeypatch.undo()
    came[0].close()
    manager.open("orders").close()
    found = manager.find("orders")
    assert (found.options.depth, found.options.lease) == (200, 7)


@pytest.mark.parametrize("name", ["manager.lock", "manager.json", "manager.changes.new", "penstock.toml"])
def test_no_queue_has_the_name_of_a_managers_file(manager: QueueManager, name: str) -> None:
    manager.create("orders")
    for attempt in (lambda: manager.create(name), lambda: manager.rename("orders", name)):
        with pytest.raises(Misuse, match="file of the manager"):
            attempt()


def test_a_queue_may_be_called_destroyed(manager: QueueManager, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is made, another manager clears up."""
    make = kinds.make

    def swept(place: Path, **options: Any) -> Path:
        def sweep(_: int) -> None:
            with QueueManager(root) as other:
                other.set_defaults(**SMALL)

        return make(place, **options, progress=sweep)

    monkeypatch.setattr(kinds, "make", swept)
    manager.create("destroyed", data_bytes=1 << 20)
    assert [info.name for info in manager.list()] == ["destroyed"]


def test_what_cannot_be_removed_stops_nobody(
    manager: QueueManager, root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = root / f"{DESTROYED}x"
    left.mkdir()

    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(root_module, "finish_removal", refused)
    manager.create("orders")
    assert not manager.deactivate("orders").active
    assert "cannot be removed" in caplog.text and left.exists()
