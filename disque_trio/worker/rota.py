"""Which queue is asked first: weights and their rota."""

from collections.abc import Sequence
from typing import NamedTuple


class QueueWeight(NamedTuple):
    """A queue, and how often it is asked first beside the others (at least 1)."""

    name: str
    weight: int


def parse_queues(text: str) -> list[QueueWeight]:
    """Read ``mail,sms:5``. A name that ends in a colon and digits needs a weight of its own.

    Raises:
        ValueError: the text says why.
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


class Rota:
    """Gives out orders of queues in which each comes first as often as its weight says, evenly
    spread: a a b a a c, not a a a a b c.

    Args:
        queues: at least one.
        strict: there is one order, in which they are named.

    Attributes:
        orders: the names, the one to be asked first at the front, the others by their weights.
    """

    def __init__(self, queues: Sequence[QueueWeight], *, strict: bool = False) -> None:
        # Of equal ones each is asked first in turn, so that none waits for ever.
        by_weight = sorted(queues, key=lambda queue: -queue.weight)
        firsts = queues[:1] if strict else queues
        rest = queues if strict else by_weight
        self.orders = [
            (first.name, *(other.name for other in rest if other.name != first.name))
            for first in firsts
        ]
        self._weights = [queue.weight for queue in firsts]
        self._due = [0] * len(firsts)

    def next(self) -> int:
        """The index of the order to ask by now."""
        # The smooth round robin: who is due most goes, and is then due later than all others.
        self._due = [due + weight for due, weight in zip(self._due, self._weights, strict=True)]
        chosen = max(range(len(self._due)), key=self._due.__getitem__)
        self._due[chosen] -= sum(self._weights)
        return chosen
