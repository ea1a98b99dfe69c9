"""URLs of clusters: ``disque://user:password@host:7711,host2:7711``, or ``disques://`` for TLS."""

import os
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self
from urllib.parse import parse_qsl, unquote

from disque_trio.client.nodes import parse_address
from disque_trio.notation.addresses import AmbiguousError
from disque_trio.respclient.login import Login, check_client_name
from disque_trio.respclient.tls import Tls, TlsOption

DEFAULT = "disque://127.0.0.1:7711"

_FORM = (
    "the URL of a node must look like disque://user:password@host:7711, or disques:// for TLS, with"
    " special characters in a password percent-encoded"
)
_TRUTH: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_CHECKS: Final = {  # the names in kombu and in Python's ssl
    "required": True,
    "optional": True,  # a server always sends a certificate
    "none": False,
    "cert_required": True,
    "cert_optional": True,
    "cert_none": False,
}
_OPTIONS: Final = {  # attributes of ``Tls`` by their names in URLs of redis-py and kombu
    "ssl_ca_certs": "ca_file",
    "ssl_ca_path": "ca_dir",
    "ssl_certfile": "cert_file",
    "ssl_keyfile": "key_file",
    "ssl_server_name": "server_name",
    "ssl_check_hostname": "check_hostname",
    "ssl_cert_reqs": "verify",
}
_CLIENT_NAME: Final = "client_name"  # as for redis-py
_HINTS: Final = "hints"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Some nodes of a cluster, and how to log in to them.

    Attributes:
        nodes: addresses, as ``connect`` takes them.
        password: for AUTH; None if there is none.
        username: the user with this password; None: the default user.
        tls: how to encrypt connections; None: not at all.
        client_name: the name of the connections in CLIENT LIST; None: no name.
        hints: go to the nodes that are best for queues, if the node in use knows them.

    Raises:
        ValueError: no node would accept the client name.
    """

    nodes: tuple[str, ...]
    password: str | None = field(default=None, repr=False)
    username: str | None = None
    tls: Tls | ssl.SSLContext | bool | None = None
    client_name: str | None = None
    hints: bool = True

    def __post_init__(self) -> None:
        check_client_name(self.client_name)

    @classmethod
    def parse(cls, urls: str | Sequence[str]) -> Self:
        """Parse ``disque://[[USER]:PASSWORD@]HOST[:PORT]`` or ``disque://unix:/PATH``.

        ``disques://`` means that the nodes speak TLS. Several nodes are separated by commas or
        semicolons, or given as a list; only the first needs the scheme, user and password.
        Percent-encoding is decoded. A URL may end in ``?client_name=NAME`` or ``?hints=no``, and
        one for TLS in options such as ``?ssl_ca_certs=FILE``; see docs/client.md.

        Raises:
            ValueError: there is no URL, one is malformed, or the nodes have different passwords.
                The message does not reveal the password.
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
            except AmbiguousError:
                raise
            except ValueError:
                # The message quotes the address, which may be half of a password with a comma.
                raise ValueError(_FORM) from None
            if question:
                _take_options(options, query, "disques" in schemes)
            if at and secret != ":":
                user, _, word = secret.partition(":")
                logins.add((unquote(user) or None, unquote(word)))
        if not nodes:
            raise ValueError("no URL of a node was given")
        if len(logins) > 1:
            raise ValueError("all nodes of a cluster must have the same user and password")
        if len(schemes) > 1:
            raise ValueError("all nodes of a cluster must use TLS, or none: disques or disque")
        encrypted = "disques" in schemes
        if encrypted and any(node.startswith("unix:") for node in nodes):
            raise ValueError("a Unix socket of a node has no TLS: use disque://unix:/path")
        username, password = next(iter(logins), (None, None))
        name = options.pop(_CLIENT_NAME, None)
        hints = _truth(_HINTS, options.pop(_HINTS, "yes"), _TRUTH)
        tls = _tls(options) if encrypted else None
        return cls(tuple(nodes), password, username, tls, name, hints)

    @classmethod
    def of(
        cls,
        nodes: str | Sequence[str],
        username: str | None = None,
        password: str | None = None,
        tls: TlsOption = None,
        client_name: str | None = None,
        hints: bool = True,
    ) -> Self:
        """Return the cluster with the given nodes: URLs, or addresses for ``parse_address``.

        The other arguments are used for whatever the URLs do not specify.

        Raises:
            ValueError: as for ``parse``.
        """
        if isinstance(nodes, str):
            nodes = [nodes]
        if any("://" in node for node in nodes):
            said = cls.parse(nodes[0] if len(nodes) == 1 else nodes)
            if said.password is not None:
                username, password = said.username, said.password
            name = said.client_name or client_name
            tls = said.tls or tls or None
            return cls(said.nodes, password, username, tls, name, said.hints and hints)
        known = [str(parse_address(node)) for node in nodes]
        return cls(tuple(known), password, username, tls or None, client_name, hints)

    @property
    def login(self) -> Login:
        """How to log in to the nodes."""
        return Login(self.username, self.password, self.tls, self.client_name)

    def only(self, node: str) -> Self:
        """Return this cluster with only one of its nodes, by address."""
        return replace(self, nodes=(node,))

    def named_after(self, program: str) -> Self:
        """Return this cluster with connections named ``program:host:pid``, unless already named."""
        if self.client_name is not None:
            return self
        host = re.sub("[^!-~]", "?", socket.gethostname())
        return replace(self, client_name=f"{program}:{host}:{os.getpid()}")

    @property
    def urls(self) -> list[str]:
        """URLs of the nodes, without secrets."""
        scheme = "disques" if self.tls else "disque"
        return [f"{scheme}://{node}" for node in self.nodes]


def _take_options(options: dict[str, str], query: str, encrypted: bool) -> None:
    """Add the options after a URL's question mark to ``options``. Raises ValueError."""
    try:
        found = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise ValueError(_FORM) from None
    for name, value in found:
        if name not in _OPTIONS and name not in (_CLIENT_NAME, _HINTS):
            known = ", ".join([_CLIENT_NAME, _HINTS, *_OPTIONS])
            raise ValueError(f"the URL of a node has no option {name!r}; the options are {known}")
        if not encrypted and name in _OPTIONS:
            raise ValueError(f"the option {name} is for nodes with TLS: disques://")
        if not value or options.setdefault(name, value) != value:
            raise ValueError(f"{name} needs one value in the URL of a cluster")


def _truth(name: str, text: str, words: Mapping[str, bool]) -> bool:
    if text.lower() not in words:
        raise ValueError(f"{name} in the URL of a node must be one of {', '.join(words)}")
    return words[text.lower()]


def _tls(options: Mapping[str, str]) -> Tls:
    values: dict[str, Any] = {}
    for name, text in options.items():
        words = {"ssl_check_hostname": _TRUTH, "ssl_cert_reqs": _CHECKS}.get(name)
        values[_OPTIONS[name]] = text if words is None else _truth(name, text, words)
    return Tls(**values)
