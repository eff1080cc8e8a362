"""Scripts on Spark are exactly once, wherever the driver is killed, with either engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark")

from penstock.spark import contexts
from tests.shop import Customer, Shop
from tests.spark.processes import Drivers
from tests.spark.scriptdriver import STEPS
from tests.spark.thoroughness import SLOW

pytestmark = pytest.mark.timeout(600)

CHOSEN = [("parts", list(STEPS)), ("transformWithState", ["put", "judged"])] if SLOW else [("parts", ["written"])]


@pytest.mark.parametrize(("engine", "chosen"), CHOSEN, ids=[engine for engine, _ in CHOSEN])
def test_the_driver_is_killed_at_each_step(spark: Any, tmp_path: Path, engine: str, chosen: list[str]) -> None:
    (tmp_path / "root").mkdir()
    shop = Shop(tmp_path / "root", exclusive_keys=False)
    shop.fill()
    with Drivers(tmp_path, engine, module="tests.spark.scriptdriver") as drivers:
        following = drivers.prepare(chosen[0])
        for step, then in zip(chosen, [*chosen[1:], "none"], strict=True):
            driver, following = following, drivers.prepare(then)
            driver.go()
            assert driver.process.wait(120) == -9, (step, driver.said())
            assert json.loads((tmp_path / "root/.scripts/shop/spark/checkpoint/metadata").read_text())["id"]
            assert step in STEPS
        following.go()
        following.wait()
    found = contexts("shop", tmp_path / "root", spark=spark).collect()
    shop.judge({row.key: msgspec.json.decode(row.state, type=Customer) for row in found})
