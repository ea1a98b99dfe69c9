"""Sessions of visitors, the tokens of their forms, and the limit of wrong passwords."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Any, Final

from itsdangerous import BadData, URLSafeSerializer

from disque_trio.console.model.roles import Role

LIFETIME: Final = 12 * 3600.0  # s
RENEWED_AFTER: Final = 3600.0  # s: a session in use gets a new cookie
TRIES: Final = 10  # wrong passwords, from an address or for a user
TRIES_FOR: Final = 60.0  # s in which a try is forgiven
REMEMBERED: Final = 10_000  # addresses and users


@dataclass(frozen=True, slots=True)
class Session:
    """A visitor who is logged in. id: random. expires: when it ends (s since the epoch)."""

    id: str
    user: str
    role: Role
    expires: float


class Sessions:
    """Makes and reads session cookies.

    Attributes:
        secret: signs them. Whoever knows it can be anybody.
    """

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self._signer = URLSafeSerializer(secret, salt="session")
        self._ended: dict[str, float] = {}  # ids of sessions that were left, until they expire

    def begin(self, user: str, role: Role, now: float) -> tuple[Session, str]:
        """A new session, with a new id. Returns it and its cookie."""
        session = Session(secrets.token_urlsafe(16), user, role, now + LIFETIME)
        return session, self._cookie(session)

    def read(self, cookie: str, now: float) -> Session | None:
        """The session of a cookie; None: it is forged, has expired or was ended."""
        try:
            values: Any = self._signer.loads(cookie)
            id, user, role, expires = values
            session = Session(str(id), str(user), Role(role), float(expires))
        except (BadData, ValueError, TypeError):
            return None
        return session if session.expires > now and session.id not in self._ended else None

    def renewed(self, session: Session, now: float) -> str | None:
        """Its next cookie; None: the one it has is new enough."""
        if session.expires - now > LIFETIME - RENEWED_AFTER:
            return None
        return self._cookie(Session(session.id, session.user, session.role, now + LIFETIME))

    def end(self, session: Session, now: float) -> None:
        """The visitor has left: no cookie of the session is good any more."""
        for id in [id for id, expires in self._ended.items() if expires <= now]:
            del self._ended[id]
        self._ended[session.id] = now + LIFETIME

    def token(self, id: str) -> str:
        """What forms of the session with this id have to carry."""
        return hmac.new(self.secret, b"form:" + id.encode(), hashlib.sha256).hexdigest()

    def is_token(self, id: str, token: str) -> bool:
        """Whether ``token`` is that."""
        return hmac.compare_digest(self.token(id).encode(), token.encode("utf-8", "replace"))

    def _cookie(self, session: Session) -> str:
        values = [session.id, session.user, int(session.role), session.expires]
        return str(self._signer.dumps(values))


class Attempts:
    """Limits how often a password may be tried from an address, and for a user."""

    def __init__(self, tries: int = TRIES, seconds: float = TRIES_FOR) -> None:
        self._tries = tries
        self._seconds = seconds
        self._used: dict[str, tuple[float, float]] = {}  # tries that are left, and when that was

    def wait(self, keys: tuple[str, ...], now: float) -> float:
        """How many seconds to wait for the next try; 0: none."""
        return max((self._wait(key, now) for key in keys), default=0.0)

    def failed(self, keys: tuple[str, ...], now: float) -> None:
        """A password was wrong."""
        for key in keys:
            self._used[key] = (self._left(key, now) - 1.0, now)
        if len(self._used) > REMEMBERED:
            full = [key for key in self._used if self._left(key, now) >= self._tries]
            for key in full or list(self._used)[: REMEMBERED // 10]:
                del self._used[key]

    def forgive(self, keys: tuple[str, ...], now: float) -> None:
        """What was counted by ``failed`` was no failure."""
        for key in keys:
            self._used[key] = (min(float(self._tries), self._left(key, now) + 1.0), now)

    def _wait(self, key: str, now: float) -> float:
        left = self._left(key, now)
        return 0.0 if left >= 1.0 else (1.0 - left) * self._seconds / self._tries

    def _left(self, key: str, now: float) -> float:
        left, moment = self._used.get(key, (float(self._tries), now))
        return min(float(self._tries), left + (now - moment) * self._tries / self._seconds)
