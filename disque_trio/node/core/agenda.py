"""When the rare work of a node is due: questions, claims of keys, changes of jobs, and so on.

One time stands for all of it, so that a node that has none looks at nothing else.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import i64


class Agenda:
    """The rare work that lies ahead of one node.

    Attributes:
        at: when there may be something to do, ms since the epoch; 0: never. Too early does no harm.
    """

    def __init__(self) -> None:
        self.at: i64 = 0

    def call(self, due: int) -> None:
        """There is something to do at ``due`` (ms since the epoch; 0: nothing)."""
        if due and (self.at == 0 or due < self.at):
            self.at = due
