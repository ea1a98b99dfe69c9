"""Parses URLs of a Redis: ``redis://``, ``rediss://`` (TLS), ``unix://``."""

from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL; absent ones are None.

    Attributes:
        tls: by TLS. socket: path of a Unix socket, for ``unix://`` only.
        server, port, db, user, password: as everywhere.
    """

    tls: bool
    socket: str | None
    server: str | None
    port: int | None
    db: int | None
    user: str | None
    password: str | None

    @classmethod
    def parse(cls, text: str) -> "Url":
        """The parts of ``redis[s]://[[USER]:PASSWORD@]HOST[:PORT][/DB]`` or
        ``unix://[[USER]:PASSWORD@]PATH[?db=DB]``; percent signs are understood.

        Raises:
            ValueError: it is none. The text does not tell the password.
        """
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise ValueError("the URL is none, or has a wrong port") from None
        unix = parts.scheme == "unix"
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise ValueError("the URL has to begin with redis://, rediss:// or unix://")
        options = parse_qs(parts.query, keep_blank_values=True)
        database = options.pop("db", [""])[-1]
        if options or parts.fragment:
            raise ValueError("the URL has a part that is not known here; only db= is")
        path = unquote(parts.path)
        if not unix:
            database, path = database or path.strip("/"), ""
        elif not path or parts.hostname is not None:
            raise ValueError("the URL has to name a socket, as in unix:///run/redis.sock")
        if database and not (database.isascii() and database.isdigit()):
            raise ValueError(f"{database!r} is not the number of a database")
        return cls(
            tls=parts.scheme == "rediss",
            socket=path or None,
            server=parts.hostname,
            port=port,
            db=int(database) if database else None,
            user=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
        )
