"""The budgets of users on each node, from INFO users."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from disque_trio.overview.nodes import NodeState

_PREFIX: Final = "user_"
_SIZES: Final = frozenset({"memory", "output"})
_NEAR: Final = 0.9  # of a limit


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a user on a node.

    Attributes:
        name: what it limits: memory, keys, schedules, bindings, connections, output.
        used, most: bytes or a number.
    """

    name: str
    used: int
    most: int

    @property
    def is_size(self) -> bool:
        """Whether these are bytes."""
        return self.name in _SIZES

    @property
    def near(self) -> bool:
        """Whether nearly all is used."""
        return self.used >= _NEAR * self.most


@dataclass(frozen=True, slots=True)
class UserBudget:
    """The budget of a user on one node.

    Attributes:
        user: name of the user. node: address of the node.
        limits: those that the user has, except the rate.
        rate: commands a second; 0: no limit.
        waited, refused, closed: how often its connections waited for the rate, its commands and
            logins were refused, its connections closed.
    """

    user: str
    node: str
    limits: tuple[Limit, ...]
    rate: int
    waited: int
    refused: int
    closed: int


def budgets(states: Iterable[NodeState]) -> list[UserBudget]:
    """The budgets on all nodes that respond, by user and node."""
    found = []
    for state in states:
        for name, text in state.info.items() if state.here else ():
            if name.startswith(_PREFIX):
                found.append(_read(name.removeprefix(_PREFIX), state.address, text))
    return sorted(found, key=lambda budget: (budget.user, budget.node))


def _read(user: str, node: str, text: str) -> UserBudget:
    """The budget in a field of INFO. What cannot be read is left out: another release may say
    more."""
    numbers: dict[str, int] = {}
    for word in text.split(","):
        name, _, value = word.partition("=")
        if value.isdecimal():
            numbers[name] = int(value)
    limits = [
        Limit(name, used, numbers[f"max{name}"])
        for name, used in numbers.items()
        if numbers.get(f"max{name}")
    ]
    rate, *counts = [numbers.get(name, 0) for name in ("rate", "waited", "refused", "closed")]
    return UserBudget(user, node, tuple(limits), rate, *counts)
