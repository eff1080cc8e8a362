"""Owns the states of a queue as a manager sees it, and which call leads from which to which. Pure."""

from __future__ import annotations

from enum import StrEnum

from penstock.errors import NameTaken, NoSuchQueue, WrongState


class State(StrEnum):
    """``configuring`` and ``configured`` are the queue's, for all; the others are of one manager and its process."""

    UNKNOWN = "unknown"
    CONFIGURING = "configuring"
    CONFIGURED = "configured"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


# What becomes of a call of a program, and of how one ended: configured, opened, closed, failed.
ENDS = frozenset({"configured", "opened", "closed", "failed"})

TRANSITIONS: dict[State, dict[str, State]] = {
    State.UNKNOWN: {"create": State.CONFIGURING},
    State.CONFIGURING: {
        "configured": State.CONFIGURED,
        "failed": State.CONFIGURED,  # as it was
        "open": State.OPENING,  # while others have it open, it cannot be completed, and is no reason to wait
        "activate": State.CONFIGURING,
        "deactivate": State.CONFIGURING,
    },
    State.CONFIGURED: {
        "add_member": State.CONFIGURED,
        "remove_member": State.CONFIGURED,
        "configure": State.CONFIGURING,
        "open": State.OPENING,
        "rename": State.CONFIGURED,
        "destroy": State.UNKNOWN,
        "activate": State.CONFIGURED,
        "deactivate": State.CONFIGURED,
    },
    State.OPENING: {"open": State.OPENING, "opened": State.OPEN, "failed": State.FAILED},
    State.OPEN: {
        "open": State.OPEN,
        "opened": State.OPEN,
        "failed": State.OPEN,  # one more was to be opened; the others still are
        "close": State.CLOSING,
        "add_member": State.OPEN,
        "remove_member": State.OPEN,
        "activate": State.OPEN,
        "deactivate": State.OPEN,
    },
    State.CLOSING: {"closed": State.CLOSED, "failed": State.FAILED},
    State.CLOSED: {
        "add_member": State.CLOSED,
        "remove_member": State.CLOSED,
        "configure": State.CONFIGURING,
        "open": State.OPENING,
        "rename": State.CONFIGURED,
        "destroy": State.UNKNOWN,
        "activate": State.CLOSED,
        "deactivate": State.CLOSED,
        "close": State.CLOSED,  # closing twice is fine
    },
    State.FAILED: {"open": State.OPENING, "destroy": State.UNKNOWN, "close": State.CLOSED},
}


def after(queue: str, state: State, call: str) -> State:
    """The state that a call leads to; ``WrongState`` where it is not possible.

    >>> str(after("orders", State.CONFIGURED, "open"))
    'opening'
    """
    found = TRANSITIONS[state].get(call)
    if found is None:
        error = NoSuchQueue if state is State.UNKNOWN else NameTaken if call == "create" else WrongState
        raise error(queue, state=state, call=call, allowed=sorted(TRANSITIONS[state].keys() - ENDS))
    return found
