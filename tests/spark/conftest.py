"""One real Spark session for all tests with Spark: starting one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

# Quick to start: the code runs too short a time to be worth optimising.
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All in one process (``--dist loadgroup``), and with time to start Spark on a busy machine."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'penstock[spark]'")
    from penstock.spark import java, session

    try:
        java.find()
    except java.NoJava as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("spark")
    settings = {**QUICK, "spark.local.dir": folder, "spark.sql.warehouse.dir": folder / "warehouse"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        started = session("penstock-tests", master="local[2]", **settings)
        yield started
        started.stop()
