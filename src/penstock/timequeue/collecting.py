"""Owns waiting for answers: each goes to whoever asked, in this process, and to nobody else.

An asker that waits for one answer takes it by the question's id. All others of a queue object have a name together, a
random one, which their questions carry; a thread takes the answers for that name as long as somebody waits. Answers to
questions of before a restart are taken by their ids, by another thread. A question that was put before, by its dedup
id, is waited for only as long as it is there: its answer may have been given to whoever put it. What answers say is
``answers.py``'s.
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import LeaseLost, NoAnswer, PenstockError, QueueClosed, QueueEmpty
from penstock.message import Message
from penstock.store import layout as L
from penstock.timequeue.answers import Answers, answer_of, best_of

if TYPE_CHECKING:
    from penstock.timequeue.timequeue import TimeQueue

log = logging.getLogger("penstock")

NAP_S = 0.1  # how often a thread looks whether anybody still waits
TAKEN_AT_ONCE = 100
KEYS_AT_ONCE = 64  # of answers that are taken by the ids of questions: each is looked for by itself

LOOK_S = 0.1  # how often it is looked whether a known question is still there, at first
LOOK_S_MAX = 5.0  # and later

Told = Callable[[Any, BaseException | None], None]


class Waiter(NamedTuple):
    """One of those who wait for an answer."""

    told: Told
    known: bool  # it was put before, by its dedup id
    since_s: float


class Look:
    """When to look whether a known question is still there."""

    def __init__(self) -> None:
        self.nap_s = LOOK_S
        self.at_s = 0.0
        self.gone = False

    def again(self, now_s: float) -> None:
        self.at_s = now_s + self.nap_s
        self.nap_s = min(2 * self.nap_s, LOOK_S_MAX)


class Collector:
    """Those who wait for answers, of one queue object. ``is_there`` says of a question whether it is in the queue."""

    def __init__(self, queue: str, answers: Answers, is_there: Callable[[str], bool]) -> None:
        self._queue = queue
        self._answers = answers
        self._is_there = is_there
        self.asker = secrets.token_hex(8)
        self._waiting: dict[str, dict[Any, Waiter]] = {}  # by question, and by whose it is
        self._looks: dict[str, Look] = {}  # of these, those that are waited for only as long as they are there
        self._named: dict[str, None] = {}  # of these, those that do not come under our name
        self._early: dict[str, Message] = {}  # came before their asker knew the id
        self._staying: set[str] = set()  # questions whose answers could not be passed on, which the log has
        self._expecting = 0
        self._threads: dict[bool, threading.Thread | None] = {False: None, True: None}
        self._mutex = threading.Lock()
        self._closed = False

    # ------------------------------------------------------------ one

    def wait_for(self, question: str, timeout_s: float | None, *, known: bool = False) -> Any:
        """The answer to a question that was put for ``BY_NUMBER``, for this thread alone. ``known``: it was put before,
        by its dedup id."""
        box = self._answers.box()
        started_s = time.monotonic()
        try:
            first = self._while_there(box, question, timeout_s) if known else box.get(timeout_s, key=question)
        except QueueEmpty:
            raise NoAnswer(self._queue, question, waited_s=time.monotonic() - started_s) from None
        found = [first]
        if first.meta.h is None:  # most often: a reply
            body = first.body
        else:
            found += box.get_many(TAKEN_AT_ONCE, key=question)
            answer = answer_of(best_of(found))
        try:
            box._consumer.remove(found, L.T_ACKS)  # nobody waits for an answer to an answer
        except LeaseLost:
            log.debug("%s: its answer was taken twice", question)
        return body if first.meta.h is None else answer.result(self._queue)

    def _while_there(self, box: TimeQueue, question: str, timeout_s: float | None) -> Message:
        """An answer is stored before its question goes: what is not there after that, somebody else was given."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        nap_s = LOOK_S
        while True:
            gone = not self._is_there(question)
            left_s = max(deadline - time.monotonic(), 0.0)
            try:
                return box.get(min(NAP_S if gone else nap_s, left_s), key=question)
            except QueueEmpty:
                if gone or left_s <= nap_s:
                    raise
            nap_s = min(2 * nap_s, LOOK_S_MAX)

    # ------------------------------------------------------------ many

    @contextlib.contextmanager
    def expecting(self) -> Iterator[None]:
        """While questions under our name are put: an answer may be there before we know their ids."""
        with self._mutex:
            self._expecting += 1
        try:
            yield
        finally:
            with self._mutex:
                self._expecting -= 1
                early = {} if self._expecting else self._early
                if early:
                    self._early = {}
            self._pass_on(list(early.values()))

    def add(self, question: str, owner: Any, told: Told, *, named: bool = False, known: bool = False) -> None:
        """``told(result, error)`` is called once, by a thread of ours, unless the ``owner`` drops it. ``named``: it was
        not asked under our name. ``known``: for it was put before, by its dedup id; ``NoAnswer`` when it is gone."""
        with self._mutex:
            if self._closed:
                raise QueueClosed(f"{self._queue}: this queue object is closed")
            early = self._early.pop(question, None)
            if early is None:
                self._waiting.setdefault(question, {})[owner] = Waiter(told, known, time.monotonic())
                if known:
                    self._looks.setdefault(question, Look())
                if named or known:
                    self._named[question] = None
                self._start(named or known)
        if early is not None:
            self._tell([told], early)
            self._done([early])

    def drop(self, question: str, owner: Any) -> None:
        """This one does not wait for it any more; others may."""
        with self._mutex:
            waiting = self._waiting.get(question, {})
            waiting.pop(owner, None)
            if not waiting:
                self._forget(question)

    def give_up(self, question: str, error: BaseException) -> None:
        """Nobody will answer it: all who wait for it here are told."""
        with self._mutex:
            waiters = self._forget(question)
        for waiter in waiters:
            waiter.told(None, error)

    def _forget(self, question: str) -> list[Waiter]:
        """Those who waited."""
        self._named.pop(question, None)
        self._looks.pop(question, None)
        return list(self._waiting.pop(question, {}).values())

    def _start(self, named: bool) -> None:
        if self._threads[named] is None:
            thread = threading.Thread(target=self._collect, args=(named,), name="penstock answers", daemon=True)
            self._threads[named] = thread
            thread.start()

    def _collect(self, named: bool) -> None:
        looks = 0
        while (keys := self._sought(named, looks)) is not None:
            looks += 1
            try:
                box = self._answers.box()
                if named:
                    found = box.get_many(TAKEN_AT_ONCE, wait=NAP_S, key=keys)
                else:
                    found = box.get_many(TAKEN_AT_ONCE, wait=NAP_S, type=self.asker)
                self._hand_out(found)
                if named and len(found) < TAKEN_AT_ONCE:
                    self._look_for(keys)
            except (PenstockError, OSError) as error:
                if not self._closed:
                    log.warning("%s: answers have to wait: %s", self._queue, error)
                    time.sleep(NAP_S)

    def _sought(self, named: bool, looks: int) -> list[str] | None:
        """The questions to look for; None, and the thread ends, when there are none."""
        with self._mutex:
            left = list(self._named) if named else [key for key in self._waiting if key not in self._named]
            if self._closed or not (left or (self._expecting and not named)):
                self._threads[named] = None
                if not named:
                    self._staying.clear()
                return None
        start = looks * KEYS_AT_ONCE % max(len(left), 1) if len(left) > KEYS_AT_ONCE else 0
        return left[start : start + KEYS_AT_ONCE]

    def _look_for(self, questions: list[str]) -> None:
        """Of these, for which there is no answer now, some may be gone. One that was gone before that has none."""
        now_s = time.monotonic()
        with self._mutex:
            due = {each: look for each in questions if (look := self._looks.get(each)) and look.at_s <= now_s}
        for question, look in due.items():
            if look.gone:
                self._end_waits_for(question)
            else:
                look.gone = not self._is_there(question)
                look.again(now_s)

    def _end_waits_for(self, question: str) -> None:
        """Of those who wait because it was known. Who asks for it by its id may know that it comes back."""
        with self._mutex:
            self._looks.pop(question, None)
            waiting = self._waiting.get(question, {})
            known = {owner: waiter for owner, waiter in waiting.items() if waiter.known}
            for owner in known:
                del waiting[owner]
            if not waiting:
                self._forget(question)
        for waiter in known.values():
            waiter.told(None, NoAnswer(self._queue, question, waited_s=time.monotonic() - waiter.since_s))

    def _hand_out(self, found: list[Message]) -> None:
        by_question: dict[str, list[Message]] = {}
        for message in found:
            by_question.setdefault(message.key or "", []).append(message)
        done, unasked = [], []
        for question, messages in by_question.items():
            best = best_of(messages)
            with self._mutex:
                told = [waiter.told for waiter in self._forget(question)]
                early = not told and self._expecting > 0
                if early:
                    self._early[question] = best
            if told:
                self._tell(told, best)
            done += [message for message in messages if message is not best or told]
            if not told and not early:
                unasked.append(best)
        self._done(done)
        if not self._pass_on(unasked):
            time.sleep(NAP_S)  # else it would be taken and given back without a pause

    def _tell(self, told: list[Told], message: Message) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = answer_of(message).result(self._queue)
        except Exception as raised:  # whatever it is, it is for whoever asked: a thread has nobody else to tell
            error = raised
        for each in told:
            each(result, error)

    def _done(self, messages: list[Message]) -> None:
        """They were handed out. What cannot be removed now comes again, and nobody waits for it then."""
        if messages:
            try:
                self._answers.box()._consumer.remove(messages, L.T_ACKS)
            except LeaseLost:
                log.debug("%s: answers were taken twice", self._queue)
            except (PenstockError, OSError) as error:
                log.warning("%s: answers that were handed out stay for now: %s", self._queue, error)

    def _pass_on(self, messages: list[Message]) -> bool:
        """Nobody here waits for these: one that was given up may have been brought back. Somebody may ask by its id.
        False if one has to stay where it is. Never raises: a put whose questions are stored must not fail for an answer
        to others."""
        passed = [self._passed_on(message) for message in messages]  # each, also behind one that is not
        return all(passed)

    def _passed_on(self, message: Message) -> bool:
        question = message.key or ""
        try:
            self._answers.forward(message)
        except (PenstockError, OSError, ValueError) as error:  # the last: a body that cannot be decoded
            if question not in self._staying:  # it comes again and again, as long as somebody waits for others
                self._staying.add(question)
                log.warning("%s: an answer that nobody waits for is not passed on: %s", question, error)
            with contextlib.suppress(PenstockError, OSError):  # then its lease ends
                self._answers.box().unget([message])
            return False
        self._staying.discard(question)
        self._done([message])
        return True

    def close(self) -> None:
        """Those who wait are told so. What was asked can be collected by its id later."""
        with self._mutex:
            self._closed = True
            waiting, self._waiting = self._waiting, {}
            self._named.clear()
            self._looks.clear()
            threads = [thread for thread in self._threads.values() if thread is not None]
        error = QueueClosed(f"{self._queue}: this queue object was closed before the answer came")
        for each in waiting.values():
            for waiter in each.values():
                waiter.told(None, error)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()
