"""Many managers of one root, in several processes, some of them killed: the root stays one that all understand."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

import penstock
from penstock import PenstockError, QueueManager, WrongState
from penstock.manager import State
from penstock.timequeue import check_queue
from tests.crash.rig import in_child

NAMES = ("a", "b", "c")
SMALL = {"depth": 20, "data_bytes": 16 << 10, "durability": "relaxed"}
PROCESSES = 4
CALLS = 150


def work(root: Path, seed: int) -> None:
    """Random calls on few names. What others did in between may refuse them, and nothing else may."""
    chance = random.Random(seed)
    with QueueManager(root) as manager:
        for _ in range(CALLS):
            name, other = chance.choice(NAMES), chance.choice(NAMES)
            call = chance.choice(["create", "destroy", "rename", "configure", "activate", "use", "use", "grant"])
            try:
                match call:
                    case "create":
                        manager.create(name, **SMALL)
                    case "destroy":
                        manager.destroy(name)
                    case "rename":
                        manager.rename(name, other)
                    case "configure":
                        manager.configure(name, lease=chance.randint(1, 9), depth=chance.choice([20, 30]))
                    case "activate":
                        manager.activate(name)
                    case "grant":
                        manager.grant(f"p{seed}", f"{name}{chance.randint(0, 9)}", ["produce"])
                    case "use":
                        with manager.open(name) as q:
                            q.put(b"x")
                            q.get(block=False).ack()
            except (WrongState, penstock.QueueInUse, penstock.QueueNotFound, penstock.QueueExists, penstock.QueueEmpty):
                pass
            except penstock.NotAQueue as error:  # seen while it was being deleted
                assert "incomplete" in str(error) or "not a queue" in str(error)


def assert_understood(root: Path) -> None:
    with QueueManager(root) as manager:
        manager.revoke("nobody", "*")
        for info in manager.list():
            assert info.state is State.CONFIGURED or info.state is State.CONFIGURING, info
            with manager.open(info.name) as q:
                q.put(b"x")
            assert check_queue(Path(info.place)) == []
            manager.destroy(info.name)
    left = {path.name for path in root.iterdir()} - {"manager.json", "manager.lock", "manager.changes"}
    assert {name for name in left if name[0] != "." or name.startswith(".destroyed")} == set()


@pytest.mark.parametrize("seed", [1, 2])
def test_managers_in_several_processes_share_a_root(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    root = tmp_path / "root"
    children = [_start(root, seed * 100 + i) for i in range(PROCESSES)]
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * PROCESSES
    grants = QueueManager(root).permissions()
    assert all(grants[f"p{seed * 100 + i}"] for i in range(PROCESSES)), "no grant of one was lost to another's"
    assert_understood(root)


def test_killed_managers_leave_a_root_that_the_next_understands(tmp_path: Path) -> None:
    seed = 7
    print("seed", seed)
    chance = random.Random(seed)
    root = tmp_path / "root"
    for round in range(6):
        children = [_start(root, seed * 1000 + round * 10 + i) for i in range(2)]
        time.sleep(chance.uniform(0.02, 0.15))
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            status = os.waitpid(pid, 0)[1]
            assert os.WIFSIGNALED(status) or status == 0
    assert in_child(lambda: work(root, seed)) == 0
    assert_understood(root)


def _start(root: Path, seed: int) -> int:
    pid = os.fork()
    if pid == 0:
        status = 3
        try:
            work(root, seed)
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def test_a_change_counts_for_a_queue_that_another_process_has_open(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with QueueManager(root) as manager:
        manager.create("orders", **SMALL)
        with manager.open("orders") as q:
            assert in_child(lambda: deactivate(root)) == 0
            with pytest.raises(penstock.QueueInactive):
                q.put(b"x")
            assert not manager.find("orders").active


def deactivate(root: Path) -> None:
    try:
        QueueManager(root).deactivate("orders")
    except PenstockError as error:
        raise AssertionError("it could not be deactivated") from error
