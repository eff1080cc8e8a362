"""A driver of the application of tests/shop.py: ``python -m tests.spark.scriptdriver <folder> <engine> <step>``.

It begins when it is told to, by a line on its standard input. At the step, once it gets there, it kills itself and its
Java; with ``none`` it goes on until nothing is left.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from penstock.spark import run_scripts
from penstock.spark.scripting.batches import Batches
from penstock.spark.scripting.batchstore import BatchStore
from tests.shop import Shop, app
from tests.spark.driver import start

# In the driver, of a batch: what the tasks did is not written down yet, is, is put, is said of its messages.
STEPS = {
    "collected": (BatchStore, "post_batch", False),
    "written": (BatchStore, "post_batch", True),
    "put": (Batches, "_judge", False),
    "judged": (Batches, "_judge", True),
}


def kill_at(owner: Any, name: str, after: bool) -> None:
    """Whoever gets to the call of this function, or to its end, is killed."""
    real: Callable[..., Any] = getattr(owner, name)

    def killed(*given: Any) -> Any:
        result = real(*given) if after else None
        os.killpg(0, signal.SIGKILL)
        return result

    setattr(owner, name, killed)


def main(folder: Path, engine: str, step: str) -> None:
    spark = start(folder)
    sys.stdin.readline()
    if step != "none":
        kill_at(*STEPS[step])
    shop = Shop.__new__(Shop)
    shop.manager = penstock.QueueManager(folder / "root")
    shop.run(
        lambda: run_scripts(
            app, folder / "root", spark=spark, available_now=True, engine=engine, max_rows=20
        ).awaitTermination()
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:4])
