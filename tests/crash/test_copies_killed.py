"""Kill -9 at every store and effect of a copy to all members of a macro queue: all of them have it, or none, as soon as
somebody opens the macro queue; and whoever completes it may be killed as well."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import MacroQueue, QueueManager
from penstock.manager.copies import Copies, Decision, Place, kept
from tests.crash.rig import contents, killed_at
from tests.snapshot import FAST, Snapshot
from tests.thoroughness import IN_FULL, STEPS_MAX, some_of

MEMBERS = ["a", "b", "c"]
BEFORE = [b"before"]
BATCH = [b"one", b"s" * 900, b"three"]
SMALL: dict[str, Any] = {"depth": 20, "data_bytes": 16 << 10, "spill_bytes": 500}
pytestmark = pytest.mark.timeout(600)
STRIDE = 7 if IN_FULL else 23  # of the steps at which it is killed: a copy to three members has some hundred


class Saved:
    """A root as it was. The macro queue's own files are those of copies under way."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._members = [Snapshot(root / name) for name in MEMBERS]

    def restored(self) -> Path:
        for member in self._members:
            member.put_back()
        for file in (self._root / "all").glob("copy*"):
            file.unlink()
        return self._root


@pytest.fixture(scope="module")
def saved() -> Iterator[Saved]:
    with tempfile.TemporaryDirectory(prefix="penstock-copies-", dir=FAST) as folder:
        root = Path(folder) / "root"
        with QueueManager(root) as manager:
            for name in MEMBERS:
                manager.create(name, **SMALL)
            manager.create_macro("all", MEMBERS, producing="copy-to-all")
            with manager.open("all") as q:
                q.put(BEFORE[0])  # the publisher is known
        yield Saved(root)


def copy(durability: str) -> Callable[[Path], None]:
    def work(root: Path) -> None:
        MacroQueue(root / "all", busy_s=2).put_many(BATCH, durability=durability)

    return work


def decide(root: Path, publisher: str, number: int) -> None:
    """What one leaves that is killed as soon as it has decided; what it was filling is given back anyway."""
    with QueueManager(root) as manager:
        members = [Place(name, manager.find(name).uuid or "") for name in MEMBERS]
    messages = [kept(penstock.Draft(body=body), 0) for body in BATCH]
    Copies(root / "all", "", busy_s=2).decide(Decision(publisher, number, members, False, messages))


@pytest.fixture
def decided(tmp_path: Path) -> Path:
    """A root with a copy that was decided, and is in no member yet."""
    root = tmp_path / "root"
    with QueueManager(root) as manager:
        for name in MEMBERS:
            manager.create(name, **SMALL)
        uuid = manager.create_macro("all", MEMBERS, producing="copy-to-all").uuid
        with manager.open("all") as q:
            q.put(BEFORE[0])
    decide(root, f"macro-{uuid}", 1)
    return root


def completed(root: Path) -> list[list[bytes]]:
    """What each member has once somebody has opened the macro queue."""
    with MacroQueue(root / "all", busy_s=2):
        pass
    assert not (root / "all" / "copy").exists()
    return [contents(root / name) for name in MEMBERS]


@pytest.mark.parametrize("durability", ["commit", "relaxed"])
def test_killed_anywhere_all_members_have_a_copy_or_none(durability: str, saved: Saved) -> None:
    outcomes = set()
    for step in some_of(STRIDE):
        root = saved.restored()
        died = killed_at(step, copy(durability), lambda: root)  # noqa: B023
        found = completed(root)
        assert found in ([BEFORE] * 3, [BEFORE + BATCH] * 3), (step, found)
        outcomes.add(len(found[0]))
        if not died:
            assert found == [BEFORE + BATCH] * 3
            break
    else:
        raise AssertionError("a copy has no end")
    assert outcomes == {1, 4}


def test_who_completes_a_copy_may_be_killed_too(saved: Saved) -> None:
    decided = 0
    for step in range(1, STEPS_MAX, 3 * STRIDE):
        root = saved.restored()
        if not killed_at(step, copy("commit"), lambda: root):  # noqa: B023
            break
        if not (root / "all" / "copy").exists():
            continue
        decided += 1
        for again in range(1, STEPS_MAX, 3 * STRIDE):
            if not killed_at(again, lambda path: MacroQueue(path / "all", busy_s=2).close(), lambda: root):  # noqa: B023
                break
        assert completed(root) == [BEFORE + BATCH] * 3, step
    assert decided > 0


def test_what_comes_after_a_killed_copy_comes_after_it(saved: Saved) -> None:
    root = saved.restored()
    for step in range(1, STEPS_MAX, STRIDE):
        root = saved.restored()
        killed_at(step, copy("commit"), lambda: root)  # noqa: B023
        if (root / "all" / "copy").exists():
            break
    with MacroQueue(root / "all", busy_s=2) as q:
        q.put(b"next")
    assert [contents(root / name) for name in MEMBERS] == [[*BEFORE, *BATCH, b"next"]] * 3


def test_who_completes_a_copy_does_so_under_the_name_of_whoever_decided_it(saved: Saved) -> None:
    root = saved.restored()
    publisher = "macro-of-before"  # of a macro queue that was destroyed and made anew meanwhile
    with penstock.open(root / "b") as b:
        b.put_once(publisher, 0, BATCH)
    decide(root, publisher, 0)
    assert completed(root) == [BEFORE + BATCH] * 3


def test_a_copy_that_was_decided_finds_a_member_that_was_renamed(decided: Path) -> None:
    with QueueManager(decided) as manager:
        manager.remove_member("all", "b")
        manager.rename("b", "other")
        manager.create("b", **SMALL)
    with MacroQueue(decided / "all", busy_s=2) as q:
        q.put(b"next")
    assert [contents(decided / name) for name in ("a", "c")] == [[*BEFORE, *BATCH, b"next"]] * 2
    assert contents(decided / "other") == BEFORE + BATCH and contents(decided / "b") == []


@pytest.mark.parametrize("kind", ["queue", "member", "macro"])
def test_a_copy_that_was_decided_does_not_go_to_another_queue_of_a_members_name(kind: str, decided: Path) -> None:
    with QueueManager(decided) as manager:
        manager.remove_member("all", "b")
        manager.destroy("b")
        if kind == "macro":
            manager.create_macro("b", ["c"])
        else:
            manager.create("b", **SMALL)
        if kind == "member":
            manager.add_member("all", "b")
    with MacroQueue(decided / "all", busy_s=2) as q:
        q.put(b"next")
    assert [contents(decided / name) for name in ("a", "c")] == [[*BEFORE, *BATCH, b"next"]] * 2
    if kind != "macro":
        assert contents(decided / "b") == ([b"next"] if kind == "member" else [])


def test_a_copy_that_was_decided_is_completed_in_a_copy_of_the_whole_root(decided: Path) -> None:
    root = decided.with_name("restored")
    shutil.copytree(decided, root)  # where all members get other UUIDs
    with MacroQueue(root / "all", busy_s=2):
        pass
    assert not (root / "all" / "copy").exists()
    for name in MEMBERS:
        with penstock.open(root / name) as q:
            assert [message.data for message in q.browse()] == BEFORE + BATCH


def test_a_member_that_cannot_take_a_decided_copy_any_more_does_not_hold_up_others(
    decided: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with QueueManager(decided) as manager:
        manager.configure("b", depth=2)
    with MacroQueue(decided / "all", busy_s=2) as q:
        q.put(b"next")
    assert [contents(decided / name) for name in MEMBERS] == [
        [*BEFORE, *BATCH, b"next"],
        [*BEFORE, b"next"],
        [*BEFORE, *BATCH, b"next"],
    ]
    assert [record.message for record in caplog.records if "b does not get a copy" in record.message]


def test_a_full_member_keeps_a_decided_copy_from_no_other(decided: Path) -> None:
    with penstock.open(decided / "a") as a:
        a.put_many([b"in the way"] * 18)
    with MacroQueue(decided / "all", busy_s=2) as q, pytest.raises(penstock.QueueFull):
        q.put(b"next")
    assert [contents(decided / name) for name in ("b", "c")] == [BEFORE + BATCH] * 2
    with penstock.open(decided / "a") as a:
        a.purge()
    assert completed(decided) == [BATCH, BEFORE + BATCH, BEFORE + BATCH]


def test_a_macro_queue_that_is_destroyed_has_completed_its_copies(decided: Path) -> None:
    with QueueManager(decided) as manager:
        manager.destroy("all")
    assert [contents(decided / name) for name in MEMBERS] == [BEFORE + BATCH] * 3


@pytest.mark.parametrize("left", ["nothing", "a part", "zeros", "zeros inside"])
def test_a_decision_that_a_power_loss_has_torn_is_dropped(
    left: str, decided: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = decided / "all" / "copy"
    data = file.read_bytes()
    middle = data.index(b"s" * 900) + 100
    torn = {
        "nothing": b"",
        "a part": data[:middle],
        "zeros": bytes(len(data)),
        "zeros inside": data[:middle] + bytes(500) + data[middle + 500 :],
    }
    file.write_bytes(torn[left])
    with MacroQueue(decided / "all", busy_s=2) as q:
        q.put(b"next")
    assert [contents(decided / name) for name in MEMBERS] == [[*BEFORE, b"next"]] * 3
    assert [record.message for record in caplog.records if "torn" in record.message]


def test_a_copy_that_finds_a_member_full_leaves_nothing_anywhere(tmp_path: Path) -> None:
    with QueueManager(tmp_path) as manager:
        for name in MEMBERS:
            manager.create(name, **{**SMALL, "depth": 2 if name == "c" else 20})
        manager.create_macro("all", MEMBERS, producing="copy-to-all")
        with manager.open("all") as q, manager.open("c") as c:
            q.put(b"first")
            c.put(b"in the way")
            with pytest.raises(penstock.QueueFull):
                q.put(b"second")
            with pytest.raises(penstock.QueueFull):
                q.put(b"second", timeout=0.05)
            assert [contents(tmp_path / name) for name in ("a", "b")] == [[b"first"]] * 2
            c.get().ack()
            q.put(b"second")
    assert [contents(tmp_path / name) for name in ("a", "b")] == [[b"first", b"second"]] * 2
    assert contents(tmp_path / "c") == [b"in the way", b"second"]
