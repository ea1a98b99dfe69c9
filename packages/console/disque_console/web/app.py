"""The application: pages, their live updates, actions, login and logout."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from disque_console.web.acting import Acting
from disque_console.web.api.routes import error
from disque_console.web.api.routes import routes as api
from disque_console.web.bulking import Bulking
from disque_console.web.console import Console
from disque_console.web.entrance import Entrance
from disque_console.web.headers import Headers
from disque_console.web.live import Live
from disque_console.web.pages import PAGES, Page
from disque_console.web.rendering import STATIC, THEME_COOKIE, THEMES, Rendering
from disque_console.web.security import Gate, is_api
from disque_console.web.views import job
from disque_console.web.visit import Missing, TooLarge, TooSlow, Visit, Visitor
from disque_trio.health.table import CRITICAL
from disque_trio.overview.attention import summary

THEME_SECONDS: Final = 365 * 86400


class Static:
    """The style sheet and the script; browsers cache them until their addresses change."""

    def __init__(self) -> None:
        self._files = StaticFiles(directory=STATIC)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._files.get_response(self._files.get_path(scope), scope)
        response.headers["Cache-Control"] = "max-age=31536000, immutable"
        await response(scope, receive, send)


class Failures:
    """What visitors are answered when something went wrong.

    Attributes:
        handlers: by exception.
    """

    def __init__(self, rendering: Rendering) -> None:
        self._rendering = rendering
        self.handlers: dict[Any, Any] = {
            HTTPException: self._refused,
            TooLarge: self._too_large,
            TooSlow: self._too_slow,
            ClientDisconnect: self._gone,
            Exception: self._failed,
        }

    async def _failed(self, request: Request, error: Exception) -> Response:
        # Starlette raises the error again after this answer, and the gate logs it.
        return self._answer(request, 500, "Something went wrong", "See the log of the console.")

    async def _refused(self, request: Request, refused: HTTPException) -> Response:
        title = HTTPStatus(refused.status_code).phrase.capitalize()
        answer = self._answer(request, refused.status_code, title, refused.detail)
        answer.headers.update(refused.headers or {})
        return answer

    async def _too_large(self, request: Request, error: Exception) -> Response:
        return self._answer(
            request, 413, "Too large", f"A form can be at most {error}. Use a client for more."
        )

    async def _too_slow(self, request: Request, error: Exception) -> Response:
        return self._answer(request, 408, "Too slow", "The form did not arrive within a minute.")

    def _answer(self, request: Request, status: int, title: str, text: str) -> Response:
        if is_api(request.scope):
            return error(status, text)
        return self._rendering.failure(request, status, title, text)

    async def _gone(self, request: Request, error: Exception) -> Response:
        return Response(status_code=400)  # nobody reads it


def application(console: Console) -> ASGIApp:
    """The pages of ``console``, behind the gate."""
    rendering = Rendering(console)
    acting = Acting(console, rendering)
    bulking = Bulking(console, rendering)
    entrance = Entrance(console, rendering)

    def visit_of(request: Request) -> Visit:
        visitor: Visitor = request.scope["visitor"]
        return Visit(request, console, visitor, time.time())

    def route(
        path: str, serve: Callable[[Visit], Awaitable[Response]], method: str = "GET"
    ) -> Route:
        async def endpoint(request: Request) -> Response:
            return await serve(visit_of(request))

        return Route(path, endpoint, methods=[method])

    def page_route(page: Page) -> Route:
        async def endpoint(request: Request) -> ASGIApp:
            visit = visit_of(request)
            if page.live and visit.live:
                who = visit.visitor
                render = partial(_live_part, rendering, page, request, who)
                return Live(console, who, render, partial(_is_still, who))
            return await _show(rendering, page, visit)

        return Route(page.path, endpoint, methods=["GET"])

    def _is_still(visitor: Visitor) -> bool:
        return console.role_of(visitor.session, time.time()) == visitor.role

    async def _live_part(
        rendering: Rendering, page: Page, request: Request, visitor: Visitor
    ) -> str | None:
        visit = Visit(request, console, visitor, time.time())
        try:
            return rendering.live_part(page, visit, await page.view(visit))
        except Missing:
            return None

    async def health(request: Request) -> Response:
        return _health(console, request)

    async def body(visit: Visit) -> Response:
        try:
            return await job.download(visit)
        except Missing as missing:
            return rendering.message(visit, "Not found", str(missing), 404)

    async def theme(visit: Visit) -> Response:
        wanted = visit.query("to")
        answer = RedirectResponse(rendering.back(visit, visit.query("back")), 303)
        if wanted in THEMES:
            path = f"{console.prefix}/"
            answer.set_cookie(THEME_COOKIE, wanted, THEME_SECONDS, path=path, samesite="lax")
        return answer

    routes: list[Any] = [
        *map(page_route, PAGES),
        route("/job/body", body),
        route("/do/{name}", acting.act, "POST"),
        route("/do/{name}", acting.ask),
        route("/bulk", bulking.begin, "POST"),
        route("/bulk/go", bulking.go_on, "POST"),
        route("/login", entrance.show),
        route("/login", entrance.enter, "POST"),
        route("/logout", entrance.leave, "POST"),
        route("/theme", theme),
        Route("/health", health),
        Route("/health/{of}", health),
        *api(console, acting, visit_of),
        Mount("/static", Static(), name="static"),
    ]
    handlers = Failures(rendering).handlers
    prefixed = [Mount(console.prefix, routes=routes)] if console.prefix else routes
    return Headers(Gate(Starlette(routes=prefixed, exception_handlers=handlers), console))


def _health(console: Console, request: Request) -> Response:
    """How the cluster is: a word, then a line for each severity and kind of condition. It has no
    names: anybody may ask."""
    of = request.path_params.get("of", "")
    if of not in ("", "cluster"):
        raise HTTPException(404)
    word, counts = summary(console.cluster, time.time())
    lines = [f"{severity} {kind} {count}" for (severity, kind), count in counts.items()]
    status = HTTPStatus.SERVICE_UNAVAILABLE if of and word == CRITICAL else HTTPStatus.OK
    return PlainTextResponse("\n".join([word, *lines, ""]), status)


async def _show(rendering: Rendering, page: Page, visit: Visit) -> Response:
    try:
        shown = await page.view(visit)
    except Missing as missing:
        return rendering.message(visit, "Not found", str(missing), 404)
    return rendering.page(page, visit, shown)
