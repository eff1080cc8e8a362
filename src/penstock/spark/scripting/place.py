"""Owns where an app's scripts on Spark keep what they know: a folder of the app's, with a file for each part of the
keys, the driver's own, and the checkpoint. How many parts there are is written down once. Never opens a store.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import Misuse, WrongFormat
from penstock.scripts.folder import SLOTS_MAX, SPARK, Folder, Slots
from penstock.store.directory import replace_file
from penstock.store.files import make_folder, sync_directory
from penstock.timequeue.arguments import BUSY_S

SETTINGS = "settings.json"
FORMAT = 1
PARTS_MAX = 10_000
PIPELINE_PARTS = 2  # of the contexts of a pipeline's script, unless it is said
SLOT = SLOTS_MAX  # whose outbox the driver's is: that of no worker
PARTS = "parts"  # engines
STATEFUL = "transformWithState"


class Settings(msgspec.Struct, frozen=True):
    """What must stay as it is as long as there are contexts."""

    format: int
    id: str
    engine: str
    partitions: int
    input: str

    def require(self, path: Path, engine: str, partitions: int | None, input: str) -> None:
        """That these are what is asked for."""
        for name, given, was in (
            ("engine", engine, self.engine),
            ("partitions", partitions or self.partitions, self.partitions),
            ("input", input, self.input),
        ):
            if given != was:
                raise _changed(path, name, given, was)


class Place:
    """The folder of one app on Spark."""

    def __init__(self, root: str | os.PathLike[str], app: str, name: str = SPARK) -> None:
        self.folder = Folder(Path(os.path.abspath(root)), app)
        self.path = self.folder.path / name

    @contextlib.contextmanager
    def nobody_works(self) -> Iterator[None]:
        """No worker of the app runs, nor begins to, for the block."""
        self.folder.make()
        with contextlib.closing(Slots(self.folder)) as slots, slots.all():
            yield

    def prepare(self) -> Place:
        """A place beside this one, empty, that is to become it."""
        aside = Place(self.folder.root, self.folder.app, f"{SPARK}.new")
        if aside.path.exists():  # somebody was killed
            shutil.rmtree(aside.path)
        make_folder(aside.path)
        return aside

    def take_place(self, of: Place) -> None:
        """Be it from now on, for good."""
        sync_directory(self.path)
        os.rename(self.path, of.path)
        sync_directory(of.path.parent)

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    def query(self) -> str:
        """By what Spark knows the checkpoint: a new one has another."""
        return str(json.loads((self.checkpoint / "metadata").read_text())["id"])

    @property
    def driver(self) -> Path:
        return self.path / "driver.sqlite"

    def part(self, number: int) -> Path:
        return self.path / f"part-{number}.sqlite"

    def parts(self) -> list[Path]:
        """Those that have been written."""
        settings = self.settings()
        if settings is None or settings.engine != PARTS:
            return []
        return [path for number in range(settings.partitions) if (path := self.part(number)).exists()]

    def settings(self) -> Settings | None:
        try:
            text = (self.path / SETTINGS).read_bytes()
        except FileNotFoundError:
            return None
        try:
            found = msgspec.json.decode(text, type=Settings)
        except msgspec.DecodeError as error:
            raise WrongFormat(f"{self.path / SETTINGS}: not the settings of scripts on Spark: {error}") from error
        if found.format != FORMAT:
            raise WrongFormat(f"{self.path / SETTINGS}: format {found.format}; this version knows {FORMAT}")
        return found

    def settle_on(self, engine: str, partitions: int | None, input: str, default: int) -> Settings:
        """What it was when the first query was started, or is from now on."""
        self.folder.require_root()
        self.folder.make()
        with self.folder.alone(BUSY_S):
            found = self.settings() or self._settled(engine, partitions or default, input)
        found.require(self.path, engine, partitions, input)
        return found

    def _settled(self, engine: str, partitions: int, input: str) -> Settings:
        made = Settings(FORMAT, uuid.uuid4().hex[:12], engine, partitions, input)
        make_folder(self.path, exist_ok=True)
        sync_directory(self.path.parent)
        replace_file(self.path / SETTINGS, json.dumps(msgspec.to_builtins(made), indent=2).encode() + b"\n")
        return made


def receiver_of(pipeline: str) -> str:
    """As which a pipeline claims messages, for its scripts as for all else; its publisher's name, too.

    >>> receiver_of("orders")
    'pipeline.orders'
    """
    return f"pipeline.{pipeline}"


def _changed(path: Path, name: str, given: Any, was: Any) -> Misuse:
    return Misuse(
        f"{path}: its contexts were made with {name}={was!r}, which stays as it is; not {given!r}. To begin anew, "
        f"move the folder away"
    )
