"""The types of bananaq's parameters: addresses, and the prefix of keys."""

from collections.abc import Sequence

from disque_trio.config.errors import BadValue
from disque_trio.config.types import ParamType, Text, Word
from disque_trio.notation.addresses import Address, format_address, read_address

REDIS_PORT = 6379


def _address(
    word: str, port: int | None = None, host: str | None = None, lowest: int = 1
) -> Address:
    """Like ``read_address``. Raises ``BadValue``."""
    try:
        return read_address(word, port, host, lowest)
    except ValueError as wrong:
        raise BadValue(str(wrong)) from None


class ListenAddress(Word[Address]):
    """Where to listen. With port 0 there is only the TLS port; empty also means no host."""

    quoted = True
    expected = (
        "[HOST:]PORT, without a host for all addresses, or an empty text for no TCP; with port 0 "
        "there is only tls-port"
    )

    def parse_word(self, word: str) -> Address:
        return _address(word, host="", lowest=0) if word else Address()

    def show(self, value: Address) -> str:
        return "" if value == Address() else format_address(value.host, value.port)


class RedisAddresses(ParamType[tuple[Address, ...]]):
    """One Redis, or some nodes of a cluster."""

    several = True
    listed = True
    expected = "HOST:PORT, or several nodes of a cluster"

    def parse(self, words: Sequence[str]) -> tuple[Address, ...]:
        addresses = [address for word in words for address in word.split(",")]
        if not all(addresses) or not addresses:
            raise BadValue
        return tuple(_address(address, REDIS_PORT) for address in addresses)

    def show(self, value: tuple[Address, ...]) -> str:
        return " ".join(self.words(value))

    def words(self, value: tuple[Address, ...]) -> list[str]:
        return [str(address) for address in value]


class KeyPrefix(Text):
    """The prefix of keys. May have no braces, which would determine the slot in a cluster."""

    def __init__(self) -> None:
        super().__init__("text without braces, not empty", 256)

    def parse_word(self, word: str) -> str:
        if not word or "{" in word or "}" in word:
            raise BadValue
        return super().parse_word(word)
