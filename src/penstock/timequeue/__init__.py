"""Autonomous clients on one queue directory: put, get, ack, sleep until due, wake on notification."""

from penstock.store.recovery import Finding, check_queue
from penstock.store.restore import repair_queue, restore_queue
from penstock.timequeue.administration import Stats
from penstock.timequeue.opening import create, open_queue
from penstock.timequeue.puts import Draft
from penstock.timequeue.timequeue import MessageIds, TimeQueue

__all__ = [
    "Draft",
    "Finding",
    "MessageIds",
    "Stats",
    "TimeQueue",
    "check_queue",
    "create",
    "open_queue",
    "repair_queue",
    "restore_queue",
]
