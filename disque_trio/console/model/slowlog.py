"""Slow commands and stalls of all nodes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import elements, integer, text

WORDS: Final = 12  # words of a command that are shown
WORD: Final = 100  # characters of each


@dataclass(frozen=True, slots=True)
class Slow:
    """A slow command. at: s since the epoch. microseconds: how long it took. more: words left
    out."""

    node: str
    id: int
    at: int
    microseconds: int
    words: tuple[str, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Stall:
    """What LATENCY says of a kind of event. at: s since the epoch, of the last one. last, worst:
    ms."""

    node: str
    event: str
    at: int
    last: int
    worst: int


def read_slow(answers: Iterable[tuple[str, Reply]]) -> list[Slow]:
    """What SLOWLOG GET said on some nodes, the newest first.

    Raises:
        ProtocolError: an answer is none of SLOWLOG GET.
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
    """What LATENCY LATEST said on some nodes, the worst first.

    Raises:
        ProtocolError: an answer is none of LATENCY LATEST.
    """
    found = []
    for node, reply in answers:
        for entry in elements(reply):
            event, at, last, worst = elements(entry, 4)
            found.append(Stall(node, text(event), integer(at), integer(last), integer(worst)))
    return sorted(found, key=lambda stall: (-stall.worst, stall.node, stall.event))
