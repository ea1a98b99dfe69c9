"""Which node is best for which queue, as a node has told. Does no I/O; callers pass in the time."""

from collections.abc import Iterable
from typing import Any, Final

from disque_trio.client.nodes import AVOID_SECONDS, Node
from disque_trio.notation.addresses import Address
from disque_trio.respclient.errors import ProtocolError
from disque_trio.respclient.randomness import RANDOM
from disque_trio.respclient.values import Name

ASK_AGAIN: Final = 10.0
"""After how many seconds to ask again which node is best for a queue, about."""

MOST_QUEUES: Final = 10_000
"""How many queues to keep in mind; those that were asked about longest ago are forgotten."""

MOST_ASKED: Final = 500
"""How many queues to ask about at once."""


class _Told:
    """What is known of a queue: its node, None before an answer came; and when to ask again."""

    __slots__ = ("again", "node")

    def __init__(self, node: Node | None, again: float) -> None:
        self.node = node
        self.again = again


class Owners:
    """The nodes that are best for queues."""

    def __init__(self) -> None:
        self._told: dict[Name, _Told] = {}
        self._avoid_until: dict[str, float] = {}

    def due(self, queues: Iterable[Name], now: float) -> list[Name]:
        """Return those of ``queues`` to ask about now; they count as asked about."""
        due: list[Name] = []
        for queue in queues:
            told = self._told.get(queue)
            if (told is None or told.again <= now) and len(due) < MOST_ASKED:
                self._told.pop(queue, None)
                node = None if told is None else told.node
                self._told[queue] = _Told(node, now + ASK_AGAIN * RANDOM.uniform(0.8, 1.0))
                due.append(queue)
        while len(self._told) > MOST_QUEUES:
            del self._told[next(iter(self._told))]
        return due

    def learn(self, queue: Name, node: Node) -> None:
        """Note the answer for a queue that was asked about."""
        told = self._told.get(queue)
        if told is not None:
            told.node = node

    def best(self, queues: Iterable[Name], now: float) -> Node | None:
        """Return the node that is best for most of ``queues``, for the first ones if several are;
        None if that is not known."""
        told = [self._told.get(queue) for queue in queues]
        nodes = [
            one.node
            for one in told
            if one is not None
            and one.node is not None
            and self._avoid_until.get(one.node.id, now) <= now
        ]
        return max(nodes, key=nodes.count) if nodes else None

    def known(self, queues: Iterable[Name]) -> bool:
        """Whether there was an answer for one of ``queues``."""
        told = [self._told.get(queue) for queue in queues]
        return any(one is not None and one.node is not None for one in told)

    def left(self, queues: Iterable[Name], now: float) -> float:
        """Return in how many seconds to ask about one of ``queues`` again."""
        told = [self._told.get(queue) for queue in queues]
        return max(min([now if one is None else one.again for one in told]) - now, 0.0)

    def avoid(self, id: str, now: float) -> None:
        """Go to another node than this one for a while, and ask again about all queues."""
        self._avoid_until[id] = now + AVOID_SECONDS
        self.ask_again(now)

    def ask_again(self, now: float) -> None:
        """Ask about all queues when they are used next."""
        for told in self._told.values():
            told.again = now


def parse_owners(reply: Any, used: Address) -> list[Node]:
    """Parse the reply to QOWNER of the node that was reached at ``used``.

    Raises:
        ProtocolError: a Disque node would not reply this.
    """
    try:
        return [
            Node(id.decode(), Address(host=ip.decode(), port=int(port)) if ip else used, 1)
            for id, ip, port in reply
        ]
    except (TypeError, ValueError, AttributeError):
        raise ProtocolError(f"{used} does not answer QOWNER like a Disque node") from None
