"""Queue to queue with Spark is exactly once, wherever its driver is killed; and macro queue to macro queue."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock

pytest.importorskip("pyspark")

from tests.spark import steps
from tests.spark.driver import ROWS, pipe
from tests.spark.processes import Drivers
from tests.spark.thoroughness import SLOW
from tests.thoroughness import FIRST

pytestmark = pytest.mark.timeout(600)  # Spark on a busy machine takes its time

# In the order of a batch's life. All of them, in two halves for two processes; or two or three, others in each run.
CHOSEN = [steps.STEPS[::2], steps.STEPS[1::2]] if SLOW else [steps.STEPS[FIRST % 4 :: 4]]


def sent(queue: Any) -> Counter[tuple[str, bytes]]:
    return Counter((message.headers["from"], message.data) for message in queue.browse())


@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda chosen: chosen[0])
def test_the_driver_is_killed_at_each_step(spark: Any, queue: Any, tmp_path: Path, chosen: tuple[str, ...]) -> None:
    """Each driver finishes the batch in which the one before it was killed, and is killed in the next."""
    source, target = (queue(name, slots=1024, data_bytes=1 << 20) for name in ("in", "out"))
    bodies = [b"%d" % i for i in range(ROWS * len(chosen) + 30)]
    put = Counter(zip(source.put_many(bodies), bodies, strict=True))
    with Drivers(tmp_path) as drivers:
        following = drivers.prepare()
        for batch, step in enumerate(chosen):
            driver = following
            if step != chosen[-1]:
                following = drivers.prepare()
            steps.stop_at(tmp_path, step, batch)
            driver.go()
            driver.wait_for(lambda: steps.stopped(tmp_path), step)
            driver.kill()
            # It was where it should be: what is published, claimed and staged says so.
            published = batch + (step in steps.AFTER_PUBLISHING)
            assert target.qsize() == ROWS * published
            claims = [claim.claim for claim in source.claims() if claim.claim != batch + 2]  # that one is made ahead
            assert claims == [batch + 1] * (step != "acknowledged")
    pipe(spark, tmp_path).awaitTermination()
    assert sent(target) == put
    assert source.qsize() == 0 and source.stats().claimed == 0 and source.claims() == []
    assert list((target.path / "staging").iterdir()) == []
    assert steps.read_again(tmp_path)[1] == []


# In two members of three something is claimed or acknowledged that is not in the others.
OF_MEMBERS = ("between", "sunk", "acknowledged") if SLOW else ("between",)


def test_from_macro_queue_to_macro_queue_the_driver_is_killed_between_members(
    spark: Any, queue: Any, tmp_path: Path
) -> None:
    manager = penstock.QueueManager(tmp_path)
    queues = {name: queue(name, slots=256, data_bytes=1 << 20) for name in ("in.a", "in.b", "in.c", "out.a", "out.b")}
    sources, targets = list(queues.values())[:3], list(queues.values())[3:]
    manager.create_macro("in", ["in.a", "in.b", "in.c"], consuming="round-robin")
    manager.create_macro("out", ["out.a", "out.b"], producing="round-robin")
    put: Counter[tuple[str, bytes]] = Counter()
    for source in sources:
        bodies = [b"%d" % i for i in range(ROWS)]
        put += Counter(zip(source.put_many(bodies), bodies, strict=True))
    with Drivers(tmp_path) as drivers:
        following = drivers.prepare()
        for batch, step in enumerate(OF_MEMBERS, 1):
            driver = following
            if step != OF_MEMBERS[-1]:
                following = drivers.prepare()
            steps.stop_at(tmp_path, step, batch)
            driver.go()
            driver.wait_for(lambda: steps.stopped(tmp_path), step)
            driver.kill()
            if step == "between":
                assert sum(len(source.claims()) for source in sources) == 1
    pipe(spark, tmp_path).awaitTermination()
    assert sent(targets[0]) + sent(targets[1]) == put and all(target.qsize() for target in targets)
    for source in sources:
        assert source.qsize() == 0 and source.stats().claimed == 0 and source.claims() == []
    assert list((tmp_path / "out" / "staging").iterdir()) == []
    assert steps.read_again(tmp_path)[1] == []
