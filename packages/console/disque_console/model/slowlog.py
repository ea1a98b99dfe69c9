"""Slow commands and stalls on all nodes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import elements, integer, text

WORDS: Final = 12  # words of a command to show
WORD: Final = 100  # characters of each


@dataclass(frozen=True, slots=True)
class Slow:
    """A slow command. at: s since the epoch. microseconds: its duration. more: number of words left
    out."""

    node: str
    id: int
    at: int
    microseconds: int
    words: tuple[str, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Stall:
    """A kind of event in LATENCY LATEST. at: of the last one (s since the epoch). last, worst:
    ms."""

    node: str
    event: str
    at: int
    last: int
    worst: int


def read_slow(answers: Iterable[tuple[str, Reply]]) -> list[Slow]:
    """Read nodes' replies to SLOWLOG GET; the newest command comes first.

    Raises:
        ProtocolError: a reply is not one to SLOWLOG GET.
    """
    found = []
    for node, reply in answers:
        for entry in elements(reply):
            id, at, took, words = elements(entry)[:4]
            given = [text(word) for word in elements(words)]
            shown = tuple(
                word if len(word) <= WORD else word[:WORD] + "…" for word in given[:WORDS]
            )
            more = len(given) - len(shown)
            found.append(Slow(node, integer(id), integer(at), integer(took), shown, more))
    return sorted(found, key=lambda slow: (-slow.at, slow.node, -slow.id))


def read_stalls(answers: Iterable[tuple[str, Reply]]) -> list[Stall]:
    """Read nodes' replies to LATENCY LATEST; the worst stall comes first.

    Raises:
        ProtocolError: a reply is not one to LATENCY LATEST.
    """
    found = []
    for node, reply in answers:
        for entry in elements(reply):
            event, at, last, worst = elements(entry, 4)
            found.append(Stall(node, text(event), integer(at), integer(last), integer(worst)))
    return sorted(found, key=lambda stall: (-stall.worst, stall.node, stall.event))
