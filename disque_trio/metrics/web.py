"""Serves pages over HTTP: only as much of it as Prometheus and probes need.

One request a connection, GET or HEAD. Clients that send no request, a malformed or too long one, or
do not read the answer, are cut off. The number of clients served at once is limited. No client
affects another.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

import trio

MOST_AT_ONCE = 128  # connections
_MOST = 16 << 10  # bytes of a request
_PATIENCE = 5.0  # s to receive a request
_READING = 30.0  # s for the client to read the answer
_LINGER = 1.0  # s to read the rest of a refused request; else the client would not see the answer
_FREED_AT_ONCE = 16  # chunks
PLAIN = "text/plain; charset=utf-8"


class Request(NamedTuple):
    """A request. ``headers`` are by name, in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]


class Reply(NamedTuple):
    """An answer. ``encoding`` is that of the body's ``chunks``, such as gzip."""

    status: HTTPStatus
    chunks: Sequence[bytes]
    content_type: str = PLAIN
    encoding: str = ""


Page = Callable[[Request], Awaitable[Reply]]


class BadRequest(Exception):
    """This is not a valid request. ``status``: what to answer."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


def text_page(text: Callable[[], tuple[HTTPStatus, str]], content_type: str = PLAIN) -> Page:
    """Make a page that shows what ``text`` returns."""

    async def page(request: Request) -> Reply:
        status, body = text()
        return Reply(status, [body.encode()], content_type)

    return page


class Web:
    """Serves pages.

    Args:
        pages: the pages, by path.
        failed: called with an exception that a page raised; the client gets status 500.
        most: how many connections to serve at once; others are refused.
    """

    def __init__(
        self,
        pages: Mapping[str, Page],
        failed: Callable[[Exception], None] = lambda error: None,
        most: int = MOST_AT_ONCE,
    ) -> None:
        self._pages = pages
        self._failed = failed
        self._most = most
        self._count = 0

    async def serve(self, listeners: Sequence[trio.SocketListener]) -> None:
        """Serve all clients that connect to ``listeners``, until cancelled."""
        await trio.serve_listeners(self.answer, list(listeners))

    async def answer(self, stream: trio.abc.HalfCloseableStream) -> None:
        """Serve the client at the other end of ``stream``, then close the stream."""
        self._count += 1
        try:
            async with stream:
                if self._count > self._most:
                    await self._refuse(stream, HTTPStatus.SERVICE_UNAVAILABLE)
                else:
                    await self._serve(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client is gone
        finally:
            self._count -= 1

    async def _serve(self, stream: trio.abc.HalfCloseableStream) -> None:
        request: Request | None = None
        with trio.move_on_after(_PATIENCE):
            try:
                request = parse(await _head(stream))
            except BadRequest as problem:
                await self._refuse(stream, problem.status)
                return
        if request is None:  # the client is too slow, or has sent nothing
            return
        if request.method not in ("GET", "HEAD"):
            await self._refuse(stream, HTTPStatus.METHOD_NOT_ALLOWED)
            return
        page = self._pages.get(request.path)
        if page is None:
            there_is = f"only {' and '.join(self._pages)} can be read here\n"
            reply = Reply(HTTPStatus.NOT_FOUND, [there_is.encode()])
        else:
            try:
                reply = await page(request)
            except Exception as error:
                self._failed(error)
                reply = _plain(HTTPStatus.INTERNAL_SERVER_ERROR)
        with trio.move_on_after(_READING):
            await _send(stream, reply, with_body=request.method == "GET")

    async def _refuse(self, stream: trio.abc.HalfCloseableStream, status: HTTPStatus) -> None:
        """Answer ``status`` to a request that is not read completely."""
        with trio.move_on_after(_LINGER):
            await _send(stream, _plain(status), with_body=True)
            await stream.send_eof()
            left = 4 * _MOST
            while left > 0 and (data := await stream.receive_some(_MOST)):
                left -= len(data)


def parse(head: bytes) -> Request | None:
    """Parse the ``head`` of a request; None if nothing was sent.

    Raises:
        BadRequest: this is not a valid request.
    """
    if not head:
        return None
    first, *lines = head.decode("latin-1").splitlines()
    words = first.split()
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    try:
        path = urlsplit(words[1]).path
    except ValueError:
        raise BadRequest(HTTPStatus.BAD_REQUEST) from None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            name = name.strip().lower()
            before = headers.get(name)
            headers[name] = f"{before}, {value.strip()}" if before else value.strip()
    return Request(words[0], path, headers)


async def _head(stream: trio.abc.HalfCloseableStream) -> bytes:
    """Read the lines of a request before the empty line; empty if there are none.

    Raises:
        BadRequest: this is not a valid request, or it is too long.
    """
    head = b""
    while True:
        data = await stream.receive_some(_MOST)
        head += data
        if not head[:1].isalpha() and head:  # the client speaks TLS, or RESP
            raise BadRequest(HTTPStatus.BAD_REQUEST)
        ends = [end for end in (head.find(b"\n\r\n"), head.find(b"\n\n")) if end >= 0]
        if ends and min(ends) < _MOST:
            return head[: min(ends)]
        if len(head) >= _MOST:
            raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if not data:
            return b""


def _plain(status: HTTPStatus) -> Reply:
    return Reply(status, [f"{status.phrase}\n".encode()])


async def _send(stream: trio.abc.SendStream, reply: Reply, with_body: bool) -> None:
    lines = [
        f"HTTP/1.1 {reply.status.value} {reply.status.phrase}",
        f"Content-Type: {reply.content_type}",
        f"Content-Length: {sum(map(len, reply.chunks))}",
        "Connection: close",
    ]
    if reply.status == HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    if reply.encoding:
        lines.append(f"Content-Encoding: {reply.encoding}")
    lines += ["Vary: Accept, Accept-Encoding", "", ""]
    # The owner of the page may take its list apart as soon as other tasks run.
    left = list(reversed(reply.chunks)) if with_body else []
    try:
        await stream.send_all("\r\n".join(lines).encode("latin-1"))
        while left:
            await stream.send_all(left.pop())
    finally:
        # We may hold the last reference to the chunks, and freeing many megabytes takes 10 ms.
        with trio.CancelScope(shield=True):
            while left:
                del left[-_FREED_AT_ONCE:]
                await trio.lowlevel.checkpoint()
