"""A pipeline is exactly once, wherever the driver is killed: each message is in its sinks and tables once, or a dead
letter, and not both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.spark import pipedriver
from tests.spark.processes import Drivers
from tests.spark.thoroughness import SLOW

pytestmark = pytest.mark.timeout(900)

CHOSEN = (
    [("plain", list(pipedriver.STEPS)), ("script", list(pipedriver.SCRIPT_STEPS))] if SLOW else [("script", ["tabled"])]
)


@pytest.mark.parametrize(("kind", "chosen"), CHOSEN, ids=[kind for kind, _ in CHOSEN])
def test_the_driver_of_a_pipeline_is_killed_at_each_step(
    spark: Any, tmp_path: Path, kind: str, chosen: list[str]
) -> None:
    pipedriver.fill(tmp_path)
    with Drivers(tmp_path, kind, module="tests.spark.pipedriver") as drivers:
        following = drivers.prepare(chosen[0])
        for then in [*chosen[1:], "none"]:
            driver, following = following, drivers.prepare(then)
            driver.go()
            assert driver.process.wait(240) == -9, driver.said()
        following.go()
        following.wait()
    pipedriver.judge(spark, tmp_path, kind)
