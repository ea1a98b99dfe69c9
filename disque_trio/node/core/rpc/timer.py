"""When the rare work of a node is due: questions, claims of keys, changes to jobs, and so on.

One time stands for all of it, so a node that has none of it checks nothing else.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import i64


class Timer:
    """When the rare work of one node is next due.

    Attributes:
        at: when there may be something to do, in ms since the epoch; 0: never. May be too early.
    """

    def __init__(self) -> None:
        self.at: i64 = 0

    def wake_by(self, due: int) -> None:
        """Look by ``due`` (ms since the epoch; 0: not needed)."""
        if due and (self.at == 0 or due < self.at):
            self.at = due
