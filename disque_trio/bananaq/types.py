"""The types of bananaq's parameters: addresses, and the prefix of keys."""

from collections.abc import Sequence
from typing import NamedTuple

from disque_trio.config.errors import BadValue
from disque_trio.config.types import ParamType, Text, Word, parse_integer

REDIS_PORT = 6379


class Endpoint(NamedTuple):
    """A TCP address. ``host`` is a name or an address without brackets; empty for all addresses."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(word: str, port: int | None = None, lowest: int = 1) -> Endpoint:
    """Parse ``host:port``, ``[ipv6]:port`` or ``:port``.

    Args:
        port: the default port; None: a port is required.
        lowest: the lowest port allowed.

    Raises:
        BadValue: it is none of these.
    """
    host, colon, digits = word.rpartition(":")
    if not colon or word.endswith("]"):
        if port is None:
            raise BadValue
        host, digits = word, str(port)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise BadValue("an IPv6 address needs brackets, as in [::1]:4777")
    if any(character.isspace() or not character.isprintable() for character in word):
        raise BadValue
    return Endpoint(host, parse_integer(digits, lowest, 65535))


class ListenAddress(Word[Endpoint]):
    """Where to listen. With port 0 there is only the TLS port; empty also means no host."""

    quoted = True
    expected = (
        "HOST:PORT, :PORT for all addresses, or an empty text for no TCP; with port 0 there is "
        "only tls-port"
    )

    def parse_word(self, word: str) -> Endpoint:
        return parse_endpoint(word, lowest=0) if word else Endpoint("", 0)

    def show(self, value: Endpoint) -> str:
        return str(value) if any(value) else ""


class RedisAddresses(ParamType[tuple[Endpoint, ...]]):
    """One Redis, or some nodes of a cluster."""

    several = True
    listed = True
    expected = "HOST:PORT, or several nodes of a cluster"

    def parse(self, words: Sequence[str]) -> tuple[Endpoint, ...]:
        addresses = [address for word in words for address in word.split(",")]
        if not all(addresses) or not addresses:
            raise BadValue
        found = tuple(parse_endpoint(address, REDIS_PORT) for address in addresses)
        if not all(endpoint.host for endpoint in found):
            raise BadValue
        return found

    def show(self, value: tuple[Endpoint, ...]) -> str:
        return " ".join(self.words(value))

    def words(self, value: tuple[Endpoint, ...]) -> list[str]:
        return [str(endpoint) for endpoint in value]


class KeyPrefix(Text):
    """The prefix of keys. May have no braces, which would determine the slot in a cluster."""

    def __init__(self) -> None:
        super().__init__("text without braces, not empty", 256)

    def parse_word(self, word: str) -> str:
        if not word or "{" in word or "}" in word:
            raise BadValue
        return super().parse_word(word)
