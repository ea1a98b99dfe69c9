"""What one process of a server tells another about a client that it hands over, as bytes.

The form is that of requests: the first one tells about the client, the others are what it has sent
and what has not been served yet.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from disque_trio.resp.command import encode_command


class HandedClient(NamedTuple):
    """A client that is handed over.

    Attributes:
        id, address, created, active: as in ``Connection`` and ``Client``.
        user: the name of its user. rules: what that may do, and its passwords.
        resp, name, lib_name, lib_ver, last_command: as in ``Client``.
        looks, home: as in ``ClientPlace``.
        rest: as in ``MovableConnection``.
    """

    id: int
    address: str
    created: int
    active: int
    user: bytes
    rules: bytes
    resp: int
    name: bytes
    lib_name: bytes
    lib_ver: bytes
    last_command: str
    looks: int
    home: int
    rest: int


def pack(kind: bytes, number: int, client: HandedClient, requests: Sequence[list[bytes]]) -> bytes:
    """A message of this ``kind`` and ``number`` about ``client``, with ``requests`` that have not
    been served."""
    about = encode_command([kind, number, *client])
    return about + b"".join([encode_command(request) for request in requests])


def unpack(words: Sequence[bytes]) -> HandedClient:
    """The client of a message, from the words that follow its kind and number. Raises
    ``ValueError``."""
    types = HandedClient.__annotations__.values()
    values: list[Any] = [_value(kind, word) for kind, word in zip(types, words, strict=True)]
    return HandedClient(*values)


def _value(kind: type, word: bytes) -> int | str | bytes:
    if kind is int:
        return int(word)
    return word.decode("utf-8", "surrogateescape") if kind is str else word
