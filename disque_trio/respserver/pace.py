"""Limits how many commands a second the clients of a user may send together: a token bucket that
holds what may be sent in a second.

What may be sent is not served in one go, or others would wait for all of it: in a turn, no more
than what the rate gives in a millisecond.
"""

from typing import Final

WORDS: Final = 100  # of a command; a longer one counts as one for each of so many words
STEP: Final = 1_000_000  # ns of a command; one that takes longer counts as one for each of these
_PARTS: Final = 1_000  # of a command: a rate of one a second gives one of these each millisecond


class Pace:
    """What the clients of one user have sent lately. What a command costs beyond what is left is
    paid by later ones."""

    def __init__(self) -> None:
        self._spent = 0  # parts of commands
        self._since = 0  # ms
        self._turn = 0
        self._served = 0  # commands in that turn

    def left(self, rate: int, now: int) -> int:
        """Return how many commands may be served at ``now`` (ms), if ``rate`` may be each
        second."""
        passed = max(now - self._since, 0)  # the clock may be set back
        self._since = now
        self._spent = max(self._spent - passed * rate, 0)
        return max(rate * _PARTS - self._spent, 0) // _PARTS

    def left_in_turn(self, rate: int, turn: int) -> int:
        """Return how many commands may be served in the turn with this number."""
        if turn != self._turn:
            self._turn = turn
            self._served = 0
        return max(rate // _PARTS, 1) - self._served

    def spend(self, commands: int) -> None:
        """Count ``commands``, which are served."""
        self._spent += commands * _PARTS
        self._served += commands

    def spend_time(self, took: int) -> None:
        """Count ``took`` ns, as long as a part of a command ran."""
        self._spent += took * _PARTS // STEP


def cost(request: list[bytes]) -> int:
    """As how many commands ``request`` counts."""
    return 1 + len(request) // WORDS


def affordable(requests: list[list[bytes]], left: int) -> int:
    """Return how many of the first ``requests`` may be served if ``left`` commands may be; the last
    one may cost more than what is left."""
    count = 0
    for request in requests:
        if left <= 0:
            break
        left -= cost(request)
        count += 1
    return count
