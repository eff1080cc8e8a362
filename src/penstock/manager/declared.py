"""Owns ``penstock.toml``: what it may say, what a root must change to be so, and changing it. Never deletes a queue:
one that is not declared is reported and stays.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import Misuse
from penstock.manager.directory import check_new_name
from penstock.manager.macros import split
from penstock.manager.manager import QueueInfo, QueueManager
from penstock.manager.options import checked
from penstock.manager.permissions import Grants, check_rights, check_who
from penstock.manager.rehearsal import Rehearsal

DECLARED = "penstock.toml"
TABLES = ("defaults", "policies", "queues", "macros", "permissions")


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What a ``penstock.toml`` says, checked; policies are part of the queues that name them. None: it says nothing of
    that, and it stays as it is."""

    queues: dict[str, dict[str, Any]] = {}
    macros: dict[str, dict[str, Any]] = {}
    inactive: dict[str, bool] = {}
    defaults: dict[str, Any] | None = None
    permissions: Grants | None = None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One step. ``action`` is create, create_macro, configure, activate, deactivate, defaults, grant, revoke, or
    undeclared, which is none; ``options`` are those that change, each as it was (None: not at all) and as it will
    be."""

    action: str
    name: str
    options: dict[str, tuple[Any, Any]] = {}


def read_declared(file: Path) -> Declared:
    """``Misuse`` that names the file and the place in it for anything that cannot be meant."""
    try:
        said = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{file}: {error}") from None
    try:
        return parse(said)
    except Misuse as error:
        raise Misuse(f"{file}: {error}") from None


def parse(said: dict[str, Any]) -> Declared:
    unknown = sorted(said.keys() - set(TABLES))
    if unknown:
        raise Misuse(f"[{unknown[0]}]: no such table; there are {', '.join(TABLES)}")
    policies = {name: _options(f"policies.{name}", table) for name, table in _tables(said, "policies").items()}
    queues, inactive = {}, {}
    for name, table in _tables(said, "queues").items():
        where = f"queues.{check_new_name(name)}"
        given = dict(table)
        policy = given.pop("policy", None)
        if policy is not None and policy not in policies:
            raise Misuse(f"[{where}]: there is no policy {policy!r}")
        if "active" in given:
            inactive[name] = not _flag(where, "active", given.pop("active"))
        queues[name] = {**policies.get(policy, {}), **_options(where, given)}
    macros = {}
    for name, table in _tables(said, "macros").items():
        where = f"macros.{check_new_name(name)}"
        if name in queues:
            raise Misuse(f"[{where}]: there is a queue of this name as well")
        given = dict(table)
        if "active" in given:
            inactive[name] = not _flag(where, "active", given.pop("active"))
        macros[name] = _macro(where, given)
    grants: Grants = {}
    for principal, table in _tables(said, "permissions").items():
        with _at(f"permissions.{principal}"):
            grants[check_who("a principal", principal)] = {
                check_who("a pattern", pattern): check_rights(rights) for pattern, rights in table.items()
            }
    return Declared(
        queues=queues,
        macros=_inner_first(macros),
        inactive=inactive,
        defaults=_options("defaults", _table(said, "defaults")) if "defaults" in said else None,
        permissions=grants if "permissions" in said else None,
    )


def _table(said: dict[str, Any], name: str) -> dict[str, Any]:
    found = said.get(name, {})
    if not isinstance(found, dict):
        raise Misuse(f"{name} must be a table")
    return found


def _tables(said: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    found = _table(said, name)
    for each, table in found.items():
        if not isinstance(table, dict):
            raise Misuse(f"[{name}]: {each} must be a table: [{name}.{each}]")
    return found


def _flag(where: str, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise Misuse(f"[{where}]: {name} must be true or false, not {value!r}")
    return value


def _macro(where: str, table: dict[str, Any]) -> dict[str, Any]:
    """Its options, each as it was said; what they mean is checked."""
    with _at(where):
        own, options = split(table)
    meant = {**own, **msgspec.structs.asdict(options)}
    return {name: meant[name] for name in table}


def _inner_first(macros: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """A macro queue after those that are its members: it is made of them."""
    found: dict[str, dict[str, Any]] = {}
    left = dict(macros)
    while left:
        ready = [name for name, each in left.items() if not {m.name for m in each.get("members", [])} & left.keys()]
        if not ready:
            raise Misuse(f"[macros]: {', '.join(left)}: members of each other")
        found |= {name: left.pop(name) for name in ready}
    return found


def _options(where: str, table: dict[str, Any]) -> dict[str, Any]:
    with _at(where):
        return checked(table)


@contextlib.contextmanager
def _at(where: str) -> Iterator[None]:
    """What is wrong is told with its table."""
    try:
        yield
    except Misuse as error:
        raise Misuse(f"[{where}]: {error}") from None


# ---------------------------------------------------------------- what is to change


def plan(manager: QueueManager, declared: Declared) -> list[Change]:
    """What makes the root as it is declared, in the order in which it is done: defaults before the queues that get
    them. ``Misuse`` if something is declared that a queue can never become, or that would be refused now."""
    changes = _defaults(manager, declared)
    known = {info.name: info for info in manager.list()}
    for name, options in declared.queues.items():
        if name not in known:
            changes.append(Change(action="create", name=name, options={o: (None, v) for o, v in options.items()}))
        elif known[name].macro is not None:
            raise Misuse(f"[queues.{name}]: there is a macro queue of this name; destroy it, or choose another name")
        else:
            changes += _changes(manager, f"queues.{name}", name, options)
        changes += _activity(declared, known, name)
    for name, options in declared.macros.items():
        if name not in known:
            changes.append(Change(action="create_macro", name=name, options={o: (None, v) for o, v in options.items()}))
        elif known[name].macro is None:
            raise Misuse(
                f"[macros.{name}]: there is a queue of its own of this name; destroy it, or choose another name"
            )
        else:
            changes += _changes(manager, f"macros.{name}", name, options)
        changes += _activity(declared, known, name)
    changes += _grants(manager, declared)
    letters = {f"{name}.dead" for name in known}
    for name in known:
        if name not in declared.queues and name not in declared.macros and name not in letters:
            changes.append(Change(action="undeclared", name=name))
    _rehearse(manager, declared, changes)
    return changes


def _changes(manager: QueueManager, where: str, name: str, options: dict[str, Any]) -> list[Change]:
    with _at(where):
        found = manager.changes(name, **options)
    return [Change(action="configure", name=name, options=found)] if found else []


def _rehearse(manager: QueueManager, declared: Declared, changes: list[Change]) -> None:
    """``Misuse`` if one of them would be refused when its turn comes, with others made already."""
    picture = Rehearsal(manager.root, manager.own_defaults if declared.defaults is None else declared.defaults)
    steps = {"create": picture.create, "create_macro": picture.create_macro, "configure": picture.configure}
    for change in changes:
        if change.action in steps:
            with _at(f"{'macros' if change.name in declared.macros else 'queues'}.{change.name}"):
                steps[change.action](change.name, _wanted(change))


def _wanted(change: Change) -> dict[str, Any]:
    return {option: after for option, (_, after) in change.options.items()}


def _activity(declared: Declared, known: dict[str, QueueInfo], name: str) -> list[Change]:
    active = known[name].active if name in known else True
    if name in declared.inactive and declared.inactive[name] == active:
        return [Change(action="deactivate" if active else "activate", name=name)]
    return []


def _defaults(manager: QueueManager, declared: Declared) -> list[Change]:
    if declared.defaults is None:
        return []
    now, wanted = manager.own_defaults, declared.defaults
    options = {name: (now.get(name), wanted.get(name)) for name in sorted(now.keys() | wanted.keys())}
    differ = {name: pair for name, pair in options.items() if pair[0] != pair[1]}
    return [Change(action="defaults", name="", options=differ)] if differ else []


def _grants(manager: QueueManager, declared: Declared) -> list[Change]:
    if declared.permissions is None:
        return []
    found = []
    now = manager.permissions()
    for principal in sorted(now.keys() | declared.permissions.keys()):
        before, wanted = now.get(principal, {}), declared.permissions.get(principal, {})
        for pattern in sorted(before.keys() | wanted.keys()):
            pair = (before.get(pattern), wanted.get(pattern))
            if pair[0] != pair[1]:
                action = "revoke" if pair[1] is None else "grant"
                found.append(Change(action=action, name=principal, options={pattern: pair}))
    return found


def perform(manager: QueueManager, change: Change) -> None:
    """Make one change. What another manager did in the meantime is its error to tell."""
    wanted = _wanted(change)
    match change.action:
        case "create":
            manager.create(change.name, **wanted)
        case "create_macro":
            manager.create_macro(change.name, **wanted)
        case "configure":
            manager.configure(change.name, **wanted)
        case "activate":
            manager.activate(change.name)
        case "deactivate":
            manager.deactivate(change.name)
        case "defaults":
            new = {**manager.own_defaults, **wanted}
            manager.set_defaults(**{name: value for name, value in new.items() if value is not None})
        case "grant":
            for pattern, rights in wanted.items():
                manager.grant(change.name, pattern, rights)
        case "revoke":
            for pattern in wanted:
                manager.revoke(change.name, pattern)


def declared_file(root: Path) -> Path:
    """Where a root is declared; ``Misuse`` if it is not."""
    file = root / DECLARED
    if not file.is_file():
        raise Misuse(f"{root}: there is no {DECLARED} here")
    return file
