"""``penstock console``: a web page that shows the queues of a root. What it shows is ``penstock.console``'s."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.exits import USAGE, Failure
from penstock.cli.options import Json, examples
from penstock.cli.output import complain
from penstock.cli.roots import Host, RootPath, check_root, tell
from penstock.cli.values import span_s

INTERVAL_S_MIN = 0.1  # looking takes a part of a millisecond of each queue's lock

EXAMPLES = examples(
    "penstock console /var/lib/queues",
    "penstock console --port 9000 --interval 500ms",
    "ssh -L 8080:127.0.0.1:8080 server    # to look at a server's, which stays closed to all others",
)


def console(
    root: RootPath = Path(),
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0: any that is free.")] = 8080,
    interval: Annotated[
        float, typer.Option(parser=span_s, metavar="TIME", help="How often to look: 500ms, 2s.", show_default="2s")
    ] = 2.0,
    json: Json = False,
) -> int:
    """Show the queues of a folder in a web page: depth, rates and lateness over time, messages, dead letters.

    The page only shows: nothing can be changed through it. Whoever can reach it can read all messages, so that it
    listens on this machine alone unless --host says otherwise. What it plots it remembers only while it runs.
    """
    if interval < INTERVAL_S_MIN:
        raise typer.BadParameter(f"the interval must be at least {INTERVAL_S_MIN:g} s")
    try:
        from penstock.console.serving import bind, is_loopback, serve  # optional, and slow to import
    except ImportError as error:
        raise Failure(f"the console needs {error.name}: pip install 'penstock[console]'", USAGE) from error
    check_root(root)
    if not is_loopback(host):
        complain(f"whoever can reach {host} can read all messages here; nobody is asked for a password")
    try:
        bound = bind(host, port)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from error
    with bound:
        serve(root.absolute(), bound, interval_s=interval, ready=lambda address: tell("the console is", address, json))
    return 0
