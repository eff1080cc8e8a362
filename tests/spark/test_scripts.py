"""Scripts on a real Spark: the application of tests/shop.py ends as it does with workers; contexts as a table, and
moved from workers to Spark; what is refused."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import signal
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock import Misuse, QueueNotFound

pytest.importorskip("pyspark")
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from penstock.scripts import App
from penstock.spark import contexts, move_contexts, run_scripts
from penstock.spark.bykeys import parts_of
from penstock.spark.scripting.place import Place
from tests.shop import CUSTOMERS, Customer, Shop, app
from tests.spark.archive import java_options
from tests.spark.processes import Started

pytestmark = pytest.mark.timeout(300)


def run(spark: Any, root: Path, of: Any = app, **options: Any) -> None:
    run_scripts(of, root, spark=spark, available_now=True, **options).awaitTermination()


def table(spark: Any, root: Path) -> dict[str, Customer]:
    rows = contexts(app, root, spark=spark).collect()
    return {row.key: msgspec.json.decode(row.state, type=Customer) for row in rows}


@pytest.mark.parametrize("engine", ["parts", "transformWithState"])
def test_the_shop_ends_on_spark_as_it_does_with_workers(spark: Any, tmp_path: Path, engine: str) -> None:
    shop = Shop(tmp_path, exclusive_keys=False)
    shop.fill()
    shop.ask()
    shop.run(lambda: run(spark, tmp_path, engine=engine, partitions=None if engine != "parts" else 3))
    shop.judge(table(spark, tmp_path))
    if engine == "parts":
        assert dict(app.contexts(tmp_path)) == shop.expected()  # without Spark, too


def test_contexts_move_from_workers_to_spark_and_the_rest_is_done_there(spark: Any, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.fill()
    with app.worker(tmp_path, batch=5) as worker:
        worker.step()
        worker.step()
        with pytest.raises(Misuse, match="a worker is at work"):
            move_contexts(app, tmp_path, spark=spark)
    with pytest.raises(Misuse, match=r"move_contexts\(app, root\)"):
        run_scripts(app, tmp_path, spark=spark)
    before = dict(app.contexts(tmp_path))
    assert len(before) == 7 and table(spark, tmp_path) == before
    assert move_contexts(app, tmp_path, spark=spark, partitions=3) == 7
    assert dict(app.contexts(tmp_path)) == before and contexts("shop", tmp_path, spark=spark).count() == 7
    timers = contexts(app, tmp_path, spark=spark).filter(f"key = '{CUSTOMERS[0]}'").collect()[0].timers
    assert list(timers) == ["remind"]
    with pytest.raises(Misuse, match="Spark has the contexts"):
        app.run(tmp_path, until_empty=True)
    shop.run(lambda: run(spark, tmp_path))
    shop.judge()


def test_parts_of_keys_are_those_of_sparks_own_hash(spark: Any) -> None:
    keys = [None, "", *("äöü€😀 key"[:n] * times for n in range(1, 10) for times in (1, 2, 7)), *map(str, range(200))]
    for count in (1, 2, 7, 10_000):
        part = F.expr(f"pmod(hash(key), {count})").alias("part")
        rows = spark.createDataFrame([(key,) for key in keys], "key string").select("key", part).collect()
        assert [row.part for row in rows] == parts_of(keys, count).tolist()


def test_a_macro_queue_is_the_input_and_full_queues_get_what_waits_for_them(spark: Any, tmp_path: Path) -> None:
    small = {"depth": 40, "data_bytes": 1 << 16, "durability": "relaxed"}
    echo = App("echo", input="both")

    @echo.script("say")
    def say(context: Any, message: Any) -> None:
        context.state["said"] = context.state.get("said", 0) + 1
        context.put(message.body, type="echo")

    @echo.script("echo")
    def echoed(context: Any, message: Any) -> None:
        context.state["heard"] = context.state.get("heard", 0) + 1

    with penstock.QueueManager(tmp_path) as manager:
        for name in ("one", "two"):
            manager.create(name, **small)
        manager.create_macro("both", ["one", "two"])
        with manager.open("both") as both:
            both.put_many(range(40), type="say", key="a")
            both.put_many(range(40), type="say", key="b")
            for _ in range(20):
                run(spark, tmp_path, echo)
                if dict(echo.contexts(tmp_path)) == {key: {"said": 40, "heard": 40} for key in "ab"}:
                    break
                time.sleep(0.2)
            else:
                raise AssertionError(dict(echo.contexts(tmp_path)))
            assert both.qsize() == 0


def test_what_is_wrong_is_said_before_anything_runs(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(QueueNotFound, match="no such folder"):
        run_scripts(app, tmp_path / "none", spark=spark)
    with pytest.raises(Misuse, match="engine must be"):
        run_scripts(app, tmp_path, spark=spark, engine="fast")
    with pytest.raises(Misuse, match="partitions must be"):
        run_scripts(app, tmp_path, spark=spark, partitions=0)
    with pytest.raises(Misuse, match="not 'shop'"):
        run_scripts("shop", tmp_path, spark=spark)  # type: ignore[arg-type]
    with pytest.raises(QueueNotFound, match="orders: there is no such queue"):
        run_scripts(app, tmp_path, spark=spark)
    with penstock.QueueManager(tmp_path) as manager:
        manager.create(str(app.input))
    with pytest.raises(Misuse, match="option maxRows must be"):
        run_scripts(app, tmp_path, spark=spark, max_rows=0)
    with pytest.raises(Misuse, match="unknown option nonsense"):
        run_scripts(app, tmp_path, spark=spark, nonsense=1)
    assert not (tmp_path / ".scripts").exists()
    with pytest.raises(QueueNotFound, match="no context of an app"):
        contexts("shop", tmp_path, spark=spark)
    with pytest.raises(QueueNotFound, match="has stored a context"):
        move_contexts(app, tmp_path, spark=spark)
    Place(tmp_path, "shop").settle_on("parts", 2, "orders", 2)
    with pytest.raises(Misuse, match=r"partitions=2, which stays as it is; not 3"):
        run_scripts(app, tmp_path, spark=spark, partitions=3)


def test_a_checkpoint_that_is_older_than_the_contexts_is_refused_and_a_new_one_goes_on(
    spark: Any, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, exclusive_keys=False, orders=1)
    shop.fill()
    run(spark, tmp_path, max_rows=5)
    checkpoint = Place(tmp_path, "shop").checkpoint
    shutil.copytree(checkpoint, tmp_path / "old")
    with shop.manager.open("orders") as queue:
        while queue.qsize():
            run(spark, tmp_path, max_rows=5)
        queue.put({"item": "lamp"}, type="order", key="new")
        shutil.rmtree(checkpoint)
        shutil.copytree(tmp_path / "old", checkpoint)
        with pytest.raises(StreamingQueryException, match="ClaimLost"):
            run(spark, tmp_path)
        with pytest.raises(StreamingQueryException, match="is stored already"):
            run(spark, tmp_path, onLostClaim="skip")
        shutil.rmtree(checkpoint)
        run(spark, tmp_path)
    found = dict(app.contexts(tmp_path))
    assert found.pop("new").orders == ["lamp"] and found == shop.expected()
    shop.manager.close()


def test_scripts_may_be_in_an_archive_that_spark_hands_to_its_processes(spark: Any, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr(
            "packed_scripts.py",
            "from penstock.scripts import App\n"
            "app = App('packed', input='entries')\n"
            "@app.script('add')\n"
            "def add(context, message):\n"
            "    context.state['sum'] = context.state.get('sum', 0) + message.body\n",
        )
    spark.sparkContext.addPyFile(str(tmp_path / "packed.zip"))
    packed = importlib.import_module("packed_scripts").app
    with penstock.QueueManager(tmp_path) as manager:
        manager.create("entries", depth=64, data_bytes=1 << 16, durability="relaxed")
        with manager.open("entries") as queue:
            queue.put_many(range(10), type="add", key="a")
            run(spark, tmp_path, packed)
            assert queue.qsize() == 0
    assert dict(packed.contexts(tmp_path)) == {"a": {"sum": 45}}


def test_the_command_line_runs_an_app_on_spark_and_tells_of_each_batch(needs_java: None, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    shop = Shop(tmp_path / "root", exclusive_keys=False, orders=1)
    shop.fill()
    command = ["scripts", "run", "tests.shop:app", "--root", str(shop.root), "--spark", "--master", "local[2]"]
    quick = {"JAVA_TOOL_OPTIONS": java_options()}
    driver = Started([sys.executable, "-m", "penstock", *command, "--json"], tmp_path / "said", **quick)
    with shop.manager.open("orders") as queue:
        driver.wait_for(lambda: queue.qsize() == queue.stats().claimed == 0, "the end")
    driver.process.send_signal(signal.SIGINT)
    assert driver.process.wait(60) == 130, driver.said()
    said = [json.loads(each) for each in driver.said().splitlines() if each.startswith("{")]
    assert said and {each["event"] for each in said} == {"batch"} and sum(each["messages"] for each in said) >= 14
    assert "penstock/cli" not in driver.said(), "a trace of ours; Spark's own processes may leave one when they end"
    shop.judge()


def test_the_tutorial_of_scripts_on_spark_can_be_followed_to_the_end(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parents[2] / "docs/scripts-on-spark.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "visits.py").write_text(blocks[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    spark.sparkContext.addPyFile(str(tmp_path / "visits.py"))
    names: dict[str, Any] = {"__name__": "tutorial"}
    for block in blocks[1:]:
        exec(compile(block, "tutorial.py", "exec", dont_inherit=True), names)
    names["manager"].close()
    assert capsys.readouterr().out == "".join(re.findall(r"```text\n(.*?)```", text, re.DOTALL))
