"""Owns the program: which commands there are, and how each may end. They raise; here that becomes an exit code."""

from __future__ import annotations

import inspect
import io
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import penstock
from penstock.cli import (
    apply,
    backup,
    bench,
    cancel,
    check,
    claims,
    completion,
    console,
    create,
    doctor,
    exits,
    export,
    get,
    groups,
    import_,
    ls,
    metrics,
    move,
    peek,
    pipeline,
    publishers,
    purge,
    put,
    redrive,
    repair,
    report,
    resize,
    scripts,
    signals,
    stat,
    syncer,
    tail,
    top,
    upgrade,
    work,
)
from penstock.cli.output import complain, say

COMMANDS: tuple[ModuleType, ...] = (
    create, put, get, work, scripts, pipeline, peek, tail, ls, apply, stat, top, console, metrics, report, groups,
    cancel, purge, redrive, move, claims, publishers, check, repair, resize, upgrade, backup, export, import_, syncer,
    doctor, bench, completion,
)  # fmt: skip


class Commands(TyperGroup):
    """The group of all commands, with one way out for errors."""

    def main(self, *arguments: Any, **options: Any) -> NoReturn:
        options["standalone_mode"] = False
        _prepare_streams()
        completion.prepare()
        try:
            code = super().main(*arguments, **options)
        except Exception as error:
            if not hasattr(error, "format_message"):  # anything but the parser's own errors is a bug of ours
                raise
            code = _usage(error)
        except KeyboardInterrupt:
            code = exits.INTERRUPTED
        except exits.Terminated as end:
            code = end.code
        sys.exit(code if isinstance(code, int) else exits.OK)

    def invoke(self, ctx: Any) -> int:
        """Inside the parser's own error handling, which would answer some of these in its own way."""
        try:
            code = super().invoke(ctx)
            _flush()
            return code if isinstance(code, int) else exits.OK
        except KeyboardInterrupt:
            return exits.INTERRUPTED
        except exits.Terminated as end:
            return end.code
        except BrokenPipeError:
            _abandon_stdout()
            return exits.NO_READER
        except (exits.Failure, penstock.PenstockError, OSError, MemoryError) as error:
            complain(exits.line_of(error))
            if not _flushed():
                _abandon_stdout()
            return exits.code_of(error)


def _usage(error: Any) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "penstock"
    complain(f"{' '.join(error.format_message().split()).rstrip('.')} (see {command} --help)")
    return exits.USAGE


def _prepare_streams() -> None:
    """A name that is not valid Unicode is printed escaped rather than not at all. And the numbers of standard streams
    that are closed are taken, so that no file of a queue gets one of them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= 2:
        fd = os.dup(fd)
    os.close(fd)


def _flush() -> None:
    """The work is done: what cannot be printed now is only the answer."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise exits.Failure(
            f"done, but standard output did not take the answer: {error.strerror}", exits.SYSTEM
        ) from error


def _flushed() -> bool:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        return False
    return True


def _abandon_stdout() -> None:
    """What is still buffered can go nowhere; the interpreter would try again when it exits, and complain."""
    try:
        number = sys.stdout.fileno()
        fd = os.open(os.devnull, os.O_WRONLY)
        os.dup2(fd, number)
        os.close(fd)
    except (OSError, ValueError, AttributeError):
        pass


def _exit_codes() -> str:
    return "\n".join(["Exit codes:", *(f"  {code:>3}  {meaning}" for code, meaning in exits.MEANING.items())])


app = typer.Typer(
    cls=Commands,
    name="penstock",
    help="Durable message queues without a broker: a queue is a directory.",
    epilog=_exit_codes(),
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> int:
    if version:
        say(f"penstock {penstock.__version__} ({'compiled' if penstock.compiled else 'interpreted'})")
        raise typer.Exit()
    if context.invoked_subcommand is None:
        say(context.get_help())
        raise typer.Exit(exits.USAGE)
    return exits.OK


def _paragraphs(function: Callable[..., int]) -> str:
    """A command's help, a line for each paragraph: where they break is a matter of the terminal, not of the source."""
    return "\n\n".join(" ".join(each.split()) for each in inspect.cleandoc(function.__doc__ or "").split("\n\n"))


def _register() -> None:
    for module in COMMANDS:
        name = module.__name__.rpartition(".")[2]
        function: Callable[..., int] = getattr(module, name)
        name = name.rstrip("_")  # import is a word of Python's
        app.command(name, help=_paragraphs(function), epilog=module.EXAMPLES)(function)


_register()


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; its exit code."""
    signals.listen()
    try:
        app(args=None if arguments is None else list(arguments), prog_name="penstock")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else exits.OK
    return exits.OK
