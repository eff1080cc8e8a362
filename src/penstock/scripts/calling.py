"""Owns one call of a script: from what is kept for a key and a message to what is kept afterwards and what the script
asked for. Never stores, puts or acknowledges anything: a function of its arguments, for whoever runs scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.errors import ContextUnreadable, Misuse, NoScript
from penstock.scripts.context import TIMER, Context, FollowUp, Incoming, ScriptMessage, Timer

Script = Callable[[Any, ScriptMessage], Any]

NO_TIMERS: dict[str, Timer] = {}


class Kept(msgspec.Struct, frozen=True):
    """A context as it is stored: the state as JSON, and the timers that are set."""

    state: bytes
    timers: dict[str, Timer]


class Outcome(msgspec.Struct, frozen=True):
    """What a call leads to. All of it happens, once, or nothing."""

    kept: Kept | None  # None: the context has ended
    follow_ups: list[FollowUp]  # timers among them
    unset: list[str]  # ids of timers that are set no longer
    answer: tuple[int, bytes] | None  # codec and bytes of the reply


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
    app: str, scripts: Mapping[str, Script], states: States, kept: Kept | None, message: Incoming, now_us: int
) -> Outcome | None:
    """Call the script for this message; None if it has changed nothing and asked for nothing."""
    type, key = message.type, message.key
    script = scripts.get(type) if type is not None else None
    if script is None or key is None:
        raise NoScript(app, message.id, type=type, key=key)
    timers = before = NO_TIMERS if kept is None else kept.timers
    fired = message.headers.get(TIMER)
    if fired is not None:
        timer = timers.get(script_type := str(type))
        if timer is None or timer.id != fired:
            raise Stale
        timers = {name: each for name, each in timers.items() if name != script_type}
    if kept is None:
        state = states.fresh()
        was = states.encode(state)
    else:
        was = kept.state
        state = states.decode(key, was)
    context = Context(key, state, timers, message, now_us, scripts)
    given = ScriptMessage(message)
    script(context, given)
    return _outcome(app, states, kept, was, before, context, given)


def _outcome(
    app: str,
    states: States,
    kept: Kept | None,
    was: bytes,
    before: dict[str, Timer],
    context: Context[Any],
    given: ScriptMessage,
) -> Outcome | None:
    timers = context._timers
    after = None
    if not context._ended:
        try:
            state = states.encode(context.state)
            if state != was:
                states.decode_json(state)  # as it is for the next message of its key
        except (
            TypeError,
            ValueError,
            OverflowError,
            UnicodeEncodeError,
            RecursionError,
            msgspec.MsgspecError,
        ) as error:
            raise Misuse(f"{app}: the context {context.key!r} cannot be stored: {error}") from error
        if state == was and timers is before and not context._follow_ups and given._answer is None:
            return None
        after = Kept(state, timers)
    elif kept is None and not context._follow_ups and given._answer is None:
        return None
    unset: list[str] = []
    if timers is not before:
        standing = {timer.id for timer in timers.values()}
        unset = [timer.id for timer in before.values() if timer.id not in standing]
    return Outcome(after, [*context._follow_ups, *context._set.values()], unset, given._answer)


def error_text(error: BaseException) -> str:
    """An error's own text is a program's code, which may fail, too."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as another:
        return f"{type(error).__name__}, whose text cannot be had: {type(another).__name__}"
