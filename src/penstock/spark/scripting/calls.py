"""Owns calling the scripts of a part's messages, one after the other, and what each leads to. Never stores anything,
nor puts or acknowledges a message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import BodyTooLarge, NoScript
from penstock.manager import QueueManager
from penstock.scripts import App
from penstock.scripts.calling import Held, Kept, Outcome, Stale, call_with, error_text, held
from penstock.scripts.context import TIMER, Incoming
from penstock.scripts.targets import Targets
from penstock.scripts.worker import NO_SCRIPT
from penstock.spark.scripting.gathered import Gathered
from penstock.spark.scripting.results import Result
from penstock.store import layout as L
from penstock.store.directory import read_options
from penstock.store.files import Clock
from penstock.store.options import DELETE, Options
from penstock.timequeue.answers import DATA_BYTES_LEAST, share_of
from penstock.timequeue.retries import text_of

# Of states as JSON whose objects are kept for the next message of their key: objects take several times as much.
OBJECTS_BYTES_MAX = 16 << 20

LookUp = Callable[[Sequence[str]], dict[str, Kept]]


class Caller:
    """Calls scripts; what they ask for is checked as far as it can be."""

    def __init__(self, app: App[Any], root: str) -> None:
        self._app = app
        self._scripts = app.scripts
        self._states = app.states
        self._name = app.name
        self._root = root
        self._clock = Clock()
        self._objects_bytes = 0
        self._manager: QueueManager | None = None
        self._targets: Targets | None = None
        self._homes: dict[str, Options] = {}

    def call_all(self, messages: list[Any], contexts: dict[str, Held], look_up: LookUp, results: list[Result]) -> None:
        """One message after the other. What is held for their keys changes with each; it is looked up when a key is
        seen for the first time."""
        for n, message in enumerate(messages):
            if type(message) is Gathered:
                quick: Gathered = message
                head = quick.head
                kind, key, timer = head.type, head.key, head.timer
            else:
                kind, key, timer = message.type, message.key, message.headers.get(TIMER)
            if key is None:
                mine = held(None)  # its error says so
            else:
                found = contexts.get(key)
                if found is None:
                    _look_up(messages[n:], contexts, look_up)
                    found = contexts[key]
                mine = found
            messages[n] = None  # its memory is the next one's
            result = self._call(message, mine, kind, key, timer)
            if result is not None:
                results.append(result)

    def call(self, message: Incoming, mine: Held) -> Result | None:
        """One message: what else there is to do than to keep what is held for its key from then on."""
        return self._call(message, mine, message.type, message.key, message.headers.get(TIMER))

    def _call(
        self, message: Incoming, mine: Held, type: str | None, key: str | None, timer: str | None
    ) -> Result | None:
        now_us = self._clock.wall_us()
        if mine._object is not None:
            self._objects_bytes -= len(mine.state)  # type: ignore[arg-type]
        result = None
        try:
            outcome = call_with(self._name, self._scripts, self._states, mine, message, type, key, timer, now_us)
            if outcome is None:
                return None
            if outcome.follow_ups or outcome.answer is not None:
                result = self._result(message, outcome, now_us)
        except Stale:
            mine._object = None
            return None
        except (Exception, SystemExit) as error:
            mine._object = None
            return self._failure(message, error)
        mine.accept(outcome, self._may_keep(outcome))
        return result

    def _may_keep(self, outcome: Outcome) -> bool:
        """Whether the object of its state is kept."""
        if outcome._object is None:
            return False
        size_bytes = len(outcome.state)  # type: ignore[arg-type]
        if self._objects_bytes + size_bytes > OBJECTS_BYTES_MAX:
            return False
        self._objects_bytes += size_bytes
        return True

    def _result(self, message: Any, outcome: Outcome, now_us: int) -> Result:
        posts = [post for each in outcome.follow_ups for post in self._open().posts(each, now_us)]
        if outcome.answer is not None:
            self._check_answer(message, len(outcome.answer[1]))
        return Result(self.uuid(message.queue), message.id, posts=posts, answer=outcome.answer)

    def _failure(self, message: Any, error: BaseException) -> Result:
        home = self._home(message.queue)
        dead = isinstance(error, NoScript) and home.dead_letter != DELETE
        return Result(home.uuid, message.id, error=text_of(error_text(error)), reason=NO_SCRIPT if dead else None)

    def _check_answer(self, message: Any, size_bytes: int) -> None:
        limit = share_of(self._home(message.queue).data_bytes, DATA_BYTES_LEAST)
        if size_bytes + 2 * L.UNIT_BYTES > limit:
            raise BodyTooLarge(f"{message.queue}/replies", body_bytes=size_bytes, limit_bytes=limit)

    def _home(self, path: str) -> Options:
        if path not in self._homes:
            self._homes[path] = read_options(Path(path))
        return self._homes[path]

    def uuid(self, path: str) -> str:
        """Of a queue that messages come from."""
        return self._home(path).uuid

    def _open(self) -> Targets:
        if self._targets is None:
            self._manager = QueueManager(self._root)
            self._targets = Targets(self._manager, self._app.input, self._clock)
        return self._targets

    def close(self) -> None:
        if self._targets is not None:
            self._targets.close()
        if self._manager is not None:
            self._manager.close()


def _look_up(messages: list[Any], contexts: dict[str, Held], look_up: LookUp) -> None:
    """For the keys of all of them that are new, with one question."""
    new = list({key for message in messages if (key := message.key) is not None and key not in contexts})
    there = look_up(new)
    for key in new:
        contexts[key] = held(there.get(key))
