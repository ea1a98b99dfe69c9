"""Checks a user and a password, and begins a session."""

from dataclasses import dataclass
from typing import Final

from disque_console.io.accounts import AccountsAway, TooManyWrong
from disque_console.model.sessions import Session
from disque_console.web.visit import Visit

_WRONG: Final = "Wrong user or password."


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """Why nobody was let in. status: of the answer."""

    text: str
    status: int


async def admit(
    visit: Visit, user: str, password: str, known: str
) -> tuple[Session, str] | TurnedAway:
    """A new session and its cookie, if the password is right. ``known``: the cookie of a browser
    with which somebody has logged in, or empty."""
    console = visit.console
    address = str(visit.request.scope["disque.address"])
    attempts, audit = console.attempts, console.audit
    browser = console.browsers.id(known, user)
    keys = attempts.keys(address, user, browser)
    wait = attempts.wait(keys, visit.now)
    if wait > 0:
        await audit.note("login", user=user, address=address, result="too often")
        return TurnedAway(f"Too many wrong passwords. Try again in {int(wait) + 1} s.", 429)
    attempts.failed(keys, visit.now)  # until the password proves right: many may try at once
    mark = console.accounts.mark(user)  # first: the password may change meanwhile
    try:
        role = await console.accounts.role(user, password, _origin(address, browser))
    except TooManyWrong as many:
        await audit.note("login", user=user, address=address, result="too often")
        return TurnedAway(f"Login is not possible now: {many}.", 429)
    except AccountsAway as away:
        attempts.forgive(keys, visit.now)
        return TurnedAway(f"Login is not possible now: {away}.", 503)
    if role is None:
        await audit.note("login", user=user, address=address, result="refused")
        return TurnedAway(_WRONG, 403)
    attempts.forgive(keys, visit.now)
    attempts.succeeded(address, user)
    try:
        await audit.write("login", user=user, address=address, result="done", role=str(role))
    except OSError as error:
        problem = f"the audit cannot be written: {error.strerror or error}"
        return TurnedAway(f"Login is not possible now: {problem}.", 503)
    session, cookie = console.sessions.begin(user, role, visit.now, mark)
    console.accounts.begun(session, password)
    return session, cookie


def _origin(address: str, browser: str) -> str:
    """Where a password comes from, for the nodes: a known browser is a place of its own. A trusted
    proxy may send any text as the address."""
    shown = "".join(sign if "!" <= sign <= "~" else "?" for sign in address[:64])
    return f"{shown}/{browser}" if browser else shown or "?"
