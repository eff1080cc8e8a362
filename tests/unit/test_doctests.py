"""The examples in the docstrings work. Those that need a queue find an unused ``path``."""

import doctest
import importlib
import importlib.util
import pkgutil
from pathlib import Path

import pytest

import penstock

OPTIONAL = {
    "penstock.spark": "pyspark",
    "penstock.console": "uvicorn",
    "penstock.metrics": "prometheus_client",
    "penstock.tracing": "opentelemetry",
}


def _module_names() -> list[str]:
    # The command line's needs are optional, and its examples are shell commands. So are those of what is listed here.
    left_out = ["penstock.cli", *(module for module, needs in OPTIONAL.items() if not importlib.util.find_spec(needs))]
    found = pkgutil.walk_packages(penstock.__path__, "penstock.", onerror=lambda name: None)
    return ["penstock", *sorted(m.name for m in found if not m.name.startswith(tuple(left_out)))]


def _source_examples(name: str) -> list[doctest.DocTest]:
    """Examples of a module. Compiled functions have docstrings too, but doctest does not take them for functions."""
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = finder.find(module, name)
    seen = {test.docstring for test in tests}
    for attribute, value in vars(module).items():
        docstring = getattr(value, "__doc__", None)
        ours = getattr(value, "__module__", None) == name
        if ours and isinstance(docstring, str) and ">>>" in docstring and docstring not in seen:
            tests.append(doctest.DocTestParser().get_doctest(docstring, vars(module), f"{name}.{attribute}", name, 0))
    return [test for test in tests if test.examples]


EXAMPLES = [(test.name, test) for name in _module_names() for test in _source_examples(name)]


@pytest.mark.parametrize("test", [test for _, test in EXAMPLES], ids=[name for name, _ in EXAMPLES])
def test_the_example_in_the_docstring_of(test: doctest.DocTest, tmp_path: Path) -> None:
    test.globs = {**test.globs, "path": tmp_path / "queue"}
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)


def test_there_are_examples_of_every_first_step() -> None:
    names = {name for name, _ in EXAMPLES}
    assert {"penstock.timequeue.timequeue.TimeQueue", "penstock.timequeue.timequeue.TimeQueue.put"} <= names
