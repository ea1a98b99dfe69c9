"""What the state machines ask of a generator of random numbers: the driver gives them one."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Rng(Protocol):
    """The methods of ``random.Random`` that are used."""

    def random(self) -> float: ...
    def getrandbits(self, k: int, /) -> int: ...
    def choice(self, seq: Sequence[T]) -> T: ...
    def sample(self, population: Sequence[T], k: int) -> list[T]: ...
