"""What opening finds that it cannot use: each has an error that says whose fault it is, and nothing is changed."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Corrupt, Misuse, NotAllowed, NotAQueue, QueueExists, QueueNotFound, WrongFormat
from penstock.store import layout as L
from tests.conftest import SMALL, Queues
from tests.fault.processes import Child

NOBODY = 65534


@pytest.fixture
def made(path: Path) -> Path:
    """A queue with two messages, closed."""
    with penstock.create(path, **SMALL) as q:
        q.put_many([b"x" * 300, b"y"])
    return path


def _change(path: Path, **options: Any) -> None:
    text = json.loads((path / "queue.json").read_text())
    (path / "queue.json").write_text(json.dumps({**text, **options}))


def test_there_is_nothing(path: Path) -> None:
    with pytest.raises(QueueNotFound, match="penstock create") as caught:
        penstock.open(path)
    assert isinstance(caught.value, FileNotFoundError)
    assert not path.exists()


def test_a_directory_that_is_not_a_queue(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NotAQueue):
        penstock.open(tmp_path)
    with pytest.raises(QueueExists):
        penstock.create(tmp_path, **SMALL)
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_where_a_directory_should_be(path: Path) -> None:
    path.write_text("mine")
    with pytest.raises(NotAQueue):
        penstock.open(path)
    with pytest.raises(QueueExists):
        penstock.create(path, **SMALL)
    assert path.read_text() == "mine"


def test_an_empty_directory_becomes_a_queue(path: Path) -> None:
    path.mkdir()
    with pytest.raises(NotAQueue):
        penstock.open(path)
    penstock.create(path, **SMALL).close()


def test_creating_twice_leaves_the_first(made: Path) -> None:
    with pytest.raises(QueueExists) as caught:
        penstock.create(made, **SMALL)
    assert isinstance(caught.value, FileExistsError)
    with penstock.open(made) as q:
        assert q.qsize() == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"slots": 0},
        {"slots": True},
        {"slots": 1 << 40},
        {"data_bytes": 100},
        {"spill_bytes": -1},
        {"lease": 0},
        {"lease": "60"},
        {"durability": "never"},
        {"busy_s": -1},
    ],
    ids=str,
)
def test_options_that_make_no_sense_leave_nothing_behind(path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        penstock.create(path, **{**SMALL, **wrong})
    assert "busy_s" in wrong or not path.exists()


@pytest.mark.damages
@pytest.mark.parametrize("version", [0, 2, 99, "1"])
def test_another_format_version(made: Path, version: Any) -> None:
    _change(made, penstock=version)
    with pytest.raises(WrongFormat, match="format"):
        penstock.open(made)


@pytest.mark.damages
@pytest.mark.parametrize(
    "text, error",
    [("", Corrupt), ("{", Corrupt), ("\0" * 40, Corrupt), ("[]", NotAQueue), ('{"name": "other"}', NotAQueue)],
)
def test_a_queue_json_that_is_not_ours(made: Path, text: str, error: type[Exception]) -> None:
    (made / "queue.json").write_text(text)
    with pytest.raises(error):
        penstock.open(made)


@pytest.mark.damages
def test_a_queue_json_that_lacks_an_option(made: Path) -> None:
    (made / "queue.json").write_text(json.dumps({"penstock": 1}))
    with pytest.raises(Corrupt, match="secret"):
        penstock.open(made)


@pytest.mark.damages
@pytest.mark.parametrize("name", ["kernel", "data.0"])
@pytest.mark.parametrize("change_bytes", [-4096, -1, 4096])
def test_a_file_of_the_wrong_size(made: Path, name: str, change_bytes: int) -> None:
    size = (made / name).stat().st_size
    os.truncate(made / name, size + change_bytes)
    with pytest.raises(Corrupt, match="bytes") as caught:
        penstock.open(made)
    assert caught.value.path == str(made / name)
    assert f"{size}" in caught.value.expected and f"{size + change_bytes}" in caught.value.found


@pytest.mark.damages
@pytest.mark.parametrize("name", ["kernel", "data.0", "lock", "clients"])
def test_a_file_that_is_missing(made: Path, name: str) -> None:
    (made / name).unlink()
    with pytest.raises(NotAQueue, match=rf"{name} is missing; run `penstock repair {made}`"):
        penstock.open(made)
    assert not (made / name).exists()


@pytest.mark.damages
@pytest.mark.parametrize("noise", [b"\0", b"\xff", b"noise"])
def test_a_kernel_that_is_no_kernel(made: Path, noise: bytes) -> None:
    size = (made / "kernel").stat().st_size
    (made / "kernel").write_bytes((noise * (size // len(noise) + 1))[:size])
    with pytest.raises(Corrupt) as caught:
        penstock.open(made)
    assert caught.value.path == str(made / "kernel")


@pytest.mark.damages
@pytest.mark.parametrize("word", [L.H_FORMAT, L.H_SLOTS, L.H_SLOTS_AT, L.H_JOURNAL_ENTRIES, L.H_DATA_UNITS])
def test_a_kernel_whose_header_is_damaged(made: Path, word: int) -> None:
    with open(made / "kernel", "r+b") as file:
        file.seek(word * L.WORD_BYTES)
        file.write((77).to_bytes(8, "little"))
    with pytest.raises(Corrupt):
        penstock.open(made)


@pytest.mark.damages
def test_a_kernel_of_another_queue(made: Path, queue: Queues) -> None:
    other = queue("other")
    shutil.copyfile(other.path / "kernel", made / "kernel")
    with pytest.raises(Corrupt):
        penstock.open(made)


@pytest.mark.damages
@pytest.mark.parametrize("kind", ["zeros", "another queue's"])
def test_data_of_another_queue_is_never_delivered(made: Path, queue: Queues, kind: str) -> None:
    other = queue("other")
    other.put_many([b"x" * 300, b"y"])  # the same numbers, slots and places
    if kind == "zeros":
        (made / "data.0").write_bytes(bytes((made / "data.0").stat().st_size))
    else:
        shutil.copyfile(other.path / "data.0", made / "data.0")
    with penstock.open(made) as q, pytest.raises(Corrupt) as caught:
        q.get(block=False)
    assert caught.value.path == str(made / "data.0")


@pytest.mark.damages
def test_a_body_file_that_is_damaged_or_gone_is_not_delivered(queue: Queues) -> None:
    q = queue(spill_bytes=100)
    q.put_many([b"a" * 500, b"b" * 500])
    first, second = sorted((q.path / "bodies").iterdir())
    first.write_bytes(b"a" * 499)
    second.unlink()
    for name in (first.name, second.name):
        with pytest.raises(Corrupt, match=name):
            q.get(block=False)
    first.write_bytes(b"a" * 501)
    with pytest.raises(Corrupt, match="501 bytes instead of 500"):
        next(iter(q.browse()))


def test_bodies_that_belong_to_no_message_are_swept_up(queue: Queues) -> None:
    q = queue(spill_bytes=100)
    q.put(b"a" * 500)
    kept = next((q.path / "bodies").iterdir())
    (q.path / "bodies" / "000000000009-3").write_bytes(b"left by a dead producer")
    (q.path / "bodies" / "00000000000a-ffff").write_bytes(b"of no slot")
    queue.open(q)
    assert list((q.path / "bodies").iterdir()) == [kept]


# ---------------------------------------------------------------- permissions


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that an unprivileged user can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    _reopen(folder)
    shutil.rmtree(folder)


def _reopen(folder: Path) -> None:
    """Whoever is not root may not empty a folder that may not be written."""
    folder.chmod(0o755)
    for entry in folder.iterdir():
        if entry.is_dir():
            _reopen(entry)


def _unprivileged(say: Any, work: Callable[[], Any]) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        work()
        say("allowed")
    except Exception as error:
        say((type(error), isinstance(error, PermissionError), str(error)))


def _is_refused(start: Callable[..., Child], work: Callable[[], Any]) -> str:
    kind, is_permission_error, text = start(_unprivileged, work).hear()
    assert (kind, is_permission_error) == (NotAllowed, True), text
    return str(text)


@pytest.mark.parametrize("mode", ["files", "queue.json", "directory"])
def test_a_queue_that_may_not_be_written(public: Path, start: Callable[..., Child], mode: str) -> None:
    where = public / "queue"
    with penstock.create(where, **SMALL) as q:
        q.put(b"x")
    if mode == "files":
        for entry in where.iterdir():
            entry.chmod(0o555 if entry.is_dir() else 0o444)
    elif mode == "queue.json":
        (where / "queue.json").chmod(0)
    else:
        where.chmod(0)
    text = _is_refused(start, lambda: penstock.open(where))
    assert str(where) in text
    if os.geteuid() == 0:
        with penstock.open(where) as q:
            assert q.qsize() == 1


def test_a_place_where_no_queue_may_be_made(public: Path, start: Callable[..., Child]) -> None:
    public.chmod(0o555)
    _is_refused(start, lambda: penstock.create(public / "queue", **SMALL))
    _is_refused(start, lambda: penstock.create(public / "folder" / "queue", **SMALL))
    assert list(public.iterdir()) == []
