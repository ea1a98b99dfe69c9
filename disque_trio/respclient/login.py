"""How a client gets in: the user, the password, and TLS."""

import ssl
from dataclasses import dataclass, field

from disque_trio.resp.command import Argument
from disque_trio.respclient.tls import Encryption, Tls


@dataclass(frozen=True, slots=True)
class Login:
    """How to get into a server.

    Attributes:
        username: None: the default user. password: None: there is none.
        tls: None: without TLS. True: with the system's authorities.
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | ssl.SSLContext | bool | None = None

    @property
    def auth(self) -> list[Argument] | None:
        """The command that logs in; None: none is needed. With a password alone it is one that
        servers without users know."""
        if self.username is not None:
            return ["AUTH", self.username, self.password or ""]
        return None if self.password is None else ["AUTH", self.password]

    def encryption(self) -> Encryption | None:
        """What encrypts connections. Raises ValueError: a file of certificates cannot be used."""
        return Encryption.of(self.tls)
