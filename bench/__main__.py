"""The command line of the benchmarks: what to run, where, and where the results go."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from bench import machine, report
from bench.plan import DEFAULT, LETTERS, QUICK, TITLES, Sizes
from bench.running import Run
from bench.scenarios.measuring import WrongResult, file_system
from bench.systems import available

IN_MEMORY = ("tmpfs", "ramfs")


def main() -> int:
    options = _options()
    sizes = _sizes(options)
    systems, missing = available()
    signal.signal(signal.SIGTERM, _terminated)
    if file_system(options.dir) in IN_MEMORY:
        return _complain("the data would be in memory (tmpfs): choose a directory on a disk with --dir")
    try:
        options.dir.mkdir(parents=True, exist_ok=True)
        below = Path(tempfile.mkdtemp(prefix="run-", dir=options.dir))
    except OSError as error:
        return _complain(f"cannot use the directory for the data: {error}")
    note = machine.describe(below)
    print(report.machine_note(note, missing), flush=True)
    try:
        results = Run(systems, sizes, set(options.only), below).all()
    except KeyboardInterrupt:
        return _complain("interrupted; the data is removed", 130)
    except WrongResult as error:
        return _complain(str(error))
    finally:
        _remove(below)
    print("\n" + report.tables(results, sizes))
    _write(options.json, {"machine": note, "sizes": dataclasses.asdict(sizes), "missing": missing} | results.as_json())
    if options.markdown:
        options.markdown.write_text(report.markdown(results.verdicts()))
    if options.plot:
        return _draw(results, options.plot, note)
    return 0


def _options() -> argparse.Namespace:
    scenarios = "\n".join(
        f"  {letter}  {title.format(**dataclasses.asdict(DEFAULT))}" for letter, title in TITLES.items()
    )
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Penstock against LMDB, SQLite, litequeue, Redis, a raw file, pyzmq and multiprocessing.Queue.",
        epilog=f"scenarios:\n{scenarios}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="smaller, in under 2 minutes; the figures are coarser")
    parser.add_argument("--only", type=_letters, default=LETTERS, metavar="a,b", help="only these scenarios")
    parser.add_argument("--rounds", type=_above_0(int), help=f"default {DEFAULT.rounds}, {QUICK.rounds} with --quick")
    parser.add_argument("--stream-gb", type=_above_0(float), metavar="GB", help=f"for k; default {DEFAULT.stream_gb:g}")
    parser.add_argument("--dir", type=Path, default=Path("build/bench-data"), help="for the data; default %(default)s")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), help="default %(default)s")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="the targets as a table of docs/performance.md")
    parser.add_argument("--plot", type=Path, metavar="PATH", help="draw the rates, as docs/images/bench.png")
    return parser.parse_args()


def _letters(text: str) -> str:
    letters = text.replace(",", "").replace(" ", "")
    if not letters or set(letters) - set(LETTERS):
        raise argparse.ArgumentTypeError(f"choose from {', '.join(LETTERS)}")
    return letters


def _above_0(kind: type[int] | type[float]) -> Any:
    def number(text: str) -> float:
        value = kind(text)
        if value <= 0:
            raise argparse.ArgumentTypeError("must be above 0")
        return value

    return number


def _sizes(options: argparse.Namespace) -> Sizes:
    sizes = QUICK if options.quick else DEFAULT
    chosen = {"rounds": options.rounds, "stream_gb": options.stream_gb}
    return dataclasses.replace(sizes, **{name: value for name, value in chosen.items() if value is not None})


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"\nresults: {path}")


def _draw(results: Any, path: Path, note: dict[str, Any]) -> int:
    try:
        from bench.plot import draw
        from bench.plot_syncing import draw_syncing

        if results.syncing and not results.samples:
            draw_syncing(results, path, note)
        else:
            draw(results, path, note)
    except ImportError:
        return _complain("no plot: matplotlib is not installed")
    except ValueError as error:
        return _complain(f"no plot: {error}")
    print(f"plot: {path}")
    return 0


def _remove(below: Path) -> None:
    shutil.rmtree(below, ignore_errors=True)
    try:
        below.parent.rmdir()  # unless somebody else uses it
    except OSError:
        pass


def _terminated(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _complain(text: str, code: int = 1) -> int:
    print(f"bench: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
