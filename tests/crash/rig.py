"""The kill rig: run an operation in a child process that dies by SIGKILL at its k-th effect, for every k."""

import gc
import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path

import penstock
from penstock.store import layout as L
from penstock.store import rig
from penstock.timequeue import check_queue
from tests.snapshot import Snapshot
from tests.thoroughness import some_of

CHECKED_AGAIN = 4  # after so many kills, what the next client leaves is checked as well as what it finds

FINISHED = 0
FAILED = 3


def in_child(work: Callable[[], None]) -> int:
    """Run ``work`` in a forked process; how that process ended, as from ``os.waitpid``."""
    pid = os.fork()
    if pid == 0:
        gc.disable()  # to look through all that it inherited would be most of its work
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


def contents(path: Path, *, check_again: bool = True) -> list[bytes]:
    """Everything in the queue in the order of delivery, taken by a new client as a receiver would; then given back.

    Also checks that nothing is wedged or inconsistent: no findings, no pending or half-filled slot of a dead client;
    and with ``check_again`` that the new client has left it so.
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
        assert stats.restores == 0, "whatever the kill has left, a restore has mended it"
        assert stats.waiting + stats.pending == len(bodies)
        assert sum(client["holds"] for client in stats.clients) == stats.pending
        assert len(set(queue._mine().files.body_names())) == sum(
            1
            for message in queue.browse(state="all")
            if queue._mine().kernel.field(message.slot, L.S_INFO) >> L.FLAGS_SHIFT & L.FLAG_SPILLED
        )
    if check_again:
        findings = check_queue(path)
        assert not findings, findings
    return bodies


def every_step(saved: Snapshot, prepare: Callable, operate: Callable, judge: Callable, *, stride: int = 1) -> int:
    """Kill at every step, or each so-many-th, until the operation survives; ``judge(bodies, finished)`` after each. How
    many steps."""
    for turn, step in enumerate(some_of(stride)):
        saved.put_back()
        died = killed_at(step, operate, lambda: prepare(saved.path))
        judge(contents(saved.path, check_again=not died or turn % CHECKED_AGAIN == 0), not died)
        if not died:
            return step
    raise AssertionError("the operation has no end")
