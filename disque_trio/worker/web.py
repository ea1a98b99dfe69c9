"""Serves /metrics and /healthz: just so much HTTP that Prometheus and probes can read them."""

from collections.abc import Callable
from http import HTTPStatus

import trio

_PATIENCE = 5.0  # s for a request
_MOST = 16 << 10  # bytes of its head

Page = Callable[[], tuple[HTTPStatus, str]]


async def serve(listeners: list[trio.SocketListener], pages: dict[str, Page]) -> None:
    """Serve ``pages`` by their paths, until cancelled."""

    async def answer(stream: trio.SocketStream) -> None:
        with trio.move_on_after(_PATIENCE):
            try:
                async with stream:
                    await stream.send_all(_answer(await _head(stream), pages))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

    await trio.serve_listeners(answer, listeners)


async def _head(stream: trio.SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _MOST:
        data = await stream.receive_some()
        if not data:
            break
        head += data
    return head


def _answer(head: bytes, pages: dict[str, Page]) -> bytes:
    method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
    page = pages.get(path)
    if method not in (b"GET", b"HEAD"):
        status, text = HTTPStatus.METHOD_NOT_ALLOWED, "GET only\n"
    elif page is None:
        status, text = HTTPStatus.NOT_FOUND, f"there is {', '.join(pages)}\n"
    else:
        status, text = page()
    body = text.encode()
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: text/plain; version=0.0.4; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Allow: GET, HEAD",
        "Connection: close",
        "\r\n",
    )
    return "\r\n".join(lines).encode("latin-1") + (b"" if method == b"HEAD" else body)
