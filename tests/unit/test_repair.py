"""Repair: what is missing or cut off is made, in a dry run only in thought, and never under a living client."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.store import layout as L
from penstock.store import repair
from penstock.store.directory import read_options
from penstock.timequeue import Finding, check_queue, repair_queue, restore_queue
from tests.crash.rig import killed_at

SIZES = {"slots": 40, "data_bytes": 64 << 10, "spill_bytes": 3000, "index_sync_ms": 0}
STEPS = 40  # making the files has fewer effects; the restore behind it is killed at every one elsewhere
BODIES = [b"m%d" % i for i in range(20)] + [b"large" * 1000]


@pytest.fixture
def made(path: Path) -> Path:
    with penstock.create(path, **SIZES) as queue:
        for body in BODIES[:10]:
            queue.put(body)
        queue.put_many(BODIES[10:])
    return path


def contents(path: Path) -> list[bytes]:
    assert check_queue(path) == []
    with penstock.open(path) as queue:
        return [message.data for message in queue.browse()]


def state_of(path: Path) -> dict[str, tuple[int, bytes]]:
    return {str(file): (file.stat().st_ino, file.read_bytes()) for file in path.rglob("*") if file.is_file()}


def rehearsed(path: Path, work: Callable[..., list[Finding]] = repair_queue) -> list[Finding]:
    """Repair a queue; what a dry run before said, and it changed nothing, is what the repair says."""
    before = state_of(path)
    said = work(path, dry_run=True)
    assert state_of(path) == before
    assert work(path) == said
    return said


# ---------------------------------------------------------------- missing


@pytest.mark.parametrize("name", ["lock", "clients", "bodies", "notify", "notify/wakeup", "kernel"])
@pytest.mark.parametrize("work", [repair_queue, restore_queue])
def test_what_is_missing_is_made_and_named(made: Path, name: str, work: Callable[..., list[Finding]]) -> None:
    expected = list(BODIES)
    if (made / name).is_dir():
        shutil.rmtree(made / name)
    else:
        (made / name).unlink()
    if name == "bodies":
        expected.pop()
    findings = rehearsed(made, work)
    assert (findings[0].path, findings[0].offset) == (str(made / name), 0)
    assert "missing" in findings[0].what
    assert contents(made) == expected
    assert repair_queue(made) == []


def test_everything_at_once_that_can_be_made(made: Path) -> None:
    for name in ("lock", "clients", "kernel", "notify/wakeup"):
        (made / name).unlink()
    assert len(rehearsed(made)) == 4
    assert contents(made) == BODIES


def test_a_missing_data_file_is_refused_and_nothing_is_made(made: Path) -> None:
    for name in ("data.0", "lock"):
        (made / name).unlink()
    for work in (repair_queue, restore_queue):
        with pytest.raises(penstock.NotAQueue, match=r"data\.0 is missing, and only a backup"):
            work(made)
    assert not (made / "lock").exists() and not (made / "data.0").exists()
    shutil.rmtree(made)


def test_a_kernel_in_another_directory(path: Path, tmp_path: Path) -> None:
    with penstock.create(path, kernel_dir=tmp_path / "fast", data_dirs=[tmp_path / "a", tmp_path / "b"], **SIZES) as q:
        q.put_many(BODIES)
    os.unlink(Path(str(read_options(path).kernel_dir)) / "kernel")
    rehearsed(path)
    assert contents(path) == BODIES


def test_what_was_not_acknowledged_of_a_batch_is_there_without_a_kernel(path: Path) -> None:
    """A batch whose acknowledged members were overwritten looks like one that was cut."""
    with penstock.create(path, **{**SIZES, "slots": 4, "data_bytes": 4096}) as queue:
        queue.put_many([b"a", b"b" * 3000, b"c"])
        for message in queue.get_many(2):
            message.ack()
        queue.sync_index()
        queue.put_many([b"d" * 3000])
    (path / "kernel").unlink()
    repair_queue(path)
    assert set(contents(path)) >= {b"c", b"d" * 3000}


def test_numbers_are_not_given_again_without_a_kernel(made: Path) -> None:
    with penstock.open(made) as queue:
        highest = max(message.number for message in queue.browse())
    (made / "kernel").unlink()
    repair_queue(made)
    with penstock.open(made) as queue:
        assert int(queue.put(b"new").split("-")[2], 16) > highest


@pytest.mark.parametrize("names", [["kernel"], ["lock"], ["clients"], ["lock", "clients"], ["kernel", "clients"]])
def test_nothing_is_made_while_somebody_has_the_old_one_open(made: Path, names: list[str]) -> None:
    with penstock.open(made) as queue:
        for name in names:
            os.rename(made / name, made / f"{name}.gone")
        for work in (repair_queue, restore_queue):
            with pytest.raises(penstock.Misuse, match="open; a repair needs it alone"):
                work(made)
        for name in names:
            assert not (made / name).exists()
            os.rename(made / f"{name}.gone", made / name)
        queue.put(b"goes on")
    assert contents(made) == [*BODIES, b"goes on"]


def test_a_repair_that_is_killed_while_it_makes_files_is_finished_by_the_next(made: Path, tmp_path: Path) -> None:
    for name in ("kernel", "lock"):
        (made / name).unlink()
    for step in range(1, STEPS):
        trial = tmp_path / f"trial{step}"
        shutil.copytree(made, trial)
        assert killed_at(step, repair_queue, lambda: trial), "there are more effects than these"  # noqa: B023
        if (trial / "kernel").exists():  # then it is there whole, and says what it needs
            assert contents_after_open(trial) == BODIES, step
        else:
            repair_queue(trial)
        assert contents(trial) == BODIES, step
        shutil.rmtree(trial)
    repair_queue(made)


def contents_after_open(path: Path) -> list[bytes]:
    with penstock.open(path) as queue:
        return [message.data for message in queue.browse()]


# ---------------------------------------------------------------- queue.json

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda text: b"",
    "cut off": lambda text: text[:-20],
    "not JSON": lambda text: b"\xff" + text,
    "another list": lambda text: b"[]",
    "an option changed": lambda text: text.replace(b'"slots": 40', b'"slots": 41'),
    "the secret changed": lambda text: text.replace(b'"secret": "', b'"secret": "f').replace(b'",', b'",', 1),
}


@pytest.mark.parametrize("damage", [*DAMAGE, "missing"])
def test_a_damaged_queue_json_is_made_anew(made: Path, damage: str) -> None:
    file = made / "queue.json"
    before = read_options(made)
    bad = b""
    if damage == "missing":
        file.unlink()
    else:
        bad = DAMAGE[damage](file.read_bytes())
        file.write_bytes(bad)
    with pytest.raises(penstock.PenstockError, match=r"queue\.json"):
        penstock.open(made)
    (finding,) = rehearsed(made)
    assert finding.path == str(file)
    for option in ("spill_bytes", "lease_s", "durability", "notify", "index_sync_ms"):
        assert f"{option} is now" in finding.what
    after = read_options(made)
    for option in ("uuid", "secret", "slots", "data_bytes", "kernel_bytes", "data_files"):
        assert getattr(after, option) == getattr(before, option)
    assert (after.spill_bytes, after.durability, after.index_sync_ms) == (256 << 10, "commit", 10_000)
    assert contents(made) == BODIES
    kept = made / "queue.json.damaged"
    assert kept.exists() == (damage != "missing")
    assert damage == "missing" or kept.read_bytes() == bad


def test_a_queue_without_records_gets_a_new_secret(path: Path) -> None:
    penstock.create(path, **SIZES).close()
    (path / "queue.json").unlink()
    (finding,) = rehearsed_but_secret(path)
    assert "no records" in finding.what
    with penstock.open(path) as queue:
        queue.put(b"works")
    assert contents(path) == [b"works"]


def rehearsed_but_secret(path: Path) -> list[Finding]:
    assert repair_queue(path, dry_run=True)
    assert not (path / "queue.json").exists()
    return repair_queue(path)


def test_the_secret_is_that_of_messages_not_of_what_their_bodies_were_copied_from(made: Path, tmp_path: Path) -> None:
    """A message whose body was another queue's data file, overwritten since: many records of another signature."""
    with penstock.create(tmp_path / "other", **SIZES) as other:
        for i in range(40):
            other.put(b"foreign %d" % i)
    foreign = (tmp_path / "other" / "data.0").read_bytes()
    with penstock.open(made) as queue:
        for message in queue.get_many(len(BODIES) - 3):
            message.ack()
    data = bytearray((made / "data.0").read_bytes())
    left = {i: data[i * L.UNIT_BYTES : (i + 1) * L.UNIT_BYTES] for i in range(len(BODIES) - 3, len(BODIES))}
    data[: 40 * L.UNIT_BYTES] = foreign[: 40 * L.UNIT_BYTES]
    for i, unit in left.items():
        data[i * L.UNIT_BYTES : (i + 1) * L.UNIT_BYTES] = unit
    (made / "data.0").write_bytes(data)
    secret = read_options(made).secret
    (made / "queue.json").unlink()
    rehearsed(made)
    assert read_options(made).secret == secret
    assert contents(made) == BODIES[-3:]


@pytest.mark.parametrize("word", [L.H_MAGIC, L.H_FORMAT, L.H_SLOTS, L.H_FILES, L.H_DATA_UNITS, L.H_UUID, L.H_SLOTS_AT])
def test_a_queue_json_is_not_guessed(made: Path, word: int) -> None:
    text = (made / "queue.json").read_bytes()
    kernel = (made / "kernel").read_bytes()
    (made / "queue.json").write_bytes(b"{")
    with open(made / "kernel", "r+b") as file:
        file.seek(word * L.WORD_BYTES)
        file.write(bytes(8))
    for dry_run in (True, False):
        with pytest.raises(penstock.Corrupt, match="take it from a backup"):
            repair_queue(made, dry_run=dry_run)
    assert (made / "queue.json").read_bytes() == b"{"
    (made / "kernel").unlink()
    with pytest.raises(penstock.Corrupt, match="no kernel beside it"):
        repair_queue(made)
    (made / "kernel").write_bytes(kernel)
    (made / "queue.json").write_bytes(text)
    repair_queue(made)


def test_a_queue_json_is_not_made_anew_in_a_directory_that_is_no_queue(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(penstock.NotAQueue):
        repair_queue(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


def test_a_queue_json_is_not_made_anew_under_a_living_client(made: Path) -> None:
    text = (made / "queue.json").read_bytes()
    with penstock.open(made):
        (made / "queue.json").write_bytes(b"{")
        with pytest.raises(penstock.Misuse, match="open; a repair needs it alone"):
            repair_queue(made)
        assert repair_queue(made, dry_run=True)
        assert (made / "queue.json").read_bytes() == b"{"
        (made / "queue.json").write_bytes(text)


# ---------------------------------------------------------------- cut off


@pytest.mark.parametrize(("name", "left"), [("kernel", 0), ("kernel", 100), ("kernel", 5000), ("kernel", -1)])
@pytest.mark.parametrize("work", [repair_queue, restore_queue])
def test_a_kernel_that_was_cut_off(made: Path, name: str, left: int, work: Callable[..., list[Finding]]) -> None:
    size = (made / name).stat().st_size
    left = left if left >= 0 else size + left
    os.truncate(made / name, left)
    findings = rehearsed(made, work)
    assert findings[0] == Finding(str(made / name), left, f"expected a file of {size} bytes, found {left} bytes")
    assert contents(made) == BODIES


@pytest.mark.parametrize("work", [repair_queue, restore_queue])
def test_a_data_file_that_was_cut_off(made: Path, work: Callable[..., list[Finding]]) -> None:
    os.truncate(made / "data.0", 5 * L.UNIT_BYTES)
    findings = rehearsed(made, work)
    assert len(findings) == 1 + len(BODIES) - 5
    assert all(finding.path == str(made / "data.0") for finding in findings)
    assert contents(made) == BODIES[:5]


def test_a_copy_that_was_cut_off_is_still_known_as_a_copy(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "copy")
    os.truncate(tmp_path / "copy" / "kernel", 200_000)
    findings = rehearsed(tmp_path / "copy")
    assert any("it gets a UUID of its own" in finding.what for finding in findings)
    assert read_options(tmp_path / "copy").uuid != read_options(made).uuid


def test_a_kernel_that_was_cut_off_is_lost_whenever_the_repair_is_killed(made: Path, tmp_path: Path) -> None:
    """In between it has its size and zeros, which must not be taken for slots that were never used."""
    os.truncate(made / "kernel", 8192)
    repair._make_kernel(made / "kernel", read_options(made), 8192)
    repair_queue(made)
    assert contents(made) == BODIES


def test_a_dry_run_on_a_queue_in_use_says_what_a_check_says(made: Path) -> None:
    with penstock.open(made):
        with open(made / "kernel", "r+b") as file:
            file.seek(L.H_WAITING * L.WORD_BYTES)
            file.write((7).to_bytes(8, "little"))
        assert repair_queue(made, dry_run=True) == check_queue(made) != []
        with pytest.raises(penstock.Misuse, match="1 clients"):
            repair_queue(made)
        with open(made / "kernel", "r+b") as file:
            file.seek(L.H_WAITING * L.WORD_BYTES)
            file.write(len(BODIES).to_bytes(8, "little"))
