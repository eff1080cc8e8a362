"""Owns which queues a manager has opened, and so their states in it; threads come and go as they like. The states
themselves are ``states.py``'s. Never opens anything itself.
"""

from __future__ import annotations

import threading

from penstock.manager.managed import ManagedQueue
from penstock.manager.states import State, after


class _Here:
    """A queue as one manager has it."""

    def __init__(self) -> None:
        self.state = State.CONFIGURED
        self.opening = 0
        self.opened: set[ManagedQueue] = set()


class HandedOut:
    """What one manager has handed out, by the names of queues."""

    def __init__(self) -> None:
        self._here: dict[str, _Here] = {}
        self._mutex = threading.Lock()  # held for steps from state to state, never while something waits

    def state(self, name: str, at_rest: State) -> State:
        """Of a queue that is in the state ``at_rest`` where nobody has opened it."""
        with self._mutex:
            return self._state(name, at_rest)

    def _state(self, name: str, at_rest: State) -> State:
        here = self._here.get(name)
        if here is None or (at_rest is not State.CONFIGURED and not here.opened and not here.opening):
            return at_rest
        return here.state

    def forget(self, name: str) -> None:
        """It is at rest, and in no state of ours; unless another thread has opened it since."""
        with self._mutex:
            here = self._here.get(name)
            if here is not None and not here.opened and not here.opening:
                del self._here[name]

    def opened(self, name: str | None = None) -> list[ManagedQueue]:
        with self._mutex:
            found = self._here if name is None else {name} & self._here.keys()
            return [managed for each in found for managed in self._here[each].opened]

    def begin(self, name: str, at_rest: State) -> None:
        """It is to be opened."""
        with self._mutex:
            state = after(name, self._state(name, at_rest), "open")
            here = self._here.setdefault(name, _Here())
            here.state = state
            here.opening += 1

    def end(self, name: str, managed: ManagedQueue | None) -> None:
        """How that ended: None if it failed. Others may have opened and closed it meanwhile."""
        with self._mutex:
            here = self._here[name]
            here.opening -= 1
            before = State.OPEN if here.opened else State.OPENING
            if managed is not None:
                here.opened.add(managed)
            here.state = after(name, before, "failed" if managed is None else "opened")

    def close_none(self, name: str, at_rest: State) -> None:
        """A close where nothing is open: possible in some states, and nothing happens."""
        with self._mutex:
            state = after(name, self._state(name, at_rest), "close")
            if name in self._here:
                self._here[name].state = state

    def close(self, managed: ManagedQueue) -> None:
        """One of them; with the last the queue is closed."""
        name = managed.called
        with self._mutex:
            here = self._here[name]
            if here.opened == {managed} and not here.opening:
                here.state = after(name, here.state, "close")
        how = "failed"
        try:
            managed.leave()
            how = "closed"
        finally:
            with self._mutex:
                self._closed(name, here, managed, how)

    def _closed(self, name: str, here: _Here, managed: ManagedQueue, how: str) -> None:
        if not managed.closed:  # it cannot be closed now
            here.state = State.OPEN
            return
        here.opened.discard(managed)
        if here.opened or here.opening:
            return
        if here.state is State.OPEN:  # another thread was closing one as well
            here.state = after(name, here.state, "close")
        here.state = after(name, here.state, how)
