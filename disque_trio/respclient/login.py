"""How a client logs in: the user, the password, TLS, and the client's name."""

import re
import ssl
from dataclasses import dataclass, field
from typing import Final

from disque_trio.resp.command import Argument
from disque_trio.respclient.tls import Encryption, Tls

_NAME: Final = re.compile("[!-~]+")


@dataclass(frozen=True, slots=True)
class Login:
    """How to log in to a server.

    Attributes:
        username: None: the default user.
        password: None: there is none.
        tls: None: without TLS; True: trusting the system's certificate authorities.
        client_name: the name of the connections in CLIENT LIST; None: no name.

    Raises:
        ValueError: no server would accept the client name.
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | ssl.SSLContext | bool | None = None
    client_name: str | None = None

    def __post_init__(self) -> None:
        check_client_name(self.client_name)

    @property
    def auth(self) -> list[Argument] | None:
        """The command that logs in; None if none is needed. If there is only a password, a form
        that servers without users also know."""
        if self.username is not None:
            return ["AUTH", self.username, self.password or ""]
        return None if self.password is None else ["AUTH", self.password]

    @property
    def naming(self) -> list[Argument] | None:
        """The command that names a connection; None if it has no name. If the user may not run it,
        or the server does not know it, the connection has no name."""
        return None if self.client_name is None else ["CLIENT", "SETNAME", self.client_name]

    def encryption(self) -> Encryption | None:
        """Return what encrypts connections. Raises ValueError if a certificate file is unusable."""
        return Encryption.of(self.tls)


def check_client_name(name: str | None) -> None:
    """Raise ValueError if no server would accept ``name`` for a connection."""
    if name is not None and not _NAME.fullmatch(name):
        raise ValueError(
            f"a client name must be visible ASCII characters without spaces, not {name!r:.80}"
        )
