"""Owns the exit codes and which error has which; and turns any error that a user can cause into one line."""

from __future__ import annotations

import os

from penstock import (
    BodyTooLarge,
    Corrupt,
    LeaseLost,
    Misuse,
    NoAnswer,
    NotAQueue,
    PenstockError,
    PublisherBusy,
    QueueBusy,
    QueueEmpty,
    QueueExists,
    QueueFull,
    QueueInUse,
    QueueNotFound,
    ReceiverBusy,
    TooManyClients,
    WrongFormat,
)

OK = 0
NOTHING = 1
USAGE = 2
NO_QUEUE = 3
FULL = 4
BUSY = 5
DAMAGED = 6
SYSTEM = 7
HUNG_UP = 129
INTERRUPTED = 130
NO_READER = 141
TERMINATED = 143

MEANING = {
    OK: "done",
    NOTHING: "nothing or not done: no message due, none cancelled, no answer, findings",
    USAGE: "an argument or option that cannot work",
    NO_QUEUE: "no such queue, not a queue, there is one already, or another format",
    FULL: "the queue is full",
    BUSY: "the queue's lock, its client table or a receiver stayed taken, or others have it open; try again",
    DAMAGED: "bytes on disk are damaged; see penstock check",
    SYSTEM: "the operating system refused: permission, space, a broken disk",
    INTERRUPTED: "ended by Ctrl-C (143: by SIGTERM, 129: by SIGHUP, as when its terminal is closed)",
    NO_READER: "whoever read the output went away; what it did not get was given back",
}

_CODES: tuple[tuple[tuple[type[BaseException], ...], int], ...] = (  # the first that fits: some errors are two things
    ((QueueEmpty, LeaseLost, NoAnswer), NOTHING),
    ((QueueFull,), FULL),
    ((QueueBusy, QueueInUse, ReceiverBusy, PublisherBusy, TooManyClients), BUSY),
    ((Corrupt,), DAMAGED),
    ((QueueNotFound, QueueExists, NotAQueue, WrongFormat), NO_QUEUE),
    ((Misuse,), USAGE),
    ((OSError, MemoryError), SYSTEM),
    ((PenstockError,), NOTHING),
)


class Failure(Exception):
    """An error that a command has put into its own words."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Terminated(BaseException):
    """SIGTERM: like Ctrl-C, so that what must be cleaned up is."""

    code = TERMINATED


class HungUp(Terminated):
    """SIGHUP: the same."""

    code = HUNG_UP


def code_of(error: BaseException) -> int:
    """
    >>> code_of(QueueFull("orders", which="slots", size=7))
    4
    """
    if isinstance(error, Failure):
        return error.code
    for kinds, code in _CODES:
        if isinstance(error, kinds):
            return code
    raise error


def line_of(error: BaseException) -> str:
    """The error in one line. Where its own words name what only a program can give, it names the option.

    >>> line_of(FileNotFoundError(2, "No such file or directory", "a.txt"))
    'a.txt: No such file or directory'
    >>> line_of(QueueFull("orders", which="slots", size=7)).rpartition(", ")[2]
    'or make it larger with `penstock resize` (--slots)'
    """
    text = str(error)
    if isinstance(error, QueueFull):
        remedy = (
            "receive or cancel messages, wait with `penstock put --timeout`, or make it larger with `penstock resize`"
        )
        option = "--data-bytes" if error.which == "data" else "--slots"
        text = f"{error.queue}: full ({error.which}): {error.what}; {remedy} ({option})"
    elif isinstance(error, BodyTooLarge):
        room = f"there is room for {error.limit_bytes}; `penstock resize` makes more (--data-bytes)"
        text = f"{error.queue}: a body of {error.body_bytes} bytes does not fit: {room}"
    elif isinstance(error, OSError) and not isinstance(error, PenstockError) and error.strerror:
        named = isinstance(error.filename, str | bytes | os.PathLike)
        where = f"{os.fsdecode(error.filename)}: " if named else ""
        text = where + error.strerror
    elif isinstance(error, MemoryError):
        text = "not enough memory"
    return " ".join(text.split())
