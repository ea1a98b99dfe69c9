"""Login and logout."""

from typing import Final

from starlette.responses import RedirectResponse, Response

from disque_console.io.accounts import AccountsAway, TooManyWrong
from disque_console.web.console import Console
from disque_console.web.headers import cookies_of
from disque_console.web.rendering import Rendering
from disque_console.web.security import BROWSER_COOKIE, browser_cookie, session_cookie
from disque_console.web.visit import Visit

_WRONG: Final = "Wrong user or password."
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
        address = self._address(visit)
        user = user[:_NAME]  # it is kept, and written to the audit
        attempts, audit = self._console.attempts, self._console.audit
        known = cookies_of(visit.request.headers).get(BROWSER_COOKIE, "")
        browser = self._console.browsers.id(known, user)
        keys = attempts.keys(address, user, browser)
        wait = attempts.wait(keys, visit.now)
        if wait > 0:
            await audit.note("login", user=user, address=address, result="too often")
            text = f"Too many wrong passwords. Try again in {int(wait) + 1} s."
            return self._form(visit, text, wanted, user, 429)
        attempts.failed(keys, visit.now)  # until the password proves right: many may try at once
        mark = self._console.accounts.mark(user)  # first: the password may change meanwhile
        try:
            role = await self._console.accounts.role(user, password, _origin(address, browser))
        except TooManyWrong as many:
            await audit.note("login", user=user, address=address, result="too often")
            return self._form(visit, f"Login is not possible now: {many}.", wanted, user, 429)
        except AccountsAway as away:
            attempts.forgive(keys, visit.now)
            return self._form(visit, f"Login is not possible now: {away}.", wanted, user, 503)
        if role is None:
            await audit.note("login", user=user, address=address, result="refused")
            return self._form(visit, _WRONG, wanted, user, 403)
        attempts.forgive(keys, visit.now)
        attempts.succeeded(address, user)
        try:
            await audit.write("login", user=user, address=address, result="done", role=str(role))
        except OSError as error:
            problem = f"the audit cannot be written: {error.strerror or error}"
            return self._form(visit, f"Login is not possible now: {problem}.", wanted, user, 503)
        session, cookie = self._console.sessions.begin(user, role, visit.now, mark)
        self._console.accounts.begun(session, password)
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

    def _address(self, visit: Visit) -> str:
        return str(visit.request.scope["disque.address"])


def _origin(address: str, browser: str) -> str:
    """Where a password comes from, for the nodes: a known browser is a place of its own. A trusted
    proxy may send any text as the address."""
    shown = "".join(sign if "!" <= sign <= "~" else "?" for sign in address[:64])
    return f"{shown}/{browser}" if browser else shown or "?"
