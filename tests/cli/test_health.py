"""penstock check, repair, doctor and bench."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

import pytest

import penstock
from penstock.cli import doctor, exits

from .conftest import END_S, Run, Start, one_error, rows


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A queue whose second of three messages lost a byte of its body."""
    path = tmp_path / "damaged"
    with penstock.create(path, slots=10, data_bytes=1 << 16) as q:
        q.put_many([b"first", b"second-body", b"third"])
    data = (path / "data.0").read_bytes()
    at = data.index(b"second-body")
    with open(path / "data.0", "r+b") as file:
        file.seek(at)
        file.write(b"X")
    return path


def test_check_of_a_sound_queue_says_fine(run: Run, small: Path) -> None:
    run("put", small, "a")
    assert "fine" in run("check", small).stdout
    assert "fine" in run("check", small, "--quick").stdout


def test_check_prints_each_finding_with_file_and_offset(run: Run, damaged: Path) -> None:
    (found,) = rows(run("check", damaged, "--json", code=exits.NOTHING))
    assert found["ok"] is False
    assert found["findings"]
    text = run("check", damaged, code=exits.NOTHING).stdout
    for finding in found["findings"]:
        assert f"{finding['path']}:{finding['offset']}: {finding['what']}" in text


def test_repair_dry_run_changes_nothing_and_repair_keeps_the_rest(run: Run, damaged: Path) -> None:
    before = {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file()}
    assert "to put right" in run("repair", damaged, "--dry-run", code=exits.NOTHING).stdout
    assert (damaged / "data.0").read_bytes() == before[damaged / "data.0"]
    (found,) = rows(run("repair", damaged, "--json"))
    assert found["ok"] is True
    assert found["findings"]
    assert "fine" in run("check", damaged).stdout
    assert run("get", damaged, "-n", "9").stdout == "first\nthird\n"


def test_repair_after_power_loss_restores_a_queue_that_looks_fine(run: Run, small: Path) -> None:
    run("put", small, "a")
    assert "restored" in run("repair", small, "--after-power-loss").stdout
    assert "fine" in run("repair", small, "--after-power-loss", "--dry-run").stdout
    (found,) = rows(run("repair", small, "--after-power-loss", "--json"))
    assert found == {"path": str(small), "ok": True, "findings": []}
    assert "fine" in run("check", small).stdout
    assert run("get", small).stdout == "a\n"


def test_repair_makes_what_is_missing_or_damaged_and_says_what_was_lost(run: Run, small: Path) -> None:
    run("put", small, "a")
    (small / "queue.json").write_text("{")
    (small / "lock").unlink()
    one_error(run("get", small, code=exits.DAMAGED))
    dry = run("repair", small, "--dry-run", code=exits.NOTHING).stdout
    assert "lease_s is now 60.0" in dry and "queue.json.damaged" in dry and f"{small / 'lock'}:0: it is missing" in dry
    assert not (small / "lock").exists()
    done = run("repair", small).stdout
    assert done.splitlines()[:-1] == dry.splitlines()[:-1]
    assert run("get", small).stdout == "a\n"
    (small / "kernel").unlink()
    assert f"penstock repair {small}" in one_error(run("put", small, "b", code=exits.NO_QUEUE))
    assert "may be back" in run("repair", small, "--after-power-loss").stdout
    assert run("get", small).stdout == "a\n"


def test_check_says_that_a_restore_is_due_and_why(run: Run, small: Path, tmp_path: Path) -> None:
    run("put", small, "a")
    copy = tmp_path / "copy"
    shutil.copytree(small, copy)
    text = run("check", copy, code=exits.NOTHING).stdout
    assert f"{copy / 'kernel'}:" in text and "to be restored" in text and "copied" in text
    run("repair", copy, "--dry-run", code=exits.NOTHING)
    assert run("get", copy).stdout == "a\n"
    assert "fine" in run("check", copy).stdout


def test_doctor_finds_what_a_queue_needs_on_this_machine(run: Run, small: Path, tmp_path: Path) -> None:
    with penstock.open(small) as q, q.receiver("nightly") as nightly:
        q.put_many([b"a", b"b", b"c"])
        nightly.claim(2)
    (found,) = rows(run("doctor", small, "--json"))
    by_name = {check["name"]: check for check in found["checks"]}
    for name in ("python", "core", "system", "futex", "inotify", "file system", "locks", "free space", "queue"):
        assert by_name[name]["status"] in ("ok", "warn"), by_name[name]
    assert by_name["locks"]["status"] == by_name["futex"]["status"] == "ok"
    assert by_name["queue"]["value"] == "1 waiting, 0 pending, 2 claimed, 0 other clients"
    assert "locks" in run("doctor", tmp_path).stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders"]


def test_doctor_fails_for_a_queue_that_cannot_be_opened(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "q"
    path.mkdir()
    (path / "queue.json").write_text('{"penstock": 999}')
    assert "999" in run("doctor", path, code=exits.NOTHING).stdout
    one_error(run("doctor", tmp_path / "missing", code=exits.NO_QUEUE))


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:30 / /mnt/nas rw shared:2 - {kind} host:/export rw
31 22 0:31 / /mnt/with\\040space rw - xfs /dev/sdb1 rw
32 30 0:32 / /mnt/nas/inner rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse"])
def test_a_network_file_system_is_warned_about(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    mounts = MOUNTS.format(kind=kind)
    assert doctor.kind_of(Path("/mnt/nas/queues/a"), mounts) == kind
    assert doctor.kind_of(Path("/mnt/nasty"), mounts) == "ext4"
    assert doctor.kind_of(Path("/mnt/with space/q"), mounts) == "xfs"
    assert doctor.kind_of(Path("/mnt/nas/inner/q"), mounts) == "tmpfs"
    verdict = doctor.verdict("file system", kind)
    assert (verdict.status, verdict.value) == ("warn", kind)
    assert "local" in verdict.hint
    assert doctor.verdict("file system", "ext4").status == "ok"


def test_bench_measures_and_leaves_nothing_behind(run: Run, tmp_path: Path, small: Path) -> None:
    text = run("bench", tmp_path, "--seconds", "0.1").stdout
    for word in ("relaxed", "commit", "put", "get", "ack", "1000 at once"):
        assert word in text
    (found,) = rows(run("bench", small, "--seconds", "0.1", "--json"))
    assert len(found["results"]) == 12
    assert all(figure["per_second"] > 0 and figure["messages"] > 0 for figure in found["results"])
    assert [path.name for path in tmp_path.iterdir()] == ["orders"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_bench_that_is_interrupted_leaves_nothing_behind(start: Start, tmp_path: Path, number: int, code: int) -> None:
    process = start("bench", tmp_path, "--seconds", "600")
    end = time.monotonic() + END_S
    while not any(tmp_path.rglob("queue.json")) and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.1)
    process.send_signal(number)
    assert process.communicate(timeout=END_S) == (b"", b"")
    assert process.returncode == code
    assert list(tmp_path.iterdir()) == []
