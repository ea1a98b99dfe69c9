"""Parses URLs of a Redis: ``redis://``, ``rediss://`` (TLS), ``unix://``."""

from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from disque_trio.notation.addresses import Address, AmbiguousError, read_address


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL; absent ones are None.

    Attributes:
        tls: whether to use TLS.
        socket: the path of a Unix socket, for ``unix://`` only.
        server, port, db, user, password: the Redis and its login.
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
        """Parse ``redis[s]://[[USER]:PASSWORD@]HOST[:PORT][/DB]`` or
        ``unix://[[USER]:PASSWORD@]PATH[?db=DB]``. Percent-encoding is decoded.

        Raises:
            ValueError: it is not such a URL. The text does not reveal the password.
        """
        try:
            parts = urlsplit(text)
            place = parts.netloc.rpartition("@")[2]
            # Port 0: there is none. A URL may also have a port and no host.
            server = read_address(place, 0, "") if place else Address()
        except AmbiguousError:
            raise
        except ValueError:
            raise ValueError("this is not a URL, or has an invalid port") from None
        unix = parts.scheme == "unix"
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise ValueError("the URL must begin with redis://, rediss:// or unix://")
        options = parse_qs(parts.query, keep_blank_values=True)
        database = options.pop("db", [""])[-1]
        if options or parts.fragment:
            raise ValueError("the URL has an unknown part; only db= is allowed as an option")
        path = unquote(parts.path)
        if not unix:
            database, path = database or path.strip("/"), ""
        elif not path or server.host:
            raise ValueError("the URL must name a socket, as in unix:///run/redis.sock")
        if database and not (database.isascii() and database.isdigit()):
            raise ValueError(f"{database!r} is not a database number")
        return cls(
            tls=parts.scheme == "rediss",
            socket=path or None,
            server=server.host or None,
            port=server.port or None,
            db=int(database) if database else None,
            user=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
        )
