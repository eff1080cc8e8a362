"""What other processes do with a queue of ``penstock.stdlib``; importable, for those that are spawned."""

from __future__ import annotations

from typing import Any

from penstock import stdlib


def double(tasks: stdlib.JoinableQueue[Any], results: stdlib.JoinableQueue[Any]) -> None:
    """Until the tasks are shut down."""
    while True:
        try:
            task = tasks.get()
        except stdlib.ShutDown:
            return
        results.put((task, task * 2))
        tasks.task_done()
