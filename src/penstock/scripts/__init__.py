"""Scripts: an application as small functions over messages and contexts. See docs/scripts.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from penstock.scripts.app import App
from penstock.scripts.context import ScriptMessage, State
from penstock.scripts.contexts import Contexts
from penstock.scripts.worker import Counts, Worker

if TYPE_CHECKING:
    from penstock.scripts import context

    class Context(context.Context, Generic[State]):
        """Of a state of this type."""

        state: State

else:
    from penstock.scripts.context import Context

__all__ = ["App", "Context", "Contexts", "Counts", "ScriptMessage", "Worker"]
