"""Owns one call of a script: from what is kept for a key and a message to what is kept afterwards and what the script
asked for. Never stores, puts or acknowledges anything: a function of its arguments, for whoever runs scripts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.errors import ContextUnreadable, Misuse, NoScript
from penstock.scripts.context import TIMER, Context, FollowUp, Incoming, ScriptMessage, Timer, begin, given

Script = Callable[[Any, ScriptMessage], Any]

NO_TIMERS: dict[str, Timer] = {}
NOTHING: list[Any] = []

# What a state may raise that cannot be written as JSON, or not be read again.
UNFIT = (TypeError, ValueError, OverflowError, UnicodeEncodeError, RecursionError, msgspec.MsgspecError)


class Kept(msgspec.Struct, frozen=True):
    """A context as it is stored: the state as JSON, and the timers that are set."""

    state: bytes
    timers: dict[str, Timer]


@cython.no_gc
@cython.cclass
class Outcome:
    """What a call leads to. All of it happens, once, or nothing."""

    __slots__ = ("_object", "answer", "follow_ups", "state", "timers", "unset")

    # Made by ``_outcome``.
    state: bytes | None  # None: the context has ended
    timers: dict[str, Timer]
    follow_ups: list[FollowUp]  # timers among them
    unset: list[str]  # ids of timers that are set no longer
    answer: tuple[int, bytes] | None  # codec and bytes of the reply
    _object: Any  # what the state is when it is read again

    @property
    def kept(self) -> Kept | None:
        return None if self.state is None else Kept(self.state, self.timers)


@cython.no_gc
@cython.cclass
class Held:
    """What is kept for a key, while messages of it come one after the other."""

    __slots__ = ("_object", "changed", "state", "timers")

    state: bytes | None  # None: there is no context
    timers: dict[str, Timer]
    changed: bool  # since it was looked up
    _object: Any  # the state as it was read, which no script has seen; None: it has to be read

    @property
    def kept(self) -> Kept | None:
        return None if self.state is None else Kept(self.state, self.timers)

    def accept(self, outcome: Outcome, keep_object: bool) -> None:
        """What a call has led to is so from now on."""
        self.state = outcome.state
        self.timers = outcome.timers
        self.changed = True
        self._object = outcome._object if keep_object else None


def held(kept: Kept | None) -> Held:
    made = Held.__new__(Held)
    if kept is None:
        made.state = None
        made.timers = NO_TIMERS
    else:
        made.state = kept.state
        made.timers = kept.timers
    made.changed = False
    made._object = None
    return made


class Stale(Exception):
    """The message is that of a timer that was cancelled or set anew: it is to be dropped. Never seen by a user."""


class States:
    """The objects of one type, the app's, and their bytes."""

    def __init__(self, app: str, kind: Any) -> None:
        self._app = app
        self._decoder = msgspec.json.Decoder(kind)
        self.fresh = kind
        self.encode = msgspec.json.Encoder().encode
        self.decode_json = self._decoder.decode

    def decode(self, key: str, state: bytes) -> Any:
        try:
            return self.decode_json(state)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ContextUnreadable(self._app, key, str(error)) from error


def call(
    app: str, scripts: dict[str, Script], states: States, held: Held, message: Incoming, now_us: int
) -> Outcome | None:
    """Call the script for this message; None if it has changed nothing and asked for nothing. What is held is as it
    was: an outcome counts when it is accepted."""
    timer = message.headers.get(TIMER)
    return call_with(app, scripts, states, held, message, message.type, message.key, timer, now_us)


def call_with(
    app: str,
    scripts: dict[str, Script],
    states: States,
    held: Held,
    message: Incoming,
    type: str | None,
    key: str | None,
    timer: str | None,
    now_us: int,
) -> Outcome | None:
    """The same for those who know its type and key, and of which timer it is, if of one."""
    script = scripts.get(type) if type is not None else None
    if script is None or key is None:
        raise NoScript(app, message.id, type=type, key=key)
    timers = held.timers
    if timer is not None:
        fired = timers.get(str(type))
        if fired is None or fired.id != timer:
            raise Stale
        timers = {name: each for name, each in timers.items() if name != type}
    was = held.state
    if was is None:
        state = states.fresh()
        was = states.encode(state)
    elif held._object is not None:
        state, held._object = held._object, None  # if the script raises, nobody can say what it is
    else:
        state = states.decode(key, was)
    context = begin(key, state, timers, message, now_us, scripts)
    seen = given(message)
    script(context, seen)
    return _outcome(app, states, held, was, context, seen)


def _outcome(app: str, states: States, held: Held, was: bytes, context: Context, seen: ScriptMessage) -> Outcome | None:
    before, timers = held.timers, context._timers
    asks = context._follow_ups is not None or context._set is not None or seen._answer is not None
    state = found = None
    if not context._ended:
        try:
            state = states.encode(context.state)
            if state != was:
                found = states.decode_json(state)  # as it is for the next message of its key
        except UNFIT as error:
            raise Misuse(f"{app}: the context {context.key!r} cannot be stored: {error}") from error
        if state == was and timers is before and not asks:
            return None
    elif held.state is None and not asks:
        return None
    made = Outcome.__new__(Outcome)
    made.state = state
    made.timers = timers
    made.follow_ups = context._asked_for() if asks else NOTHING
    made.unset = NOTHING if timers is before else _unset(before, timers)
    made.answer = seen._answer
    made._object = found
    return made


def _unset(before: dict[str, Timer], after: dict[str, Timer]) -> list[str]:
    standing = {timer.id for timer in after.values()}
    return [timer.id for timer in before.values() if timer.id not in standing]


def error_text(error: BaseException) -> str:
    """An error's own text is a program's code, which may fail, too."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as another:
        return f"{type(error).__name__}, whose text cannot be had: {type(another).__name__}"
