"""Where a cluster is, as a URL says it: ``disque://:password@host:7711,host2:7711``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote

from disque_trio.client.nodes import parse_address

DEFAULT = "disque://127.0.0.1:7711"

_FORM = "the URL of a node has to be like disque://:password@host:7711"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Some nodes of a cluster, and what they want to hear.

    Attributes:
        nodes: addresses as ``connect`` takes them.
        password: for AUTH; None: there is none.
    """

    nodes: tuple[str, ...]
    password: str | None = None

    @classmethod
    def parse(cls, urls: str | Sequence[str]) -> Self:
        """The cluster behind ``disque://[:PASSWORD@]HOST[:PORT]`` or ``disque://unix:/PATH``.

        Several nodes have commas or semicolons between them, or are a list; the scheme and the
        password may be left out but for the first. Percent signs in the password are understood.

        Raises:
            ValueError: there is none, it cannot be read, or there are several passwords. The text
                does not tell the password.
        """
        if isinstance(urls, str):
            urls = urls.replace(";", ",").split(",")
        nodes: list[str] = []
        passwords: set[str] = set()
        for url in urls:
            scheme, mark, rest = url.strip().rpartition("://")
            if scheme != "disque" and (mark or not nodes):
                raise ValueError(_FORM)
            secret, at, place = rest.rpartition("@")
            place = place.rstrip("/")
            if (at and not secret.startswith(":")) or (
                not place.startswith("unix:") and any(letter in place for letter in "/?#")
            ):
                raise ValueError(_FORM)
            try:
                nodes.append(str(parse_address(place)))
            except ValueError as error:
                raise ValueError(f"{_FORM}: {error}") from None
            if secret[1:]:
                passwords.add(unquote(secret[1:]))
        if not nodes:
            raise ValueError("there is no URL of a node")
        if len(passwords) > 1:
            raise ValueError("the nodes of a cluster have one password")
        return cls(tuple(nodes), next(iter(passwords), None))
