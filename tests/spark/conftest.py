"""One real Spark session for all tests with Spark: starting one takes longer than most of them.

`make test` runs them in one process of their own: several would start a Spark each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.archive import java_options


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'penstock[spark]'")
    from penstock.spark import java, session

    try:
        java.find()
    except java.NoJava as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        settings = {
            "spark.driver.extraJavaOptions": java_options(),
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": folder / "warehouse",
        }
        started = session("penstock-tests", master="local[2]", **settings)
        yield started
        started.stop()
