from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Queues
from tests.fault.processes import Child


@pytest.fixture
def start(path: Path, queue: Queues) -> Iterator[Callable[..., Child]]:
    """``start(work, *arguments)`` runs ``work(say, *arguments)`` in another process; none is left when the test ends.

    It comes after the queues, so that they are checked when all others are gone.
    """
    children: list[Child] = []

    def begin(work: Callable[..., Any], *arguments: Any) -> Child:
        children.append(Child(work, *arguments))
        return children[-1]

    yield begin
    for child in children:
        child.end()
