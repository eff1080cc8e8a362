"""Owns the process that functions of pipelines are called in, one beside each of Spark's Python workers:
``python -m penstock.spark.pipelines.child IN OUT``, with the numbers of two pipes. It gets a function, then lists of
what to call it with, and answers each call in turn, with its number. A call that ends the process, or takes too long,
ends nothing else. Never looks at Spark.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from penstock.scripts.calling import error_text
from penstock.scripts.naming import imported
from penstock.spark.pipelines import messages  # noqa: F401 (what it is called with)
from penstock.spark.pipelines.definition import check_function
from penstock.timequeue.retries import text_of

READY = "ready"  # to be called; and that what to call it with has come
DONE = "done"  # with what it returned, pickled: whether that can be had elsewhere is seen there
AGAIN = "again"  # with an error: it is called once more
FAILED = "failed"  # with an error
UNUSABLE = "unusable"  # the function cannot be had

PR_SET_PDEATHSIG = 1


def called(function: Callable[..., Any], given: Any, again: Callable[[str], None], tries: int, wait_s: float) -> Any:
    """What answers one call: kind, and result or error."""
    while True:
        tries -= 1
        try:
            return DONE, _plain(function(*given))
        except (Exception, SystemExit) as error:
            text = text_of(error_text(error))
            if tries < 1:
                return FAILED, text
        again(text)
        time.sleep(wait_s)


def _plain(result: Any) -> Any:
    """A generator of results would be worked on elsewhere: here it can be waited for."""
    return list(result) if hasattr(result, "__next__") else result


def _pickled(result: Any) -> tuple[str, Any]:
    try:
        return DONE, pickle.dumps(result)
    except Exception as error:  # it cannot be sent
        return FAILED, text_of(error_text(error))


class Answers:
    """The way back, for one process: one that the function forked may come out of the call, too."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._process = os.getpid()

    def send(self, number: int, kind: str, value: Any = None) -> None:
        if os.getpid() != self._process:
            os._exit(1)
        self._pipe.send((number, kind, value))


def serve(commands: Connection, answers: Answers) -> None:
    try:
        function, path = commands.recv()
        sys.path[:] = path
        function = check_function(imported(function) if isinstance(function, str) else pickle.loads(function))
    except Exception as error:
        answers.send(0, UNUSABLE, text_of(error_text(error)))
        return
    answers.send(0, READY)
    while True:
        try:
            first, several, first_tries, tries, wait_s = commands.recv()
        except EOFError:
            return
        answers.send(first, READY)
        for number, given in enumerate(several, first):
            again = functools.partial(answers.send, number, AGAIN)
            kind, result = called(function, given, again, first_tries if number == first else tries, wait_s)
            if kind == DONE:
                kind, result = _pickled(result)
            answers.send(number, kind, result)


def main(number_in: str, number_out: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody is left to answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Connection(int(number_in), writable=False) as commands, Connection(int(number_out), readable=False) as answers:
        _keep(commands, answers)
        serve(commands, Answers(answers))


def _keep(*pipes: Connection) -> None:
    """From processes that the function starts: the pipes of one that died in the middle of a word must end with it."""
    for pipe in pipes:
        os.set_inheritable(pipe.fileno(), False)
        os.register_at_fork(after_in_child=pipe.close)


if __name__ == "__main__":
    main(*sys.argv[1:])
