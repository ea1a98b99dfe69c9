"""Where a cluster is, as frameworks are told: ``disque://host:7711``."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from disque_trio.client.nodes import DEFAULT_PORT


@dataclass(frozen=True, slots=True)
class Cluster:
    """Some nodes of a cluster, and what they want to hear.

    Attributes:
        nodes: ``host:port`` of each.
        password: for AUTH; None: there is none.
    """

    nodes: tuple[str, ...]
    password: str | None = None

    @classmethod
    def parse(cls, urls: str | Sequence[str]) -> "Cluster":
        """The cluster behind ``disque://[:PASSWORD@]HOST[:PORT]``, several with semicolons or
        commas between them or as a list; the scheme may be left out but for the first. Percent
        signs are understood.

        Raises:
            ValueError: there is none, it cannot be read, or it has several passwords. The text does
                not tell the password.
        """
        if isinstance(urls, str):
            urls = urls.replace(",", ";").split(";")
        nodes: list[str] = []
        passwords: set[str] = set()
        for text in urls:
            if nodes and "://" not in text:
                text = f"disque://{text.strip()}"
            try:
                parts = urlsplit(text.strip())
                host, port = parts.hostname, parts.port or DEFAULT_PORT
            except ValueError:
                raise ValueError("the URL of a node is none, or has a wrong port") from None
            if (
                parts.scheme != "disque"
                or not host
                or parts.path.strip("/")
                or parts.query
                or parts.username
            ):
                raise ValueError("the URL of a node has to be like disque://:password@host:7711")
            nodes.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
            if parts.password:
                passwords.add(unquote(parts.password))
        if not nodes:
            raise ValueError("there is no URL of a node")
        if len(passwords) > 1:
            raise ValueError("the nodes of a cluster have one password")
        return cls(tuple(nodes), next(iter(passwords), None))
