"""``penstock claims``: receivers, what they have claimed, and giving it back."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

import penstock
from penstock.cli.exits import BUSY, NOTHING, OK, USAGE, Failure
from penstock.cli.opening import open_queue
from penstock.cli.options import Json, QueuePath, examples
from penstock.cli.output import say, say_json, show_all, table, when
from penstock.timequeue.receivers import ClaimInfo, ReceiverInfo

EXAMPLES = examples(
    "penstock claims ls orders",
    "penstock claims ls orders --json",
    "penstock claims release orders nightly",
    "penstock claims release orders nightly 17",
    "penstock claims receivers orders",
    "penstock claims forget orders nightly",
)


class Action(StrEnum):
    """What to do."""

    ls = "ls"
    release = "release"
    receivers = "receivers"
    forget = "forget"


def claims(
    action: Annotated[
        Action,
        typer.Argument(
            help="ls: list claims. release: give messages back. receivers: list who has claimed. forget: free the name "
            "of a receiver that will not come back.",
            show_default=False,
        ),
    ],
    queue: QueuePath,
    receiver: Annotated[str | None, typer.Argument(metavar="RECEIVER", help="Only this one's.")] = None,
    claim: Annotated[int | None, typer.Argument(metavar="CLAIM", min=1, help="Only the one with this number.")] = None,
    json: Json = False,
) -> int:
    """List the open claims of receivers, or release a receiver's: their messages wait again. Not while it runs."""
    with open_queue(queue) as q:
        if action is Action.ls:
            return _list(q, receiver, claim, json)
        if action is Action.receivers:
            return _receivers(q, receiver, json)
        if receiver is None:
            what = (
                "which receiver is to be forgotten?"
                if action is Action.forget
                else "which receiver's claims are to be released?"
            )
            raise Failure(what, USAGE)
        try:
            return _forget(q, receiver, json) if action is Action.forget else _release(q, receiver, claim, json)
        except penstock.ReceiverBusy:
            raise Failure(f"{q.name}: receiver {receiver!r} is running: end it first", BUSY) from None


def _receivers(queue: penstock.TimeQueue, receiver: str | None, json: bool) -> int:
    rows = table(
        "receiver", "claims", "messages", "last seen", "timeout", "",
        numbers=("claims", "messages"), whole=("receiver", "last seen"),
    )  # fmt: skip
    found = [one for one in queue.receivers() if receiver in (None, one.name)]
    show_all(rows, found, json, _receiver_cells, nothing="no receivers")
    return OK


def _receiver_cells(one: ReceiverInfo) -> list[str]:
    return [
        one.name,
        str(one.claims),
        str(one.messages),
        when(one.seen_at),
        f"{one.timeout_s:g} s" if one.timeout_s else "never",
        _running(one.in_use),
    ]


def _list(queue: penstock.TimeQueue, receiver: str | None, number: int | None, json: bool) -> int:
    rows = table(
        "receiver", "claim", "messages", "last seen", "",
        numbers=("claim", "messages"), whole=("receiver", "last seen"),
    )  # fmt: skip
    found = [claim for claim in queue.claims() if receiver in (None, claim.receiver) and number in (None, claim.claim)]
    show_all(rows, found, json, _claim_cells, nothing="no open claims")
    return OK


def _claim_cells(claim: ClaimInfo) -> list[str]:
    return [claim.receiver, str(claim.claim), str(claim.messages), when(claim.seen_at), _running(claim.in_use)]


def _running(in_use: bool) -> str:
    return "running" if in_use else ""


def _forget(queue: penstock.TimeQueue, receiver: str, json: bool) -> int:
    try:
        queue.forget_receiver(receiver)
    except penstock.NoSuchReceiver as error:
        raise Failure(str(error), NOTHING) from None
    if json:
        say_json({"receiver": receiver, "forgotten": True})
    else:
        say(f"receiver {receiver} is forgotten")
    return OK


def _release(queue: penstock.TimeQueue, receiver: str, number: int | None, json: bool) -> int:
    if all(claim.receiver != receiver for claim in queue.claims()):
        raise Failure(f"{queue.name}: receiver {receiver!r} has no open claims", NOTHING)
    released = []
    with queue.receiver(receiver) as taken:
        for claim in taken.claims() if number is None else [number]:
            released.append({"receiver": receiver, "claim": claim, "messages": taken.release(claim)})
    for one in released:
        if json:
            say_json(one)
        else:
            say(f"claim {one['claim']} released: {one['messages']} messages wait again")
    return OK
