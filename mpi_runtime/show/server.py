"""The small server of `mpi-runtime view`: one page, which asks once a second for what has changed.

It belongs to the user who has started it, listens on 127.0.0.1 alone, and ends with Ctrl-C. Another user of the host
can connect, and a page from elsewhere can make a browser connect, so:

- each request must have the token of the address;
- the header Host must name this address, or a page of another name that leads here could read the answers;
- data goes into the page as JSON and as text of elements, never as HTML, and the page may run its own script only.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from mpi_runtime.show import metrics
from mpi_runtime.show.page import SCRIPTS, Block, Document, as_json, html_page

SAMPLE_S = 1.0
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


UNKNOWN = {"name": "mpi_runtime", "pill": ["warn", "Problem"], "meta": [], "colours": {}}
"""The state of a page whose source has never answered."""


class Source(Protocol):
    """What a page is about."""

    def sample(self) -> bool:
        """Look once. Return whether anything may still change."""

    def document(self) -> Document:
        """The page now."""

    def detail(self, block: str, id: str) -> list[Block]:
        """What a row opens."""

    def metrics(self) -> str:
        """The numbers now, as OpenMetrics text."""

    def stack(self, host: str, pid: int) -> str:
        """The stacks of a process, or why they cannot be read."""


Answer = Callable[[Request], Awaitable[Response]]


class Viewer:
    """Serves the page of one source."""

    def __init__(self, source: Source, token: str, hosts: set[str]) -> None:
        """Serve requests with this token, for one of these hosts."""
        self._source = source
        self._token = token
        self._hosts = hosts
        self._state: dict[str, object] = {}
        self._blocks: dict[str, tuple[int, str]] = {}
        """By id: the number of the look that has found a block, and the block as JSON."""
        self._number = 0
        """Counts the looks at the source."""

    def app(self) -> Starlette:
        """The application."""
        routes = [
            Route("/", self._guarded(self._page)),
            Route("/changes", self._guarded(self._changes)),
            Route("/detail", self._guarded(self._detail)),
            Route("/stack", self._guarded(self._stack), methods=["POST"]),
            Route("/metrics", self._guarded(self._metrics)),
        ]
        return Starlette(routes=routes)

    def _guarded(self, answer: Answer) -> Answer:
        async def guarded(request: Request) -> Response:
            given = request.query_params.get("token", "")
            if request.headers.get("host", "") not in self._hosts:
                return PlainTextResponse("this address is not that of the page", 403, HEADERS)
            if not secrets.compare_digest(given.encode(), self._token.encode()):
                return PlainTextResponse(
                    "the token is missing or wrong: use the address that `mpi-runtime view` printed", 403, HEADERS
                )
            response = await answer(request)
            response.headers.update(HEADERS)
            return response

        return guarded

    async def _page(self, _: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        text = html_page("mpi_runtime", scripts=(*SCRIPTS, "live.js"), attributes=f' nonce="{nonce}"')
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return HTMLResponse(text, headers={"Content-Security-Policy": policy})

    async def _changes(self, request: Request) -> Response:
        """What has changed since an answer with this number: the page asks once a second.

        A stream of events would hold a connection, and browsers have six for each address: the seventh tab would wait.
        """
        given = request.query_params.get("since", "")
        since = int(given) if given.isdecimal() and len(given) < 12 else 0
        if since >= self._number:
            return Response(as_json({"number": self._number}), media_type="application/json")
        changed = ",".join(text for number, text in self._blocks.values() if number > since)
        head = as_json({**self._state, "order": list(self._blocks)})
        text = f'{{"number":{self._number},"head":{head},"blocks":[{changed}]}}'
        return Response(text, media_type="application/json")

    async def _detail(self, request: Request) -> Response:
        block, id = request.query_params.get("block", ""), request.query_params.get("id", "")
        try:
            found = await run_in_threadpool(self._source.detail, block, id)
        except Exception as error:  # whatever the job answers: the page shows it
            found = [{"kind": "note", "text": f"{type(error).__name__}: {error}"}]
        return Response(as_json(found), media_type="application/json")

    async def _stack(self, request: Request) -> Response:
        host, pid = request.query_params.get("host", ""), request.query_params.get("pid", "")
        number = int(pid) if pid.isdecimal() and len(pid) < 12 else 0
        try:
            text = await run_in_threadpool(self._source.stack, host, number)
        except Exception as error:  # as above
            text = f"{type(error).__name__}: {error}"
        return Response(as_json({"text": text}), media_type="application/json")

    async def _metrics(self, _: Request) -> Response:
        return Response(self._source.metrics(), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def look(self) -> None:
        """Look at the source once a second, until nothing can change any more."""
        is_running = True
        while is_running:
            begin_s = time.monotonic()
            try:
                is_running = await run_in_threadpool(self._source.sample)
                document = await run_in_threadpool(self._source.document)
                self._publish({one["id"]: as_json(one) for one in document["blocks"]}, document)
            except Exception as error:
                self._state = {**UNKNOWN, **self._state, "banner": ["warn", f"{type(error).__name__}: {error}"]}
                self._number += 1
            await asyncio.sleep(max(0.1, SAMPLE_S - (time.monotonic() - begin_s)))

    def _publish(self, blocks: dict[str, str], document: Document) -> None:
        self._number += 1
        old, number = self._blocks, self._number
        self._blocks = {
            id: old[id] if id in old and old[id][1] == text else (number, text) for id, text in blocks.items()
        }
        self._state = {key: value for key, value in document.items() if key != "blocks"}


def serve(source: Source, port: int, opened: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C, at a port of 127.0.0.1; 0: a free one. `opened` gets the address.

    Raises:
        OSError: the port is in use.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        port = listener.getsockname()[1]
        token = secrets.token_urlsafe(24)
        viewer = Viewer(source, token, {f"127.0.0.1:{port}", f"localhost:{port}"})
        config = uvicorn.Config(
            viewer.app(),
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            server_header=False,
        )
        server = uvicorn.Server(config)

        async def run() -> None:
            looking = asyncio.create_task(viewer.look())
            opened(f"http://127.0.0.1:{port}/?token={token}")
            try:
                await server.serve(sockets=[listener])
            finally:
                looking.cancel()

        asyncio.run(run())
    finally:
        listener.close()
