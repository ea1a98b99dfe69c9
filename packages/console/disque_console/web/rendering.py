"""Renders the values of views as pages."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from itsdangerous import BadData, URLSafeTimedSerializer
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from disque_console.model.actions import ACTIONS
from disque_console.model.fields import field_value
from disque_console.web.console import Console
from disque_console.web.headers import cookies_of
from disque_console.web.pages import PAGES, Page
from disque_console.web.visit import Shown, Visit
from disque_trio import humanize
from disque_trio.overview.groups import groups
from disque_trio.overview.names import quoted, shown
from disque_trio.version import VERSION

HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"
THEME_COOKIE: Final = "disque_console_theme"
THEMES: Final = ("light", "dark", "system")
NOTE_COOKIE: Final = "disque_console_note"
NOTE_SECONDS: Final = 60
CAUSES: Final = {
    "attempts": "out of attempts",
    "expired": "expired",
    "refused": "given up by a worker",
}
"""The meanings of a dead letter's ``dead-why``."""


def display_name(name: str) -> Markup:
    """A queue name as markup: invisible characters are escaped, and its text direction is isolated.
    Lists cut off long names with CSS."""
    return Markup("<bdi>{}</bdi>").format(shown(name) or "(empty)")


def with_code(text: str) -> Markup:
    """Text with its `quoted` words as code."""
    parts = [
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(text.split("`"))
    ]
    return Markup("").join(parts)


class Rendering:
    """Renders templates.

    Args:
        console: the console to show.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._notes = URLSafeTimedSerializer(console.sessions.secret, salt="note")
        environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.filters |= {
            "name": display_name,
            "plain": shown,
            "quoted": quoted,
            "field": field_value,
            "count": humanize.count,
            "short": humanize.short,
            "rate": humanize.rate,
            "percent": humanize.percent,
            "shortened": humanize.shortened,
            "seconds": humanize.duration,
            "size": humanize.size,
            "moment": humanize.moment,
            "code": with_code,
        }
        environment.globals |= {
            "pages": PAGES,
            "actions": ACTIONS,
            "causes": CAUSES,
            "themes": THEMES,
            "version": VERSION,
            "stamp": _stamp(),
        }
        self._environment = environment

    def page(self, page: Page, visit: Visit, shown: Shown) -> Response:
        """A whole page."""
        values = self._values(visit, shown.values, page)
        return self._answer(page.template, visit, values, shown.status)

    def live_part(self, page: Page, visit: Visit, shown: Shown) -> str:
        """The block ``live`` of a page."""
        values = self._values(visit, shown.values, page) | {"layout": "live.html"}
        return self._environment.get_template(page.template).render(values)

    def other(
        self, template: str, visit: Visit, values: Mapping[str, Any], status: int
    ) -> Response:
        """A page that is not in the table."""
        return self._answer(template, visit, self._values(visit, values, None), status)

    def message(self, visit: Visit, title: str, text: str, status: int) -> Response:
        """A page with a message, such as an error."""
        return self.other("message.html", visit, {"title": title, "text": text}, status)

    def failure(self, request: Request, status: int, title: str, text: str) -> Response:
        """A message page for a request without a ``Visit``; without a session, the login page."""
        visit = Visit(request, self._console, request.scope["visitor"], 0.0)
        if request.scope["visitor"] is None:
            values = {"problem": text, "next": "", "user": ""}
            return self.other("login.html", visit, values, status)
        return self.message(visit, title, text, status)

    def note(self, answer: Response, text: str, bad: bool = False) -> Response:
        """Show ``text`` on the next page."""
        # A cookie holds 4 KiB; each non-ASCII character takes six bytes.
        cookie = self._notes.dumps([text[: 1000 if text.isascii() else 300], bad])
        path = f"{self._console.prefix}/"
        answer.set_cookie(
            NOTE_COOKIE, str(cookie), NOTE_SECONDS, path=path, httponly=True, samesite="lax"
        )
        return answer

    def back(self, visit: Visit, wanted: str) -> str:
        """The address to return to: ``wanted`` if it is one of our pages, else the first page."""
        first = f"{self._console.prefix}/"
        path = wanted.partition("?")[0]
        # For browsers, a backslash in a path is a slash, and two of them begin a host name.
        ours = path.startswith(first) and path[1:2] != "/" and "\\" not in path
        return wanted if ours and wanted.isprintable() else first

    def _answer(self, template: str, visit: Visit, values: dict[str, Any], status: int) -> Response:
        note = cookies_of(visit.request.headers).get(NOTE_COOKIE)
        if note:
            try:
                values["note"] = self._notes.loads(note, max_age=NOTE_SECONDS)
            except BadData:
                pass
        text = self._environment.get_template(template).render(values)
        answer = HTMLResponse(text, status, headers={"Vary": "Accept, Cookie"})
        if note:
            answer.delete_cookie(NOTE_COOKIE, path=f"{self._console.prefix}/")
        return answer

    def _values(self, visit: Visit, values: Mapping[str, Any], page: Page | None) -> dict[str, Any]:
        theme = cookies_of(visit.request.headers).get(THEME_COOKIE, "system")
        nodes = self._console.cluster.nodes
        together = groups(nodes.all())
        return {
            "layout": "base.html",
            "visit": visit,
            "url": visit.url,
            "prefix": self._console.prefix,
            "page": page,
            "chosen": (page.under or page.path) if page else "",
            "theme": theme if theme in THEMES else "system",
            "note": None,
            "logins": self._console.accounts.wanted,
            "away": [node for node in together if not node.here],
            "partly": [node for node in together if node.status == "partly"],
            "apart": nodes.apart,
            "node_count": len(together),
            **values,
        }


def _stamp() -> str:
    """A value that changes when a static file does."""
    digest = hashlib.sha256()
    for path in sorted(STATIC.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
