"""``penstock ls``: the queues below a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

import penstock
from penstock.cli.exits import NO_QUEUE, Failure, line_of
from penstock.cli.opening import glance_any, is_macro
from penstock.cli.options import Json, examples
from penstock.cli.output import console, say_json, table
from penstock.cli.values import failures, readable_bytes
from penstock.manager import State
from penstock.manager.directory import ENTRY, describe, is_entry
from penstock.manager.macrostats import MacroStats
from penstock.store.files import KERNEL, NOTIFY, QUEUE_JSON

BUSY_S = 1.0  # one queue that is stuck shall not hold up the list of the others

EXAMPLES = examples("penstock ls", "penstock ls /var/lib/queues --json")


def ls(
    root: Annotated[Path, typer.Argument(metavar="ROOT", help="The folder to look in.", show_default="here")] = Path(),
    json: Json = False,
) -> int:
    """List the queues in a folder and below, with what they hold. Hidden folders are left out."""
    if not root.is_dir():
        raise Failure(f"{root}: {'not a folder' if root.exists() else 'there is no such folder'}", NO_QUEUE)
    rows = table(
        "queue", "state", "waiting", "pending", "slots", "used", "of", "uuid", "",
        numbers=("waiting", "pending", "slots", "used", "of"), whole=("queue",),
    )  # fmt: skip
    for path in queues(root):
        found = _look(path)
        if json:
            say_json(found)
        elif "error" in found:
            rows.add_row(str(path), found["state"], "", "", "", "", "", found["uuid"] or "", found["error"])
        else:
            rows.add_row(
                str(path),
                found["state"],
                str(found["waiting"]),
                str(found["pending"]),
                str(found["slots"]),
                readable_bytes(found["used_bytes"] + found["spilled_bytes"]),
                readable_bytes(found["data_bytes"]),
                found["uuid"],
                failures(found.get("failed", {})),
            )
    if rows.row_count:
        console().print(rows)
    return 0


def queues(root: Path) -> Iterator[Path]:
    """Directories of queues, sorted. What is inside one is its own business."""
    for folder, names, files in os.walk(root):
        if _is_queue(Path(folder), names, files):
            names.clear()
            yield Path(folder)
        else:
            names[:] = sorted(name for name in names if not name.startswith("."))


def _is_queue(path: Path, names: list[str], files: list[str]) -> bool:
    """Also one that is damaged. A file of another program that has a name of ours makes no queue."""
    if NOTIFY in names and (ENTRY in files or KERNEL in files):
        return True
    return (QUEUE_JSON in files and is_entry(path)) or (ENTRY in files and is_macro(path))


def _known(path: Path) -> dict[str, Any]:
    """What a manager of the folder that it is in knows of it."""
    entry = describe(Path(os.path.abspath(path)))
    state = State.CONFIGURING if entry.configuring else State.CONFIGURED if entry.active else "inactive"
    return {"name": entry.name, "uuid": entry.uuid, "state": state}


def _look(path: Path) -> dict[str, Any]:
    try:
        stats = glance_any(path, busy_s=BUSY_S).stats
    except (penstock.PenstockError, OSError) as error:
        return {"path": os.path.abspath(path), **_known(path), "state": State.FAILED, "error": line_of(error)}
    return {
        "path": stats.path,
        **_known(path),
        "waiting": stats.waiting,
        "pending": stats.pending,
        "slots": stats.slots,
        "used_bytes": stats.used_bytes,
        "spilled_bytes": stats.spilled_bytes,
        "data_bytes": stats.data_bytes,
    } | ({"failed": stats.failed} if isinstance(stats, MacroStats) else {})
