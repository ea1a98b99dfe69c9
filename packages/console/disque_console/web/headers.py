"""Reads the cookies of requests, and adds headers to responses: browsers must load nothing from
elsewhere and run nothing inline."""

from typing import Final

from starlette import datastructures
from starlette.datastructures import MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def cookies_of(headers: datastructures.Headers) -> dict[str, str]:
    """Return the cookies of a request. The first one of a name counts: browsers send those with
    longer paths first (RFC 6265, 5.4), and consoles with other prefixes may share the host."""
    cookies = ";".join(headers.getlist("cookie")).split(";")
    return cookie_parser(";".join(reversed(cookies)))


class Headers:
    """Adds ``HEADERS`` to the responses of ``app``. Responses are not cached unless they allow
    it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_more(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
            await send(message)

        await self._app(scope, receive, send_more)
