"""``penstock metrics``: the figures of a root's queues for Prometheus. Which there are is ``penstock.metrics``'s."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.exits import USAGE, Failure
from penstock.cli.options import Json, examples
from penstock.cli.output import pause, say, say_json
from penstock.cli.roots import Host, RootPath, check_root, tell

PAUSE_S = 3600.0  # the server's thread does the work; this one only waits for a signal

EXAMPLES = examples(
    "penstock metrics /var/lib/queues",
    "penstock metrics --host 0.0.0.0 --port 9464",
    "penstock metrics --once > /var/lib/node_exporter/penstock.prom",
)


def metrics(
    root: RootPath = Path(),
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0: any that is free.")] = 9464,
    once: Annotated[bool, typer.Option("--once", help="Print the figures and end.")] = False,
    json: Json = False,
) -> int:
    """Serve the figures of a folder's queues for Prometheus, at /metrics.

    Queues are looked at when somebody asks. One that cannot be looked at is penstock_up 0, and the others go on.
    """
    try:
        from prometheus_client import generate_latest, start_http_server  # optional

        from penstock.metrics import registry
    except ImportError as error:
        raise Failure(f"metrics need {error.name}: pip install 'penstock[metrics]'", USAGE) from error
    check_root(root)
    figures = registry(root.absolute(), clock=time.time)
    if once and json:
        for family in figures.collect():
            for each in family.samples:
                say_json({"metric": each.name, **each.labels, "value": each.value})
        return 0
    if once:
        say(generate_latest(figures).decode().rstrip("\n"))
        return 0
    try:
        server, _ = start_http_server(port, addr=host, registry=figures)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from error
    name = f"[{host}]" if ":" in host else host
    tell("metrics are", f"http://{name}:{server.server_port}/metrics", json)
    try:
        while True:
            pause(PAUSE_S)
    finally:
        server.shutdown()
