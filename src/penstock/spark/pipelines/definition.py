"""Owns what a pipeline is: its sources, its steps with their options, and the mistakes that can be seen in it without
looking elsewhere. The same for Python and for TOML. Never opens a queue, imports a function or asks Spark.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import msgspec

from penstock.errors import Misuse
from penstock.scripts.folder import check_name
from penstock.spark.scripting.place import PARTS_MAX, PIPELINE_PARTS

MAX_ROWS = 20_000  # of a batch: what it leads to is collected by the driver
MAX_ROWS_MOST = 1_000_000
MAX_BYTES = 32 << 20  # likewise: in Java's memory there are several copies of it on the way. An option of the source
ATTEMPTS = 5  # of a message whose queue has no limit: else a poisonous one would come again for ever
WAIT_S = 30.0  # for room in a sink; then the query stops
RETRIES_MAX = 100
SECONDS_MAX = 86_400.0
COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")  # ours begin with an underscore

FAIL = "fail"
PASS = "pass"

Function: TypeAlias = Any  # module:name, or the function itself
Read = TypeVar("Read")


class Mistake(msgspec.Struct, frozen=True):
    """One, and where it is."""

    text: str
    step: str | None = None
    option: str | None = None

    def __str__(self) -> str:
        where = [self.step, f"option {self.option}" if self.option else None]
        return ": ".join([*(part for part in where if part), self.text])


class BadPipeline(Misuse):
    """A pipeline that cannot run: all that is wrong with it, as far as it was looked at."""

    def __init__(self, name: str, mistakes: list[Mistake]) -> None:
        super().__init__("; ".join(f"{name}: {mistake}" for mistake in mistakes))
        self.name = name
        self.mistakes = mistakes


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is done to each message, one step after the other."""

    kind: ClassVar[str]

    name: str | None = None

    def mistakes(self) -> list[tuple[str, str]]:
        """Options that mean nothing, and why."""
        return []


class Parse(Step, frozen=True, kw_only=True):
    """The body as JSON of this schema: a column for expressions."""

    kind = "parse"

    parse: str
    into: str = "json"

    def mistakes(self) -> list[tuple[str, str]]:
        if not COLUMN.fullmatch(self.into):
            return [("into", f"a column's name has letters, digits and underscores; not {self.into!r}")]
        return []


class Filter(Step, frozen=True, kw_only=True):
    """Those for which it is not true are acknowledged, and go no further."""

    kind = "filter"

    filter: str


class Calling(Step, frozen=True, kw_only=True):
    """How a function is called."""

    retries: int = 0
    retry_wait: float = 0.0
    time_limit: float | None = None

    def mistakes(self) -> list[tuple[str, str]]:
        found = [*_not_within("retries", self.retries, 0, RETRIES_MAX)]
        found += _not_within("retry_wait", self.retry_wait, 0, SECONDS_MAX)
        if self.time_limit is not None and not 0 < self.time_limit <= SECONDS_MAX:
            found.append(("time_limit", f"must be more than 0 and at most {SECONDS_MAX:g} seconds"))
        return found


class Call(Calling, frozen=True, kw_only=True):
    """A function is called with each message; what it returns is the message from there on."""

    kind = "call"

    call: Function


class Group(Calling, frozen=True, kw_only=True):
    """A function is called with a key and its messages of the batch; what it returns goes on in their place."""

    kind = "group"

    group: Function
    by: str = "key"


class Put(Step, frozen=True, kw_only=True):
    """Into this queue."""

    kind = "put"

    put: str


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way of a route."""

    when: str
    to: str


class Route(Step, frozen=True, kw_only=True):
    """Into the queue of the first choice that is true."""

    kind = "route"

    route: list[Choice]
    otherwise: str | None = None
    unmatched: str = FAIL

    def mistakes(self) -> list[tuple[str, str]]:
        found = []
        if not self.route:
            found.append(("route", "there is no choice in it"))
        if self.unmatched not in (FAIL, PASS):
            found.append(("unmatched", f"must be {FAIL!r} or {PASS!r}, not {self.unmatched!r}"))
        elif self.otherwise is not None and self.unmatched == PASS:
            found.append(("unmatched", "with otherwise every message has a queue"))
        return found


class Table(Step, frozen=True, kw_only=True):
    """A row in a table of files."""

    kind = "table"

    table: str
    format: str = "parquet"
    columns: tuple[str, ...] = ("*",)
    when: str | None = None
    options: dict[str, str] = {}

    def mistakes(self) -> list[tuple[str, str]]:
        found = [] if self.columns else [("columns", "there is none")]
        return found if self.table else [("table", "the folder's name is empty"), *found]


class Script(Step, frozen=True, kw_only=True):
    """The scripts of an app, with the contexts of its keys."""

    kind = "script"

    script: Function
    partitions: int = PIPELINE_PARTS

    def mistakes(self) -> list[tuple[str, str]]:
        return _not_within("partitions", self.partitions, 1, PARTS_MAX)


KINDS: dict[str, type[Step]] = {kind.kind: kind for kind in (Parse, Filter, Call, Group, Put, Route, Table, Script)}


class Definition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A pipeline as it was written down."""

    name: str
    root: str
    sources: list[str]
    max_attempts: int | None = None
    retry_delay: float | None = None
    max_rows: int = MAX_ROWS
    wait: float = WAIT_S
    options: dict[str, str] = {}
    steps: tuple[Step, ...] = ()

    def titles(self) -> list[str]:
        """What each step is called in errors."""
        return [title(n, step.kind, step.name) for n, step in enumerate(self.steps, 1)]

    @property
    def input(self) -> str:
        """Where follow-ups of scripts go that name no queue."""
        return self.sources[0]

    @property
    def tables(self) -> list[Table]:
        return [step for step in self.steps if isinstance(step, Table)]

    @property
    def script(self) -> Script | None:
        return next((step for step in self.steps if isinstance(step, Script)), None)

    @property
    def skips_gone(self) -> bool:
        """Whether messages may be missing that were claimed, by an option of the source."""
        return any(name.lower() == "onlostclaim" and value.lower() == "skip" for name, value in self.options.items())

    @property
    def calls_before_group(self) -> bool:
        kinds = [type(step) for step in self.steps]
        return Group in kinds and Call in kinds[: kinds.index(Group)]


def title(number: int, kind: str, name: str | None = None) -> str:
    """
    >>> title(2, "filter", "only large ones")
    "step 2 (filter 'only large ones')"
    """
    return f"step {number} ({kind} {name!r})" if name else f"step {number} ({kind})"


def _plain(value: float) -> str:
    """
    >>> _plain(31_536_000.0), _plain(0.5)
    ('31536000', '0.5')
    """
    return f"{value:.12g}"


def _not_within(option: str, value: float, least: float, most: float) -> list[tuple[str, str]]:
    return (
        []
        if least <= value <= most
        else [(option, f"must be from {_plain(least)} to {_plain(most)}, not {_plain(value)}")]
    )


# ---------------------------------------------------------------- mistakes that the definition alone shows


def mistakes_of(definition: Definition) -> list[Mistake]:
    found = [Mistake(text, option=option) for option, text in _own_mistakes(definition)]
    for step, called in zip(definition.steps, definition.titles(), strict=True):
        found += [Mistake(text, called, option) for option, text in step.mistakes()]
    return found + _in_their_places(definition)


def _own_mistakes(definition: Definition) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    try:
        check_name(definition.name)
    except Misuse as error:
        found.append(("name", str(error)))
    if not definition.sources or not all(definition.sources):
        found.append(("sources", "there is none" if not definition.sources else "a queue's name is empty"))
    if len(set(definition.sources)) != len(definition.sources):
        found.append(("sources", "a queue is there twice"))
    if definition.max_attempts is not None:
        found += _not_within("max_attempts", definition.max_attempts, 1, 1_000_000)
    if definition.retry_delay is not None:
        found += _not_within("retry_delay", definition.retry_delay, 0, SECONDS_MAX * 365)
    found += _not_within("max_rows", definition.max_rows, 1, MAX_ROWS_MOST)
    found += _not_within("wait", definition.wait, 0, SECONDS_MAX)
    if not definition.steps:
        found.append(("step", "there is no step"))
    return found


def _in_their_places(definition: Definition) -> list[Mistake]:
    """A script ends a pipeline, and a group makes messages that are nobody's before."""
    found: list[Mistake] = []
    titles = definition.titles()
    for kind in (Script, Group):
        several = [titles[n] for n, step in enumerate(definition.steps) if isinstance(step, kind)]
        if len(several) > 1:
            found.append(Mistake(f"there is one already: {several[0]}", several[1]))
    for n, step in enumerate(definition.steps):
        if isinstance(step, Script):
            if n != len(definition.steps) - 1:
                found.append(Mistake("a script is the last step of a pipeline", titles[n]))
            if any(isinstance(each, Group) for each in definition.steps):
                found.append(Mistake("a pipeline has a group or a script, not both", titles[n]))
    return found


# ---------------------------------------------------------------- TOML

_TOP = {"name", "root", "source", "sources", "step", *Definition.__struct_fields__} - {"steps"}


def load(path: Path) -> Definition:
    """A pipeline from its file. Folders in it count from where the file is."""
    try:
        text = path.read_text()
        given = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadPipeline(str(path), [Mistake(f"not TOML: {error}")]) from None
    definition, mistakes = read(given, path.absolute().parent)
    if definition is None or mistakes:
        raise BadPipeline(str(path), mistakes)
    return definition


def read(given: Mapping[str, Any], folder: Path) -> tuple[Definition | None, list[Mistake]]:
    """What TOML says; None if it cannot be told what is meant."""
    mistakes = [
        Mistake(f"there is no such option; there are {', '.join(sorted(_TOP))}", option=name)
        for name in given
        if name not in _TOP
    ]
    raw = given.get("step", [])
    if not isinstance(raw, list) or not all(isinstance(each, dict) for each in raw):
        return None, [*mistakes, Mistake("steps are tables: [[step]]", option="step")]
    steps = [_step(number, each, folder, mistakes) for number, each in enumerate(raw, 1)]
    top = {name: value for name, value in given.items() if name in Definition.__struct_fields__}
    _one_source(given, top, mistakes)
    for name in ("name", "root"):
        if name not in top:
            mistakes.append(Mistake("it is missing", option=name))
    if mistakes:
        return None, mistakes
    found = converted({**top, "options": _texts(top.get("options", {})), "steps": []}, Definition, None, mistakes)
    if found is None:
        return None, mistakes
    definition = msgspec.structs.replace(
        found, root=str(folder / found.root), steps=tuple(step for step in steps if step is not None)
    )
    return definition, mistakes_of(definition)


def _one_source(given: Mapping[str, Any], top: dict[str, Any], mistakes: list[Mistake]) -> None:
    if ("source" in given) == ("sources" in given):
        mistakes.append(Mistake('give one of them: source = "queue" or sources = ["one", "two"]', option="source"))
    elif "source" in given:
        top["sources"] = [given["source"]]


def _step(number: int, given: dict[str, Any], folder: Path, mistakes: list[Mistake]) -> Step | None:
    kinds = [kind for kind in KINDS if kind in given]
    if len(kinds) != 1:
        said = f"which of {', '.join(kinds)} is it?" if kinds else f"what is it? One of {', '.join(KINDS)}"
        mistakes.append(Mistake(f"{said} (it has {', '.join(given) or 'nothing'})", f"step {number}"))
        return None
    kind = KINDS[kinds[0]]
    name = given.get("name")
    called = title(number, kind.kind, name if isinstance(name, str) else None)
    unknown = not_options(kind, given, called)
    mistakes += unknown
    function = given.get(kind.kind)
    if kind in (Call, Group, Script) and not isinstance(function, str):
        mistakes.append(Mistake('a function is "module:name"', called, kind.kind))
        return None
    if unknown:
        return None
    if "options" in given:
        given = {**given, "options": _texts(given["options"])}
    step = converted(given, kind, called, mistakes)
    if isinstance(step, Table):
        return msgspec.structs.replace(step, table=str(folder / step.table) if step.table else "")
    return step


def not_options(kind: type[Step], given: Iterable[str], called: str) -> list[Mistake]:
    """Those of a step that there are not."""
    known = ", ".join(each for each in kind.__struct_fields__ if each != "name")
    return [
        Mistake(f"there is no such option; there are {known}, name", called, option)
        for option in given
        if option not in kind.__struct_fields__
    ]


def _texts(options: Any) -> Any:
    """Spark's options are texts; in TOML they may be numbers, and yes or no."""
    if not isinstance(options, dict):
        return options
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value
        for name, value in options.items()
    }


def converted(given: Any, kind: type[Read], called: str | None, mistakes: list[Mistake]) -> Read | None:
    """What was given, as this kind; None, and the mistake, if it is not."""
    try:
        return msgspec.convert(given, type=kind)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        mistakes.append(Mistake(text.replace("`", ""), called, place.strip(".`") or None))
        return None


# ---------------------------------------------------------------- functions


def named(function: Function) -> str:
    """For people."""
    if isinstance(function, str):
        return function
    return str(getattr(function, "__qualname__", None) or getattr(function, "name", None) or function)


def check_function(function: Function) -> Callable[..., Any]:
    """One that can be called with messages."""
    if not callable(function):
        raise TypeError(f"{named(function)} cannot be called")
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"{named(function)} is a coroutine function; a plain one is needed")
    return function
