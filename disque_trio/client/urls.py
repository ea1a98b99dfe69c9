"""Where a cluster is, as a URL says it: ``disque://user:password@host:7711,host2:7711``, or
``disques://`` for TLS."""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import parse_qsl, unquote

from disque_trio.client.nodes import parse_address
from disque_trio.respclient.login import Login
from disque_trio.respclient.tls import Tls, TlsOption

DEFAULT = "disque://127.0.0.1:7711"

_FORM = (
    "the URL of a node has to be like disque://user:password@host:7711, or disques:// for TLS, with"
    " percent signs for what is special in a password"
)
_TRUTH: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_CHECKS: Final = {  # kombu knows both
    "required": True,
    "optional": True,  # of a server one always comes
    "none": False,
    "cert_required": True,
    "cert_optional": True,
    "cert_none": False,
}
_OPTIONS: Final = {  # what they are for ``Tls``; named as in the URLs of redis-py and kombu
    "ssl_ca_certs": "ca_file",
    "ssl_ca_path": "ca_dir",
    "ssl_certfile": "cert_file",
    "ssl_keyfile": "key_file",
    "ssl_server_name": "server_name",
    "ssl_check_hostname": "check_hostname",
    "ssl_cert_reqs": "verify",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Some nodes of a cluster, and what they want to hear.

    Attributes:
        nodes: addresses as ``connect`` takes them.
        password: for AUTH; None: there is none. username: of it; None: the default user.
        tls: None: without TLS.
    """

    nodes: tuple[str, ...]
    password: str | None = field(default=None, repr=False)
    username: str | None = None
    tls: Tls | ssl.SSLContext | bool | None = None

    @classmethod
    def parse(cls, urls: str | Sequence[str]) -> Self:
        """The cluster behind ``disque://[[USER]:PASSWORD@]HOST[:PORT]`` or
        ``disque://unix:/PATH``; with ``disques://`` its nodes speak TLS.

        Several nodes have commas or semicolons between them, or are a list; the scheme, and user
        and password, may be left out but for the first. Percent signs are understood. The URL for
        TLS may end in options such as ``?ssl_ca_certs=FILE``; see docs/client.md.

        Raises:
            ValueError: there is none, it cannot be read, or the nodes have several passwords. The
                text does not tell the password.
        """
        if isinstance(urls, str):
            urls = urls.replace(";", ",").split(",")
        nodes: list[str] = []
        logins: set[tuple[str | None, str | None]] = set()
        schemes: set[str] = set()
        options: dict[str, str] = {}
        for url in urls:
            scheme, mark, rest = url.strip().rpartition("://")
            if scheme not in ("disque", "disques") and (mark or not nodes):
                raise ValueError(_FORM)
            if mark:
                schemes.add(scheme)
            secret, at, rest = rest.rpartition("@")
            place, question, query = rest.partition("?")
            place = place.rstrip("/")
            if (at and ":" not in secret) or (
                not place.startswith("unix:") and any(letter in place for letter in "/#")
            ):
                raise ValueError(_FORM)
            try:
                nodes.append(str(parse_address(place)))
            except ValueError:
                # Which says the address, and that may be half a password with a comma in it.
                raise ValueError(_FORM) from None
            if question:
                _take_options(options, query, "disques" in schemes)
            if at and secret != ":":
                user, _, word = secret.partition(":")
                logins.add((unquote(user) or None, unquote(word)))
        if not nodes:
            raise ValueError("there is no URL of a node")
        if len(logins) > 1:
            raise ValueError("the nodes of a cluster have one user and one password")
        if len(schemes) > 1:
            raise ValueError("either all nodes of a cluster speak TLS, or none: disques or disque")
        encrypted = "disques" in schemes
        if encrypted and any(node.startswith("unix:") for node in nodes):
            raise ValueError("a socket of a node knows no TLS: disque://unix:/path")
        username, password = next(iter(logins), (None, None))
        return cls(tuple(nodes), password, username, _tls(options) if encrypted else None)

    @classmethod
    def of(
        cls,
        nodes: str | Sequence[str],
        username: str | None = None,
        password: str | None = None,
        tls: TlsOption = None,
    ) -> Self:
        """The cluster behind URLs, or behind addresses as ``parse_address`` reads them. What is
        given beside a URL stands in for what it does not say.

        Raises:
            ValueError: as ``parse``.
        """
        if isinstance(nodes, str):
            nodes = [nodes]
        if any("://" in node for node in nodes):
            said = cls.parse(nodes[0] if len(nodes) == 1 else nodes)
            if said.password is not None:
                username, password = said.username, said.password
            return cls(said.nodes, password, username, said.tls or tls or None)
        known = [str(parse_address(node)) for node in nodes]
        return cls(tuple(known), password, username, tls or None)

    @property
    def login(self) -> Login:
        """How to get into its nodes."""
        return Login(self.username, self.password, self.tls)

    def only(self, node: str) -> Self:
        """One node of it, by its address."""
        return type(self)((node,), self.password, self.username, self.tls)

    @property
    def urls(self) -> list[str]:
        """URLs of its nodes, without what is secret."""
        scheme = "disques" if self.tls else "disque"
        return [f"{scheme}://{node}" for node in self.nodes]


def _take_options(options: dict[str, str], query: str, encrypted: bool) -> None:
    """Add what a URL says behind its question mark. Raises ValueError."""
    try:
        found = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise ValueError(_FORM) from None
    for name, value in found:
        if name not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            raise ValueError(f"the URL of a node has no option {name!r}; there are {known}")
        if not encrypted:
            raise ValueError(f"the option {name} is for nodes with TLS: disques://")
        if not value or options.setdefault(name, value) != value:
            raise ValueError(f"{name} needs one value in the URL of a cluster")


def _tls(options: Mapping[str, str]) -> Tls:
    values: dict[str, Any] = {}
    for name, text in options.items():
        words = {"ssl_check_hostname": _TRUTH, "ssl_cert_reqs": _CHECKS}.get(name)
        if words is None:
            values[_OPTIONS[name]] = text
        elif text.lower() in words:
            values[_OPTIONS[name]] = words[text.lower()]
        else:
            raise ValueError(f"{name} in the URL of a node is one of {', '.join(words)}")
    return Tls(**values)
