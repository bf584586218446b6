"""A small web server: the page of a run, and what changes of it as server-sent events."""

from __future__ import annotations

import json
import socket
from asyncio import sleep
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from errno import EADDRINUSE
from time import monotonic

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, StreamingResponse
from starlette.routing import Route

from srfca.errors import InputError
from srfca.watch.source import Source

INTERVAL = 0.5
"""Seconds between two looks at the files."""
KEEP_ALIVE = 15.0
"""Seconds after which an idle connection gets a comment."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: An address of this machine.
        port: 0 takes a free one.

    Raises:
        InputError: If the port is taken, or cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == EADDRINUSE:
            raise InputError(
                f"port {port} of {host} is taken: choose another with --port (0 is any free one)"
            ) from error
        raise InputError(f"cannot listen on port {port} of {host}: {error}") from error


def address(listening: socket.socket) -> str:
    """Return the address of a server for a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def serve(source: Source, listening: socket.socket) -> None:
    """Serve a page until the process is interrupted.

    Args:
        source: What is watched.
        listening: Where browsers connect.
    """
    with suppress(KeyboardInterrupt):  # uvicorn ends cleanly, and then raises it again
        make_server(source, listening).run(sockets=[listening])


def make_server(source: Source, listening: socket.socket) -> uvicorn.Server:
    """Return the server of a page."""
    server: uvicorn.Server
    local = listening.getsockname()[0] in LOOPBACK
    app = make_app(source, lambda: server.should_exit, local)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", ws="none",
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = uvicorn.Server(config)
    return server


def make_app(source: Source, is_ending: Callable[[], bool], local: bool = True) -> Starlette:
    """Return the web application.

    Args:
        source: What is watched.
        is_ending: Whether the server is about to end, so that connections should too.
        local: Answer only requests to names of this machine, so that a page of another site
            cannot read this one through a name of its own that it points here.
    """

    async def index(request: Request) -> HTMLResponse:
        return HTMLResponse(await run_in_threadpool(source.page), headers=_HEADERS)

    async def content(request: Request) -> JSONResponse:
        return JSONResponse(await run_in_threadpool(source.content), headers=_HEADERS)

    async def events(request: Request) -> StreamingResponse:
        return StreamingResponse(
            _events(source, is_ending), media_type="text/event-stream", headers=_HEADERS
        )

    hosts = ["localhost", "127.0.0.1", "[::1]"] if local else ["*"]
    return Starlette(
        routes=[Route("/", index), Route("/content", content), Route("/events", events)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)],
    )


async def _events(source: Source, is_ending: Callable[[], bool]) -> AsyncIterator[str]:
    """Return an event whenever what is seen of the run has changed."""
    sent, when = "", monotonic()
    while not is_ending():
        text = await run_in_threadpool(_status, source)
        if text != sent:
            sent, when = text, monotonic()
            yield f"event: status\ndata: {text}\n\n"
        elif monotonic() - when > KEEP_ALIVE:
            when = monotonic()
            yield ": still here\n\n"
        await sleep(INTERVAL)


def _status(source: Source) -> str:
    look = source.look()
    return json.dumps(
        {"html": look.box(), "title": look.live.title, "key": look.key, "page": look.title}
    )
