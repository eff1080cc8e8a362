"""One real Spark session for all tests with Spark: starting one takes longer than most of them.

`make test` runs them in two processes of their own: each of them starts a Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import run, small  # noqa: F401 (for those who call the program)
from tests.conftest import Queues
from tests.spark.archive import java_options
from tests.spark.processes import PATHS


@pytest.fixture(scope="session")
def needs_java() -> None:
    from penstock.spark import java

    try:
        java.find()
    except java.NoJava as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, needs_java: None) -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'penstock[spark]'")
    from penstock.spark import session

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("PYTHONPATH", PATHS)
        settings = {
            "spark.driver.extraJavaOptions": java_options(),
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": folder / "warehouse",
        }
        started = session("penstock-tests", master="local[2]", **settings)
        yield started
        started.stop()


@pytest.fixture
def queries(queue: Queues) -> Iterator[Any]:
    """Makes queries on queues, without Spark, and ends them before the queues are checked."""
    from tests.spark.queries import Query

    made: list[Query] = []

    def make(of: Any, log: list[str] | None = None, **options: Any) -> Query:
        query = Query(of.path, log, **options)
        made.append(query)
        return query

    yield make
    for query in made:
        query.die()
