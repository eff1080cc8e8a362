"""The application that is run on Spark, too (tests/spark/test_scripts.py), by workers."""

from __future__ import annotations

from pathlib import Path

from tests.shop import Shop, app


def test_workers_bring_every_order_to_its_end(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.fill()
    shop.ask()
    shop.run(lambda: app.run(tmp_path, until_empty=True))
    shop.judge()
