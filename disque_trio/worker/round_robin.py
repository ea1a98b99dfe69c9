"""Decides which queue to ask first, by weights."""

from collections.abc import Sequence
from typing import NamedTuple


class QueueWeight(NamedTuple):
    """A queue, and how often to ask it first relative to the others (at least 1)."""

    name: str
    weight: int


def parse_queues(text: str) -> list[QueueWeight]:
    """Parse ``mail,sms:5``. A name that ends in a colon and digits must be given with a weight.

    Raises:
        ValueError: the text is malformed; the message says why.
    """
    queues: list[QueueWeight] = []
    for word in text.split(","):
        name, colon, digits = word.strip().rpartition(":")
        if not (colon and digits.isascii() and digits.isdigit()):
            name, digits = word.strip(), "1"
        if not name:
            raise ValueError(f"a queue without a name in {text!r}")
        weight = int(digits)
        if not 1 <= weight <= 1000:
            raise ValueError(f"the weight of queue {name!r} is not between 1 and 1000")
        if any(queue.name == name for queue in queues):
            raise ValueError(f"queue {name!r} is named twice")
        queues.append(QueueWeight(name, weight))
    return queues


class RoundRobin:
    """Returns orders of queues, in which each queue comes first as often as its weight says, evenly
    spread: a a b a a c, not a a a a b c.

    Args:
        queues: the queues, at least one.
        strict: whether there is only one order, that of ``queues``.
        then: queues that each order has after these.

    Attributes:
        orders: names of queues: the one to ask first, then the others by weight.
    """

    def __init__(
        self,
        queues: Sequence[QueueWeight],
        *,
        strict: bool = False,
        then: Sequence[QueueWeight] = (),
    ) -> None:
        # Queues of equal weight are asked first in turn, so that none waits forever.
        by_weight = sorted(queues, key=lambda queue: -queue.weight)
        firsts = queues[:1] if strict else queues
        rest = queues if strict else by_weight
        last = [queue.name for queue in then]
        self.orders = [
            (first.name, *(other.name for other in rest if other.name != first.name), *last)
            for first in firsts
        ]
        self._weights = [queue.weight for queue in firsts]
        self._due = [0] * len(firsts)

    def next(self) -> int:
        """Return the index of the order to use now."""
        # Smooth round robin: the queue that is most due is chosen, and is then due last.
        self._due = [due + weight for due, weight in zip(self._due, self._weights, strict=True)]
        chosen = max(range(len(self._due)), key=self._due.__getitem__)
        self._due[chosen] -= sum(self._weights)
        return chosen
