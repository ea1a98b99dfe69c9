"""The types of bananaq's parameters: addresses, and the prefix of keys."""

from collections.abc import Sequence
from typing import NamedTuple

from disque_trio.config.errors import BadValue
from disque_trio.config.types import ParamType, Text, Word
from disque_trio.notation.addresses import format_address, read_address

REDIS_PORT = 6379


class Endpoint(NamedTuple):
    """A TCP address. ``host`` is a name or an address without brackets; empty for all addresses."""

    host: str
    port: int

    def __str__(self) -> str:
        return format_address(self.host, self.port)


def _endpoint(
    word: str, port: int | None = None, host: str | None = None, lowest: int = 1
) -> Endpoint:
    """The arguments of ``read_address``. Raises ``BadValue``."""
    try:
        found = read_address(word, port, host, lowest)
    except ValueError as wrong:
        raise BadValue(str(wrong)) from None
    return Endpoint(found.host, found.port)


class ListenAddress(Word[Endpoint]):
    """Where to listen. With port 0 there is only the TLS port; empty also means no host."""

    quoted = True
    expected = (
        "[HOST:]PORT, without a host for all addresses, or an empty text for no TCP; with port 0 "
        "there is only tls-port"
    )

    def parse_word(self, word: str) -> Endpoint:
        return _endpoint(word, host="", lowest=0) if word else Endpoint("", 0)

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
        return tuple(_endpoint(address, REDIS_PORT) for address in addresses)

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
