"""The gate before all pages: checks who sends a request, from where, and whether it is forged."""

import ipaddress
import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from disque_console.io.accounts import ANYBODY
from disque_console.model.attempts import BROWSER_LIFETIME
from disque_console.model.sessions import LIFETIME, Session
from disque_console.web.console import Console
from disque_console.web.headers import cookies_of
from disque_console.web.visit import Visitor

COOKIE: Final = "disque_console"
BROWSER_COOKIE: Final = "disque_console_browser"
API: Final = "/api/"
"""Paths below it are for programs: they send tokens, and no cookie is read or set."""
OPEN: Final = ("/login", "/static/", "/health", "/api/v1/openapi.json")
"""Paths that need no session."""
_LOGIN: Final = ("POST", "/api/v1/token")


def is_api(scope: Scope) -> bool:
    """Whether a request is for the API."""
    return bool(scope.get("disque.api"))


def session_cookie(console: Console, value: str, secure: bool) -> str:
    """The header that sets the session cookie; an empty value deletes it."""
    return _cookie(console, COOKIE, value, LIFETIME if value else 0, secure)


def browser_cookie(console: Console, value: str, secure: bool) -> str:
    """The header that sets the cookie of a browser with which somebody has logged in."""
    return _cookie(console, BROWSER_COOKIE, value, BROWSER_LIFETIME, secure)


def _cookie(console: Console, name: str, value: str, age: float, secure: bool) -> str:
    path = f"{console.prefix}/"
    flags = "; Secure" if secure else ""
    return f"{name}={value}; Max-Age={int(age)}; Path={path}; HttpOnly; SameSite=Lax{flags}"


class Gate:
    """Passes allowed requests to ``app``, with the ``Visitor`` in ``scope["visitor"]``."""

    def __init__(self, app: ASGIApp, console: Console) -> None:
        self._app = app
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy may see other requests in the same bytes (RFC 9112, 6.3).
            answer = PlainTextResponse("two lengths\n", 400, {"Connection": "close"})
            await answer(scope, receive, send)
            return
        address = self._forwarded(scope, headers)
        scope["disque.address"] = address
        host = scope["disque.host"]
        prefix = self._console.prefix
        scope["disque.api"] = scope["path"].startswith(f"{prefix}{API}")
        refused = self._refused(scope, headers, host)
        if refused:
            await _told(scope, refused, 403)(scope, receive, send)
            return
        if not scope["path"].startswith(f"{prefix}/"):
            where = f"{prefix}/" if scope["path"] in ("/", prefix) else ""
            elsewhere = RedirectResponse(where) if where else PlainTextResponse("not here\n", 404)
            await elsewhere(scope, receive, send)
            return
        visitor = self._visitor(scope, headers, address)
        if visitor is None and not _is_open(scope["method"], scope["path"][len(prefix) :]):
            await self._to_login(scope, headers)(scope, receive, send)
            return
        scope["visitor"] = visitor
        await self._serve(scope, receive, self._renewing(scope, visitor, send))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            # Starlette has answered with status 500, if it still could do so.
            self._console.log.warning("page failed", path=scope["path"], exc_info=error)

    def _forwarded(self, scope: Scope, headers: Headers) -> str:
        """The visitor's address. A trusted proxy may set it, and the scheme and host."""
        client = scope.get("client")
        address = client[0] if client else "unix"
        scope["disque.host"] = headers.get("host", "")
        if address in self._console.trusted:
            address = _last(headers, "x-forwarded-for") or address
            proto = _last(headers, "x-forwarded-proto").lower()
            if proto in ("http", "https"):
                scope["scheme"] = proto
            scope["disque.host"] = _last(headers, "x-forwarded-host") or scope["disque.host"]
        return address

    def _refused(self, scope: Scope, headers: Mapping[str, str], host: str) -> str:
        """Why the request is refused; empty if it is not."""
        hosts = self._console.hosts
        if hosts is not None and not _is_known(host, hosts):
            # Otherwise another site could point its name here (DNS rebinding).
            return "unknown host name: see --host"
        if scope["method"] in ("GET", "HEAD"):
            return ""
        site = headers.get("sec-fetch-site", "same-origin")
        origin = headers.get("origin")
        if site not in ("same-origin", "none"):
            return "forms from other sites are refused"
        if origin is not None and _host_of(origin) != host.lower():
            return "forms from other sites are refused"
        return ""

    def _visitor(self, scope: Scope, headers: Headers, address: str) -> Visitor | None:
        now, session = time.time(), None
        if self._console.accounts.wanted:
            cookie = _token(headers) if is_api(scope) else cookies_of(headers).get(COOKIE, "")
            session = self._console.sessions.read(cookie, now) if cookie else None
        role = self._console.role_of(session, now)
        if role is None:
            return None
        return Visitor(session.user if session else ANYBODY, role, address, session)

    def _to_login(self, scope: Scope, headers: Mapping[str, str]) -> ASGIApp:
        if is_api(scope):
            answer = _told(scope, "the token is missing, or no longer valid", 401)
            answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        if scope["method"] != "GET":
            return PlainTextResponse("your session is over: log in again\n", 403)
        if "text/event-stream" in headers.get("accept", ""):
            return PlainTextResponse("", 204)  # tells the browser not to reconnect
        query = scope["query_string"].decode("latin-1")
        here = scope["path"] + (f"?{query}" if query else "")
        return RedirectResponse(f"{self._console.prefix}/login?next={quote(here, safe='')}", 303)

    def _renewing(self, scope: Scope, visitor: Visitor | None, send: Send) -> Send:
        session: Session | None = visitor.session if visitor else None
        cookie = session and self._console.sessions.renewed(session, time.time())
        if not cookie or is_api(scope):
            return send
        line = session_cookie(self._console, cookie, scope["scheme"] == "https")

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if "set-cookie" not in headers:
                    headers.append("Set-Cookie", line)
            await send(message)

        return send_with_cookie


def _is_open(method: str, path: str) -> bool:
    return path.startswith(OPEN) or (method, path) == _LOGIN


def _told(scope: Scope, text: str, status: int) -> Response:
    return (
        JSONResponse({"error": text}, status)
        if is_api(scope)
        else PlainTextResponse(f"{text}\n", status)
    )


def _token(headers: Headers) -> str:
    """The token of a request to the API; empty if there is none."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _last(headers: Headers, name: str) -> str:
    """The last value of a list; the proxy adds it to what the browser sent, or in a line below."""
    return ",".join(headers.getlist(name)).rpartition(",")[2].strip()


def _host_of(origin: str) -> str | None:
    """The host and port of an origin; None if it is invalid."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _is_known(host: str, names: frozenset[str]) -> bool:
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if name == "localhost" or name.endswith(".localhost") or name in names:
        return True
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
