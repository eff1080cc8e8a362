"""Scripts: an application as small functions over messages and contexts. See docs/scripts.md."""

from penstock.scripts.app import App
from penstock.scripts.context import Context, ScriptMessage
from penstock.scripts.contexts import Contexts
from penstock.scripts.worker import Counts, Worker

__all__ = ["App", "Context", "Contexts", "Counts", "ScriptMessage", "Worker"]
