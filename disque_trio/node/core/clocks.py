"""Compares this node's clock with those of the other nodes.

A node asks the others for their time now and then. Their clocks were read somewhere between the
question and the answer, so an offset is known to half of what that took: only what is certain
counts.
"""

from typing import Final

from disque_trio.node.core.rpc.calls import CLOCK, Question
from disque_trio.node.core.rpc.services import Services
from disque_trio.protocol.fields import Field, number_of, pack_number

TIMEOUT: Final = 5_000  # ms to wait for answers
KEPT: Final = 120_000  # ms for which an offset is believed
_TIME: Final = 2  # type of the field with the time, in ms since the epoch


class Offset:
    """How far the clock of another node is ahead.

    Attributes:
        least: ms that it is ahead at least; negative: behind.
        at: when that was found, in ms.
    """

    __slots__ = ("at", "least")

    def __init__(self, least: int, at: int) -> None:
        self.least = least
        self.at = at


class Clocks:
    """The clocks of the other nodes, as one node sees them.

    Attributes:
        offsets: of the nodes that have answered, by id.
    """

    def __init__(self, services: Services) -> None:
        self.offsets: dict[bytes, Offset] = {}
        self._machine = services.machine
        self._peers = services.peers
        self._rpc = services.rpc
        self._asked = 0
        self._seen: set[bytes] = set()  # those that have answered the current question
        services.rpc.handlers[CLOCK] = self._tell

    def ask(self, now: int) -> None:
        """Ask all nodes that can be reached for their time, at ``now`` (ms)."""
        self._machine.now = self._asked = now
        self._seen.clear()
        self._rpc.call(CLOCK, [], self._peers.reachable, TIMEOUT, self._hear)

    def _tell(self, sender: bytes, fields: list[Field]) -> list[Field] | None:
        """Answer another node."""
        return [(_TIME, pack_number(self._machine.now))]

    def _hear(self, question: Question) -> None:
        """Take the answers that have come since the last time."""
        now = self._machine.now
        for id, fields in question.answers.items():
            if id in self._seen:
                continue
            self._seen.add(id)
            theirs = number_of(fields, _TIME)
            if theirs:
                self.offsets[id] = Offset(_certain(theirs, self._asked, now), now)

    def ahead(self, now: int, more_than: int) -> list[tuple[bytes, int]]:
        """The reachable nodes whose clocks differ from this one's by more than so many ms at
        ``now``, and by how many they are ahead; negative: behind."""
        found: list[tuple[bytes, int]] = []
        for id in self._peers.reachable:
            offset = self.offsets.get(id)
            if offset is not None and abs(offset.least) > more_than and now - offset.at < KEPT:
                found.append((id, offset.least))
        for id in [id for id in self.offsets if not self._peers.knows(id)]:
            del self.offsets[id]
        return found


def _certain(theirs: int, asked: int, heard: int) -> int:
    """By how many ms a clock that said ``theirs`` between ``asked`` and ``heard`` is ahead at
    least; 0: it may be right; negative: behind."""
    if theirs > heard:
        return theirs - heard
    return theirs - asked if theirs < asked else 0
