"""Owns objects that are named at a command line or in a file: ``package.module:object``. Never calls one."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any


def named(name: str) -> Any:
    """As the program would import it that was started here."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return imported(name)


def imported(name: str) -> Any:
    module, _, inside = name.partition(":")
    if not module or not inside:
        raise ValueError(f"{name!r} is not module:name")
    found: Any = importlib.import_module(module)
    for part in inside.split("."):
        found = getattr(found, part)
    return found
