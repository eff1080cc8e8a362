"""Owns where a pipeline keeps what it knows: a folder in the root of its queues, with the driver's store and Spark's
checkpoint. Which queues it reads is written down once. Never opens a store.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import msgspec

from penstock.errors import Misuse, WrongFormat
from penstock.scripts.folder import Folder
from penstock.spark.scripting.place import SETTINGS, Place
from penstock.store.directory import replace_file
from penstock.timequeue.arguments import BUSY_S

PIPELINES = ".pipelines"  # in the root. No queue has such a name
FORMAT = 1


class Settings(msgspec.Struct, frozen=True):
    """What must stay as it is as long as there is a checkpoint."""

    format: int
    id: str
    sources: list[str]


class PipelinePlace(Place):
    """The folder of one pipeline."""

    def __init__(self, root: str | os.PathLike[str], name: str) -> None:
        self.folder = Folder(Path(os.path.abspath(root)), name, PIPELINES)
        self.path = self.folder.path

    def settle(self, sources: list[str]) -> Settings:
        """What it was when the pipeline was started for the first time, or is from now on."""
        self.folder.require_root()
        self.folder.make()
        with self.folder.alone(BUSY_S):
            found = self.noted() or self._noted(sources)
        if found.sources != sources:
            raise Misuse(
                f"{self.path}: the pipeline was begun with {', '.join(found.sources)}; not {', '.join(sources)}. "
                f"What to do: docs/pipelines.md#other-sources"
            )
        return found

    def noted(self) -> Settings | None:
        path = self.path / SETTINGS
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Settings)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise WrongFormat(f"{path}: not the settings of a pipeline: {error}") from error
        if found.format != FORMAT:
            raise WrongFormat(f"{path}: format {found.format}; this version knows {FORMAT}")
        return found

    def _noted(self, sources: list[str]) -> Settings:
        made = Settings(FORMAT, uuid.uuid4().hex[:8], sources)
        replace_file(self.path / SETTINGS, msgspec.json.format(msgspec.json.encode(made)) + b"\n")
        return made
