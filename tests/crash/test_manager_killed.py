"""Kill -9 at every effect of a manager's calls: the root is as before the call or as after it, and the next manager
understands it, goes on and leaves nothing behind."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.manager import QueueManager, State
from penstock.manager.declared import parse, perform, plan
from penstock.timequeue import check_queue
from tests.crash.rig import killed_at
from tests.snapshot import FAST
from tests.thoroughness import STEPS_MAX

SMALL: dict[str, Any] = {"depth": 20, "data_bytes": 16 << 10, "durability": "relaxed", "spill_bytes": 500}
OWN_FILES = {"manager.json", "manager.lock", "manager.changes"}


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-manager-", dir=FAST) as name:
        yield Path(name)


def prepared(root: Path) -> None:
    """Two queues with messages, one of them with files elsewhere, and a permission."""
    with QueueManager(root) as manager:
        manager.create("orders", **SMALL)
        manager.create("far", data_dirs=[str(root.with_name(f"{root.name}-disk"))], **SMALL)
        manager.grant("mail", "o*", ["produce"])
        for name in ("orders", "far"):
            with manager.open(name) as q:
                q.put_many([b"a", b"b" * 900])


def picture(root: Path) -> dict[str, Any]:
    """All that a manager tells, and all messages."""
    with QueueManager(root, busy_s=2) as manager:
        found: dict[str, Any] = {}
        for info in manager.list():
            opened = manager.open(info.name)
            found[info.name] = (
                info.uuid,
                manager.find(info.name).options,
                info.active,
                [m.id for m in opened.browse()],
            )
            opened.close()
            assert manager.state(info.name) is State.CLOSED
        found["permissions"] = manager.permissions()
        found["defaults"] = manager.defaults
    return found


def left(root: Path) -> set[str]:
    """What is in the root beside queues and the manager's own files, once a manager has been there."""
    with QueueManager(root) as manager:
        manager.revoke("nobody", "*")  # takes the lock
        names = {info.name for info in manager.list()}
    return {path.name for path in root.iterdir()} - names - OWN_FILES


DECLARED = parse(
    {
        "defaults": {"lease": 3.0},
        "queues": {"orders": {"depth": 40, "active": False}, "new": SMALL},
        "permissions": {"web": {"*": ["browse"]}},
    }
)


def apply(manager: QueueManager) -> None:
    for change in plan(manager, DECLARED):
        perform(manager, change)


CALLS: dict[str, Callable[[QueueManager], Any]] = {
    "create": lambda manager: manager.create("new", relationship="producer", remote_clients=False, **SMALL),
    "destroy": lambda manager: manager.destroy("orders"),
    "destroy with files elsewhere": lambda manager: manager.destroy("far"),
    "rename": lambda manager: manager.rename("orders", "bills"),
    "configure a habit": lambda manager: manager.configure("orders", lease=7.0, max_attempts=3),
    "configure its own": lambda manager: manager.configure("orders", relationship="consumer"),
    "configure all": lambda manager: manager.configure(
        "orders", depth=40, data_bytes=32 << 10, lease=7.0, remote_clients=False
    ),
    "deactivate": lambda manager: manager.deactivate("orders"),
    "grant": lambda manager: manager.grant("web", "*", ["browse"]),
    "defaults": lambda manager: manager.set_defaults(depth=5),
}


STRIDES = {"create": 5, "configure all": 3}  # making a kernel is many stores that nobody sees before it is there


@pytest.mark.parametrize("name", CALLS)
def test_killed_at_every_effect_a_call_is_done_or_not_done(name: str, folder: Path) -> None:
    outcomes = set()
    for step in range(1, STEPS_MAX, STRIDES.get(name, 1)):
        root = folder / f"root{step}"
        prepared(root)
        before = picture(root)
        died = killed_at(step, CALLS[name], lambda: QueueManager(root, busy_s=2))  # noqa: B023
        after = picture(root)
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        if not changed:
            outcomes.add("not done")
            with QueueManager(root) as manager:  # nothing is in the way of trying again
                CALLS[name](manager)
                done = picture(root)
        else:
            outcomes.add("done")
            done = after
        assert_done(name, before, done)
        assert not {each for each in left(root) if not each.startswith(".new.")}, step  # swept after a minute
        for queue in root.iterdir():
            if queue.is_dir() and not queue.name.startswith("."):
                assert check_queue(queue) == [], step
        if not died:
            assert changed or name == "create"
            break
    else:
        raise AssertionError("the call has no end")
    assert outcomes == {"done", "not done"}


def assert_done(name: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    """The whole of the change, and nothing but it."""
    rest = {key: value for key, value in after.items() if before.get(key) == value}
    match name:
        case "create":
            assert after["new"][1].relationship == "producer" and not after["new"][1].remote_clients
            assert set(rest) == set(before)
        case "destroy" | "destroy with files elsewhere":
            assert set(before) - set(after) == {"far" if "elsewhere" in name else "orders"}
            assert set(rest) == set(after)
        case "rename":
            assert after["bills"] == before["orders"] and "orders" not in after
        case "configure a habit":
            assert (after["orders"][1].lease, after["orders"][1].max_attempts) == (7.0, 3)
        case "configure its own":
            assert after["orders"][1].relationship == "consumer"
        case "configure all":
            options = after["orders"][1]
            assert (options.depth, options.data_bytes, options.lease) == (40, 32 << 10, 7.0)
            assert not options.remote_clients
        case "deactivate":
            assert not after["orders"][2] and after["orders"][3] == before["orders"][3]
        case "grant":
            assert after["permissions"] == {**before["permissions"], "web": {"*": ["browse"]}}
        case "defaults":
            assert after["defaults"].depth == 5
    if name.startswith("configure"):
        assert after["orders"][3] == before["orders"][3] and after["orders"][0] == before["orders"][0]


def test_nothing_is_left_of_a_queue_with_files_elsewhere(folder: Path) -> None:
    for step in range(1, STEPS_MAX):
        root = folder / f"root{step}"
        prepared(root)
        died = killed_at(step, CALLS["destroy with files elsewhere"], lambda: QueueManager(root))  # noqa: B023
        with QueueManager(root) as manager:
            manager.revoke("nobody", "*")
            if manager.state("far") is State.UNKNOWN:
                assert list(root.with_name(f"{root.name}-disk").iterdir()) == [], step
            else:
                with manager.open("far") as q:
                    assert q.qsize() == 2
        if not died:
            return
    raise AssertionError("the call has no end")


def test_whoever_completes_a_change_may_be_killed_too(folder: Path) -> None:
    completed = 0
    for step in range(1, STEPS_MAX, 6):
        root = folder / f"root{step}"
        prepared(root)
        before = picture(root)
        if not killed_at(step, CALLS["configure all"], lambda: QueueManager(root)):  # noqa: B023
            break
        if QueueManager(root).state("orders") is not State.CONFIGURING:
            continue
        for again in range(1, STEPS_MAX, 4):
            died = killed_at(again, lambda manager: manager.open("orders").close(), lambda: QueueManager(root))  # noqa: B023
            if not died:
                break
        assert_done("configure all", before, picture(root))
        completed += 1
    assert completed > 3


def test_an_apply_that_was_killed_is_done_by_the_next(folder: Path) -> None:
    died = True
    for step in range(1, STEPS_MAX, 5):
        root = folder / f"root{step}"
        prepared(root)
        died = killed_at(step, apply, lambda: QueueManager(root))  # noqa: B023
        with QueueManager(root) as manager:
            apply(manager)
            assert [change.action for change in plan(manager, DECLARED)] == ["undeclared"]
            assert not manager.find("orders").active and manager.find("orders").options.depth == 40
            assert manager.permissions() == {"web": {"*": ["browse"]}}
            assert penstock.open(root / "orders").qsize() == 2
        if not died:
            return
    raise AssertionError("an apply has no end")
