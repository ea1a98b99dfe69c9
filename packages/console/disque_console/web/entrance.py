"""Login and logout."""

from typing import Final

from starlette.responses import RedirectResponse, Response

from disque_console.web.admission import TurnedAway, admit
from disque_console.web.console import Console
from disque_console.web.headers import cookies_of
from disque_console.web.rendering import Rendering
from disque_console.web.security import BROWSER_COOKIE, browser_cookie, session_cookie
from disque_console.web.visit import Visit

_FORM: Final = 64 << 10  # bytes of a form that anybody may send
_NAME: Final = 200  # characters


class Entrance:
    """The login page."""

    def __init__(self, console: Console, rendering: Rendering) -> None:
        self._console = console
        self._rendering = rendering

    async def show(self, visit: Visit) -> Response:
        """Show the form."""
        if not self._console.accounts.wanted or visit.request.scope["visitor"] is not None:
            return RedirectResponse(self._rendering.back(visit, visit.query("next")), 303)
        return self._form(visit, "", visit.query("next"), "")

    async def enter(self, visit: Visit) -> Response:
        """Handle the submitted form."""
        form = await visit.form(_FORM)
        user, password, wanted = form.get("user"), form.raw("password"), form.get("next")
        user = user[:_NAME]  # it is kept, and written to the audit
        known = cookies_of(visit.request.headers).get(BROWSER_COOKIE, "")
        admitted = await admit(visit, user, password, known)
        if isinstance(admitted, TurnedAway):
            return self._form(visit, admitted.text, wanted, user, admitted.status)
        _, cookie = admitted
        answer = RedirectResponse(self._rendering.back(visit, wanted), 303)
        self._set_cookie(visit, answer, cookie)
        known = self._console.browsers.with_user(known, user)
        line = browser_cookie(self._console, known, self._is_secure(visit))
        answer.headers.append("Set-Cookie", line)
        return answer

    async def leave(self, visit: Visit) -> Response:
        """Log out."""
        form = await visit.form(_FORM)
        answer = RedirectResponse(f"{self._console.prefix}/login", 303)
        session = visit.visitor.session
        if session is None or not visit.is_from_here(form):
            return answer
        self._console.sessions.end(session, visit.now)
        self._console.accounts.ended(session)
        await self._console.audit.note("logout", user=session.user, address=visit.visitor.address)
        self._set_cookie(visit, answer, "")
        return answer

    def _set_cookie(self, visit: Visit, answer: Response, value: str) -> None:
        line = session_cookie(self._console, value, self._is_secure(visit))
        answer.headers.append("Set-Cookie", line)

    def _is_secure(self, visit: Visit) -> bool:
        return bool(visit.request.scope["scheme"] == "https")

    def _form(
        self, visit: Visit, problem: str, wanted: str, user: str, status: int = 200
    ) -> Response:
        values = {"problem": problem, "next": wanted, "user": user}
        return self._rendering.other("login.html", visit, values, status)
