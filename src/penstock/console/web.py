"""Owns the web's side of the console: addresses, headers, what an error becomes. All of it is reading: there is no way
to change a queue here, and no address takes anything but GET and HEAD.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console import answers
from penstock.console.watching import Watch
from penstock.errors import Misuse, PenstockError, QueueNotFound

# Everything comes from here and nothing from elsewhere; a body that got past the escaping would still do nothing.
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)

KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Json(Response):
    """ASCII, so that a path that is no valid Unicode can be in it too."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Guard:
    """Around everything: headers on each answer, and only names that are ours. A page of another site whose name was
    made to lead here has that name in its requests, and gets nothing."""

    def __init__(self, app: Any, *, names: tuple[str, ...] | None) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def guarded(event: MutableMapping[str, Any]) -> None:
            if event["type"] == "http.response.start":
                event["headers"] = [*event.get("headers", ()), *HEADERS]
            await send(event)

        app = self._app if self._is_ours(scope) else Json({"error": "this is not a name of this console"}, 403)
        await app(scope, receive, guarded)

    def _is_ours(self, scope: Scope) -> bool:
        if self._names is None:
            return True
        host: str = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
        name, _, port = host.rpartition(":")
        return (name if port.isdigit() else host) in self._names


def make(watch: Watch, *, names: tuple[str, ...] | None = LOOPBACK_NAMES) -> Guard:
    """The application. ``names``: hosts by which it may be asked; None: any."""

    async def overview(request: Request) -> Response:
        query = request.query_params
        return Json(
            answers.overview(
                watch,
                find=query.get("find", "")[:200],
                sort=query.get("sort", "name"),
                skip=_whole(request, "skip", 0),
                limit=_whole(request, "limit", 50),
            )
        )

    async def queue(request: Request) -> Response:
        return Json(answers.queue(watch, request.path_params["name"]))

    async def history(request: Request) -> Response:
        span_s = min(max(_whole(request, "span", 300), 10), answers.SPAN_S_MAX)
        return Json(answers.history(watch, request.path_params["name"], span_s=span_s))

    async def messages(request: Request) -> Response:
        return Json(
            await run_in_threadpool(
                answers.messages,
                watch,
                request.path_params["name"],
                state=_state(request),
                skip=_whole(request, "skip", 0),
                limit=_whole(request, "limit", 25),
            )
        )

    async def message(request: Request) -> Response:
        name, id = request.path_params["name"], request.path_params["id"]
        found = await run_in_threadpool(answers.message, watch, name, id, state=_state(request))
        return Json(found, 404 if "gone" in found else 200)

    app = Starlette(
        routes=[
            *_files(),
            Route("/api/queues", overview),
            Route("/api/queues/{name}", queue),
            Route("/api/queues/{name}/history", history),
            Route("/api/queues/{name}/messages", messages),
            Route("/api/queues/{name}/messages/{id}", message),
        ],
        exception_handlers={PenstockError: _failed, OSError: _failed, HTTPException: _refused},
    )
    return Guard(app, names=names)


def _files() -> list[Route]:
    """The page, and what it is made of."""
    routes = []
    for file in sorted(resources.files("penstock.console").joinpath("static").iterdir(), key=lambda each: each.name):
        end = "." + file.name.rpartition(".")[2]
        if end in KINDS:
            address = "/" if file.name == "index.html" else f"/{file.name}"
            routes.append(Route(address, _serving(file.read_bytes(), KINDS[end])))
    return routes


def _serving(content: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        return Response(content, media_type=kind)

    return serve


def _whole(request: Request, name: str, otherwise: int) -> int:
    text = request.query_params.get(name, str(otherwise))
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise HTTPException(400, f"{name} must be a whole number, not {text[:40]!r}")
    return int(text)


def _state(request: Request) -> str:
    state = request.query_params.get("state", "waiting")
    if state not in answers.STATES:
        raise HTTPException(400, f"state must be one of {', '.join(answers.STATES)}, not {state[:40]!r}")
    return state


async def _failed(request: Request, error: Exception) -> Response:
    """A queue that is not there, or that cannot be looked at now: the page says so, and goes on."""
    code = 404 if isinstance(error, QueueNotFound) else 400 if isinstance(error, Misuse) else 503
    return Json({"error": str(error)}, code)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Json({"error": error.detail}, error.status_code, headers=error.headers)
