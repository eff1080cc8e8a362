"""Autonomous clients on one queue directory: put, get, ack, sleep until due, wake on notification."""

from penstock.timequeue.timequeue import Draft, MessageIds, Stats, TimeQueue, create, open_queue

__all__ = ["Draft", "MessageIds", "Stats", "TimeQueue", "create", "open_queue"]
