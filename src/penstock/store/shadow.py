"""What the compiled modules need of the ``cython`` module when they run interpreted and Cython is not installed."""

from typing import Any

compiled = False


def cclass(kind: type[Any]) -> type[Any]:
    return kind


no_gc = cclass
