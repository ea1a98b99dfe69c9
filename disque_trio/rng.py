"""The random number generator that a driver passes to a state machine."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Rng(Protocol):
    """The methods of ``random.Random`` that state machines use."""

    def random(self) -> float: ...
    def getrandbits(self, k: int, /) -> int: ...
    def choice(self, seq: Sequence[T]) -> T: ...
    def sample(self, population: Sequence[T], k: int) -> list[T]: ...
