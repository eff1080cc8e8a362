"""The kill rig: run an operation in a child process that dies by SIGKILL at its k-th effect, for every k."""

import os
import shutil
import signal
import traceback
from collections.abc import Callable
from pathlib import Path

import penstock
from penstock.store import layout as L
from penstock.store import rig
from penstock.store.directory import read_options
from penstock.store.files import LocalFiles
from penstock.timequeue import check_queue

STEPS_MAX = 20_000  # an operation that never ends would otherwise keep the rig busy for ever

FINISHED = 0
FAILED = 3


def in_child(work: Callable[[], None]) -> int:
    """Run ``work`` in a forked process; how that process ended, as from ``os.waitpid``."""
    pid = os.fork()
    if pid == 0:
        status = FAILED
        try:
            work()
            status = FINISHED
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


def killed_at(step: int, work: Callable[[], None], prepare: Callable[[], object]) -> bool:
    """Whether a child that runs ``work(prepare())`` died at its ``step``-th effect (else it finished)."""

    def run() -> None:
        prepared = prepare()
        rig.kill_at(step)
        work(prepared)  # type: ignore[call-arg]
        rig.kill_at(0)

    status = in_child(run)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == FINISHED, "the operation failed in the child; see its traceback above"
    return False


def clone(source: Path, target: Path) -> None:
    """A copy of a queue that takes itself for the original, so that opening it does not restore it."""
    shutil.copytree(source, target)
    files = LocalFiles(target, read_options(target), busy_s=1)
    with memoryview(files.kernel) as data, data.cast("Q") as words:
        for i, word in enumerate(files.identity()):
            words[L.H_BOOT_ID + i] = word
    files.close()


def contents(path: Path) -> list[bytes]:
    """Everything in the queue in the order of delivery, taken by a new client as a receiver would; then given back.

    Also checks that nothing is wedged or inconsistent: no findings, no pending or half-filled slot of a dead client.
    """
    findings = check_queue(path)
    assert not findings, findings
    with penstock.open(path, busy_s=2) as queue:
        bodies = []
        while True:
            more = queue.get_many(1000)
            if not more:
                break
            bodies += [message.data for message in more]
        bodies += [message.data for message in queue.browse(state="waiting")]
        queue.sync_index()  # bodies of what was removed stay until then
        stats = queue.stats()
        assert stats.filling == stats.kept == 0
        assert stats.waiting + stats.pending == len(bodies)
        assert sum(client["holds"] for client in stats.clients) == stats.pending
        assert len(set(queue._mine().files.body_names())) == sum(
            1
            for message in queue.browse(state="all")
            if queue._mine().kernel.field(message.slot, L.S_INFO) >> L.FLAGS_SHIFT & L.FLAG_SPILLED
        )
    findings = check_queue(path)
    assert not findings, findings
    return bodies


def every_step(template: Path, work: Path, prepare: Callable, operate: Callable, judge: Callable) -> int:
    """Kill at step 1, 2, ... until the operation survives; ``judge(bodies, finished)`` after each. How many steps."""
    for step in range(1, STEPS_MAX):
        if work.exists():
            shutil.rmtree(work)
        clone(template, work)
        died = killed_at(step, operate, lambda: prepare(work))
        judge(contents(work), not died)
        if not died:
            return step
    raise AssertionError("the operation has no end")
