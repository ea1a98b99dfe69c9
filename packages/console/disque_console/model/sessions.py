"""Visitors' sessions and form tokens, and the limits on live pages."""

import hashlib
import hmac
import secrets
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final

from itsdangerous import BadData, URLSafeSerializer

from disque_console.model.roles import Role

LIFETIME: Final = 12 * 3600.0  # s
RENEWED_AFTER: Final = 3600.0  # s after which a session in use gets a new cookie
STREAMS: Final = 20  # live pages of a session
USER_STREAMS: Final = 60  # live pages of all sessions of a user
ALL_STREAMS: Final = 200  # live pages of all sessions together


@dataclass(frozen=True, slots=True)
class Session:
    """A logged-in visitor. id: random. expires: when it ends (s since the epoch). mark: of the
    password at login; empty if it is not checked."""

    id: str
    user: str
    role: Role
    expires: float
    mark: str = ""


class Sessions:
    """Makes and reads session cookies.

    Attributes:
        secret: signs them. Whoever knows it can impersonate anybody.
    """

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self._signer = URLSafeSerializer(secret, salt="session")
        self._ended: dict[str, float] = {}  # ids of logged-out sessions, until they expire

    def begin(self, user: str, role: Role, now: float, mark: str = "") -> tuple[Session, str]:
        """Start a session with a new id. Returns it and its cookie."""
        session = Session(secrets.token_urlsafe(16), user, role, now + LIFETIME, mark)
        return session, self._cookie(session)

    def read(self, cookie: str, now: float) -> Session | None:
        """The session of a cookie; None if it is forged, expired or ended."""
        try:
            values: Any = self._signer.loads(cookie)
            id, user, role, expires, mark = values
            session = Session(str(id), str(user), Role(role), float(expires), str(mark))
        except (BadData, ValueError, TypeError):
            return None
        return session if self.lasts(session, now) else None

    def lasts(self, session: Session, now: float) -> bool:
        """Whether the session has neither expired nor ended."""
        return session.expires > now and session.id not in self._ended

    def renewed(self, session: Session, now: float) -> str | None:
        """Its next cookie; None if the present one is new enough."""
        if session.expires - now > LIFETIME - RENEWED_AFTER:
            return None
        return self._cookie(replace(session, expires=now + LIFETIME))

    def end(self, session: Session, now: float) -> None:
        """End a session: none of its cookies is valid any more."""
        for id in [id for id, expires in self._ended.items() if expires <= now]:
            del self._ended[id]
        self._ended[session.id] = now + LIFETIME

    def token(self, id: str) -> str:
        """The token that the forms of the session with this id must contain."""
        return hmac.new(self.secret, b"form:" + id.encode(), hashlib.sha256).hexdigest()

    def is_token(self, id: str, token: str) -> bool:
        """Whether ``token`` is that token."""
        return hmac.compare_digest(self.token(id).encode(), token.encode("utf-8", "replace"))

    def _cookie(self, session: Session) -> str:
        values = [session.id, session.user, int(session.role), session.expires, session.mark]
        return str(self._signer.dumps(values))


class Streams:
    """Limits the live pages of each session, of each user, and of all together."""

    def __init__(self) -> None:
        self._open: Counter[tuple[str, str]] = Counter()  # by user and id of the session

    def begin(self, user: str, id: str) -> bool:
        """Count one more page of a user's session. ``id`` is empty if no login is required: then
        only the limit for all applies. Returns False, and counts nothing, at a limit."""
        by_user = sum(count for (name, _), count in self._open.items() if name == user)
        many = self._open[user, id] >= STREAMS or by_user >= USER_STREAMS
        if self._open.total() >= ALL_STREAMS or (id and many):
            return False
        self._open[user, id] += 1
        return True

    def end(self, user: str, id: str) -> None:
        """Undo a successful ``begin``."""
        self._open[user, id] -= 1
        if not self._open[user, id]:
            del self._open[user, id]
