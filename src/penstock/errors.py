"""Every exception of Penstock: a small tree that says who must act, with fields beside the words."""

import os
import queue as _queue


class PenstockError(Exception):
    """Anything that Penstock raises on purpose."""


class Misuse(PenstockError, ValueError):
    """The caller gave something that cannot work: an argument, an option, a call at the wrong time."""


class BodyTooLarge(Misuse):
    """The body can never fit into this queue."""

    def __init__(self, queue: str, *, body_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{queue}: a body of {body_bytes} bytes does not fit: data_bytes is {limit_bytes}; "
            f"create the queue with a larger data_bytes"
        )
        self.queue = queue
        self.body_bytes = body_bytes
        self.limit_bytes = limit_bytes


class BatchTooLarge(Misuse):
    """More messages at once than the queue has slots."""

    def __init__(self, queue: str, *, messages: int, slots: int) -> None:
        super().__init__(f"{queue}: a batch of {messages} never fits into {slots} slots")
        self.queue = queue
        self.messages = messages
        self.slots = slots


class SourceChanged(PenstockError):
    """A file was changed, cut off or written to while ``put_file`` read it. Nothing was put."""

    def __init__(self, source: str, what: str) -> None:
        super().__init__(f"{source}: {what} while it was read; nothing was put, put it again when nobody writes to it")
        self.source = source
        self.what = what


class QueueClosed(Misuse):
    """The queue object was closed before this call."""


class QueueFull(PenstockError, _queue.Full):
    """No room now. ``which`` says what ran out: "slots", "data" or "dedup_entries"."""

    def __init__(self, queue: str, *, which: str, size: int, wanted: int = 1) -> None:
        what = {
            "slots": f"all {size} slots are in use",
            "dedup_entries": f"too many of {size} dedup ids are remembered",
        }.get(which, f"no room for {wanted} bytes in {size} bytes of data")
        remedy = "receive or cancel messages, wait with put(timeout=...), or create a larger queue"
        if which == "dedup_entries":
            remedy = "wait with put(timeout=...), remember them for less long (dedup_window=), or create a larger queue"
        super().__init__(f"{queue}: full ({which}): {what}; {remedy} ({'data_bytes' if which == 'data' else which}=)")
        self.queue = queue
        self.which = which
        self.size = size
        self.wanted = wanted
        self.what = what


class QueueEmpty(PenstockError, _queue.Empty):
    """No message was due within the given time."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"{queue}: no message is due")
        self.queue = queue


class QueueBusy(PenstockError, TimeoutError):
    """Somebody holds the queue's lock past the deadline: stopped, or stuck in a disk that does not answer."""

    def __init__(self, queue: str, *, waited_s: float, holder: str = "its holder is not known") -> None:
        super().__init__(f"{queue}: its lock was not free within {waited_s:g} s: {holder}")
        self.queue = queue
        self.waited_s = waited_s
        self.holder = holder


class NoAnswer(PenstockError, TimeoutError):
    """Nobody has answered in the given time. The question stays where it is: ``q.answer(message_id)`` goes on waiting.

    ``message_id`` is None if it was not known to be stored by then. ``answers`` has those that came, by id, where
    several were asked.
    """

    def __init__(
        self, queue: str, message_id: str | None, *, waited_s: float, answers: dict[str, object] | None = None
    ) -> None:
        super().__init__(f"{queue}: {message_id or 'a message'} was not answered within {waited_s:g} s")
        self.queue = queue
        self.message_id = message_id
        self.waited_s = waited_s
        self.answers = answers or {}


class GivenUp(PenstockError):
    """A question that nobody will answer now. ``how``: "dead-lettered", "dropped", "cancelled" or "purged"; ``reason``
    is that of a dead letter, which may be answered yet if it is brought back: ``q.answer(message_id)``."""

    def __init__(
        self, queue: str, message_id: str, *, how: str, reason: str | None, answers: dict[str, object] | None = None
    ) -> None:
        super().__init__(f"{queue}: {message_id} was {how}{f' ({reason})' if reason else ''} and not answered")
        self.queue = queue
        self.message_id = message_id
        self.how = how
        self.reason = reason
        self.answers = answers or {}


class QueueInUse(PenstockError):
    """What was asked for needs the queue alone, and others have it open: ``pids`` are their processes, where known."""

    def __init__(self, queue: str, what: str, *, pids: list[int] | None = None) -> None:
        super().__init__(f"{queue}: in use: {what}")
        self.queue = queue
        self.pids = pids or []


class TooManyClients(PenstockError):
    """Every entry of the client table belongs to a living client."""

    def __init__(self, queue: str, *, limit: int) -> None:
        super().__init__(f"{queue}: all {limit} client entries are in use; close queues that are no longer needed")
        self.queue = queue
        self.limit = limit


class ImportStopped(PenstockError):
    """An import that ended early; why is its cause. ``messages`` of the export are in, ``skip=messages`` goes on."""

    def __init__(self, queue: str, why: str, *, messages: int) -> None:
        super().__init__(f"{why}; {messages} messages are in {queue}, skip={messages} goes on behind them")
        self.queue = queue
        self.messages = messages


class LeaseLost(PenstockError):
    """This delivery is no longer ours: the lease ended, or somebody else has the message. Nothing was changed."""

    def __init__(self, queue: str, message_id: str) -> None:
        super().__init__(f"{queue}: message {message_id} is no longer leased to this receiver")
        self.queue = queue
        self.message_id = message_id


class BodyGone(LeaseLost):
    """The body is a file of its own, which goes with its message, and nobody had read or opened it before."""

    def __init__(self, queue: str, message_id: str, why: str) -> None:
        PenstockError.__init__(
            self,
            f"{queue}: the body of message {message_id} is a file and cannot be read any more: {why}; read a large "
            f"body, or open it, before the message is acknowledged or given back",
        )
        self.queue = queue
        self.message_id = message_id
        self.why = why


class Corrupt(PenstockError):
    """Bytes on disk are not what they must be. Getting the undamaged rest: ``penstock repair``."""

    REMEDY = "`penstock check` finds all that is damaged, `penstock repair` sets it aside"

    def __init__(
        self, path: str, *, offset: int, expected: str, found: str = "something else", remedy: str = REMEDY
    ) -> None:
        super().__init__(f"{path}: damaged at byte {offset}: expected {expected}, found {found}; {remedy}")
        self.path = path
        self.offset = offset
        self.expected = expected
        self.found = found


class QueueNotFound(PenstockError, FileNotFoundError):
    """There is no queue at this path."""


class QueueExists(PenstockError, FileExistsError):
    """There is something at this path already."""


class NotAQueue(PenstockError):
    """A directory, but not one that Penstock made."""


class WrongFormat(PenstockError):
    """A queue of a format version that this Penstock does not know."""


class SyncFailed(PenstockError, OSError):
    """The disk could not be made to keep what was written. Nothing is confirmed any more until the queue is checked."""

    def __init__(self, queue: str, code: int) -> None:
        super().__init__(
            code,
            f"a sync of the queue failed ({os.strerror(code)}); what was not confirmed by then is not in it. Getting "
            f"and acknowledging still work. Close it everywhere, then open it or run `penstock repair` to check it",
            queue,
        )
        self.queue = queue

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class NotAllowed(PenstockError, PermissionError):
    """The file system does not let this process do it."""


class ReceiverBusy(PenstockError):
    """Another process, or another object of this one, is this receiver."""

    def __init__(self, queue: str, name: str) -> None:
        super().__init__(
            f"{queue}: receiver {name!r} is in use: its claims belong to one at a time; end the other one, or take "
            f"another name"
        )
        self.queue = queue
        self.name = name


class ReceiverLost(PenstockError):
    """Another one has become this receiver since, or this process was forked from its. Nothing was changed."""

    def __init__(self, queue: str, name: str) -> None:
        super().__init__(f"{queue}: receiver {name!r} is another one's by now")
        self.queue = queue
        self.name = name


class TooManyReceivers(PenstockError):
    """Every entry of the table of receivers is taken."""

    def __init__(self, queue: str, *, limit: int) -> None:
        super().__init__(
            f"{queue}: all {limit} names of receivers are taken; use one that there is already, or free one: "
            f"penstock claims forget"
        )
        self.queue = queue
        self.limit = limit


class PublisherBusy(PenstockError):
    """Another process or thread is publishing under this name."""

    def __init__(self, queue: str, name: str) -> None:
        super().__init__(f"{queue}: publisher {name!r} is publishing: one at a time may; end the other one, or wait")
        self.queue = queue
        self.name = name


class TooManyPublishers(PenstockError):
    """Every entry of the table of publishers is taken."""

    def __init__(self, queue: str, *, limit: int) -> None:
        super().__init__(
            f"{queue}: all {limit} names of publishers are taken; `penstock publishers` lists them and forgets those "
            f"that never come again"
        )
        self.queue = queue
        self.limit = limit


class NoSuchClaim(Misuse):
    """There is no open claim with this number: committed, released, or never made."""

    def __init__(self, queue: str, name: str, claim: int, why: str) -> None:
        super().__init__(f"{queue}: receiver {name!r} has no claim {claim}: {why}")
        self.queue = queue
        self.name = name
        self.claim = claim


class NoSuchReceiver(Misuse):
    """There never was a receiver of this name, or it was forgotten."""

    def __init__(self, queue: str, name: str) -> None:
        super().__init__(f"{queue}: there is no receiver {name!r}")
        self.queue = queue
        self.name = name


class ClaimLost(PenstockError):
    """A reader speaks of a claim that the queue does not have open: acknowledged, released, or never made."""

    def __init__(self, queue: str, name: str, claim: int, why: str) -> None:
        super().__init__(f"{queue}: claim {claim} of receiver {name!r} {why}")
        self.queue = queue
        self.name = name
        self.claim = claim


class WrongState(Misuse):
    """A manager was asked for what the state of the queue does not allow."""

    def __init__(self, queue: str, *, state: str, call: str, allowed: list[str]) -> None:
        super().__init__(
            f"{queue}: its state is {state}: {call} is not possible now; possible: {', '.join(allowed) or 'nothing'}"
        )
        self.queue = queue
        self.state = state
        self.call = call
        self.allowed = allowed


class NoSuchQueue(WrongState, QueueNotFound):
    """There is no queue of this name, or with this UUID, where the manager looks: its state is unknown."""

    def __init__(self, queue: str, *, state: str, call: str, allowed: list[str]) -> None:
        super().__init__(queue, state=state, call=call, allowed=allowed)
        self.args = (
            f"{queue}: there is no such queue: its state is {state}: {call} is not possible now; possible: "
            f"{', '.join(allowed)}",
        )


class NameTaken(WrongState, QueueExists):
    """There is a queue of this name already; ``renamed`` is the one that was to have it, where one was."""

    def __init__(self, queue: str, *, state: str, call: str, allowed: list[str], renamed: str | None = None) -> None:
        super().__init__(queue, state=state, call=call, allowed=allowed)
        self.renamed = renamed
        if renamed is not None:
            why = "that is its name" if renamed == queue else f"there is a queue of this name, its state is {state}"
            self.args = (f"{renamed}: {call} to {queue} is not possible: {why}",)


class WrongRelationship(Misuse):
    """A call of a producer on a queue that was opened as a consumer, or the other way round."""

    def __init__(self, queue: str, *, relationship: str, call: str) -> None:
        super().__init__(f"{queue}: {call} is not for a {relationship} of this queue")
        self.queue = queue
        self.relationship = relationship
        self.call = call


class QueueInactive(PenstockError):
    """The queue was deactivated: nothing goes in or out until somebody activates it. What was got can be finished."""

    def __init__(self, queue: str, *, call: str) -> None:
        super().__init__(f"{queue}: deactivated: {call} is not possible until it is activated")
        self.queue = queue
        self.call = call


class NotPermitted(NotAllowed):
    """The manager's permissions, or an option of the queue, do not let this principal or client do it."""

    def __init__(self, queue: str, *, call: str, who: str, why: str) -> None:
        super().__init__(f"{queue}: {call} is not permitted to {who}: {why}")
        self.queue = queue
        self.call = call
        self.who = who


class NoScript(PenstockError):
    """A message that an app of scripts has no script for, or that has no key, and so no context."""

    def __init__(self, app: str, message_id: str, *, type: str | None, key: str | None) -> None:
        what = (
            "has no key, so that there is no context for it"
            if key is None
            else f"is of type {type!r}, which the app has no script for"
        )
        super().__init__(f"{app}: message {message_id} {what}")
        self.app = app
        self.message_id = message_id
        self.type = type
        self.key = key


class ContextUnreadable(PenstockError):
    """What is stored for a key does not fit the type of the app's contexts. It stays as it is."""

    def __init__(self, app: str, key: str, why: str) -> None:
        super().__init__(
            f"{app}: the context {key!r} does not fit the app's type: {why}; `penstock scripts contexts` shows it, "
            f"give new fields defaults and keep the types of old ones"
        )
        self.app = app
        self.key = key
        self.why = why
