"""``penstock apply``: make the queues of a folder as its ``penstock.toml`` says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from penstock.cli.exits import NO_QUEUE, Failure
from penstock.cli.options import BUSY_S, Busy, Json, examples
from penstock.cli.output import say, say_json
from penstock.manager import QueueManager
from penstock.manager.declared import Change, declared_file, perform, plan, read_declared

EXAMPLES = examples("penstock apply /var/lib/queues --dry-run", "penstock apply /var/lib/queues --json")

DONE = {
    "create": "created",
    "create_macro": "created",
    "configure": "changed",
    "activate": "activated",
    "deactivate": "deactivated",
    "defaults": "defaults for new queues",
    "grant": "granted to",
    "revoke": "revoked from",
    "undeclared": "not declared; it stays as it is",
}


def apply(
    root: Annotated[
        Path, typer.Argument(metavar="ROOT", help="The folder of the queues.", show_default="here")
    ] = Path(),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    busy: Busy = BUSY_S,
    json: Json = False,
) -> int:
    """Make the queues, defaults and permissions of a folder as the penstock.toml in it declares them.

    Shows each change, as it is made. Queues whose options or sizes change must not be open elsewhere. Nothing is
    deleted: a queue that is not declared is reported. What is so already is left alone: twice is as good as once.
    """
    if not root.is_dir():
        raise Failure(f"{root}: {'not a folder' if root.exists() else 'there is no such folder'}", NO_QUEUE)
    declared = read_declared(declared_file(root))
    with QueueManager(root, busy_s=busy) as manager:
        changes = plan(manager, declared)
        for change in changes:
            if not dry_run:
                perform(manager, change)
            _report(change, dry_run, json)
    if not json and all(change.action == "undeclared" for change in changes):
        say(f"{root}: all is as declared")
    return 0


def _report(change: Change, dry_run: bool, json: bool) -> None:
    if json:
        say_json({**msgspec.to_builtins(change), "done": not dry_run and change.action != "undeclared"})
        return
    would = "would be " if dry_run and change.action != "undeclared" else ""
    options = [_option(name, *pair) for name, pair in change.options.items()]
    if change.action in ("grant", "revoke"):
        say(f"{would}{DONE[change.action]} {change.name}: {', '.join(options)}")
    elif change.action == "defaults":
        say(f"{'would become ' if dry_run else ''}{DONE[change.action]}: {', '.join(options)}")
    else:
        say(f"{change.name}: {would}{DONE[change.action]}{': ' if options else ''}{', '.join(options)}")


def _option(name: str, before: Any, after: Any) -> str:
    shown = msgspec.to_builtins((before, after))
    words = [" ".join(map(_word, each)) if isinstance(each, list) else str(each) for each in shown]
    if name == "mode":
        words = ["nothing" if each is None else f"0o{each:o}" for each in (before, after)]
    if before is None:
        return f"{name} = {words[1]}"
    return f"{name} = {words[1] if after is not None else 'nothing'} (was {words[0]})"


def _word(value: Any) -> str:
    """Of a list: members of a macro queue are a name and a priority."""
    return f"{value['name']}:{value['priority']}" if isinstance(value, dict) else str(value)
