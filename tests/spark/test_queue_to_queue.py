"""Queue to queue with Spark is exactly once, wherever its driver is killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.spark import steps
from tests.spark.driver import ROWS, pipe
from tests.spark.processes import Drivers
from tests.spark.thoroughness import SLOW

pytestmark = pytest.mark.timeout(600)  # Spark on a busy machine takes its time

# One for each part of the two protocols; the rest, in the order of a batch's life, where there is time for them.
CHOSEN = steps.STEPS if SLOW else ("claimed", "reading", "committing", "sunk", "acknowledged")


def sent(queue: Any) -> Counter[tuple[str, bytes]]:
    return Counter((message.headers["from"], message.data) for message in queue.browse())


def test_the_driver_is_killed_at_each_step(spark: Any, queue: Any, tmp_path: Path) -> None:
    """Each driver finishes the batch in which the one before it was killed, and is killed in the next."""
    source, target = (queue(name, slots=1024, data_bytes=1 << 20) for name in ("in", "out"))
    bodies = [b"%d" % i for i in range(ROWS * len(CHOSEN) + 30)]
    put = Counter(zip(source.put_many(bodies), bodies, strict=True))
    with Drivers(tmp_path) as drivers:
        following = drivers.prepare()
        for batch, step in enumerate(CHOSEN):
            driver = following
            if step != CHOSEN[-1]:
                following = drivers.prepare()
            steps.stop_at(tmp_path, step, batch)
            driver.go()
            driver.wait_for(lambda: steps.stopped(tmp_path), step)
            driver.kill()
            # It was where it should be: what is published, claimed and staged says so.
            published = batch + (step in steps.AFTER_PUBLISHING)
            assert target.qsize() == ROWS * published
            assert [claim.claim for claim in source.claims()] == [batch + 1] * (step != "acknowledged")
    pipe(spark, tmp_path).awaitTermination()
    assert sent(target) == put
    assert source.qsize() == 0 and source.stats().claimed == 0 and source.claims() == []
    assert list((target.path / "staging").iterdir()) == []
    assert steps.read_again(tmp_path)[1] == []
