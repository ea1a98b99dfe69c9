"""What came of an action."""

from collections import Counter
from collections.abc import Sequence

from disque_console.model.action import Action, Form, Order
from disque_trio import humanize
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import ConnectionLost, DisqueError, NoReplError


def is_unconfirmed(order: Order, reply: Reply) -> bool:
    """Whether a job has been changed, but some nodes that hold it have not confirmed that yet. They
    will be told again."""
    return order.command[0] == "UPDATEJOB" and isinstance(reply, NoReplError)


class ActionReplies:
    """The replies to the commands of an action.

    Attributes:
        good: those that are no errors. unconfirmed: how many of them ``is_unconfirmed``.
    """

    def __init__(self) -> None:
        self.good: list[Reply] = []
        self.unconfirmed = 0
        self._problems: Counter[str] = Counter()

    def hear(self, order: Order, address: str, reply: Reply) -> None:
        """Note a reply of the node at ``address``. It may be a list with errors among it."""
        if isinstance(reply, list):
            for part in reply:
                self.hear(order, address, part)
        elif is_unconfirmed(order, reply):
            self.unconfirmed += 1
            self.good.append(b"OK")
        elif isinstance(reply, DisqueError):
            self._problems[_problem(address, reply)] += 1
        else:
            self.good.append(reply)

    @property
    def problems(self) -> Sequence[str]:
        """The distinct errors, with counts."""
        counts = self._problems.items()
        return [text if count == 1 else f"{text} ({count:,} times)" for text, count in counts]

    @property
    def result(self) -> str:
        """For the audit."""
        if not self._problems:
            return "done"
        return "partly done" if self.good else "failed"

    def says(self, action: Action, form: Form) -> str:
        """The message for the visitor."""
        problems = self.problems
        words = [action.says(form, self.good)] if self.good or not problems else []
        if self.unconfirmed:
            jobs = humanize.jobs(self.unconfirmed)
            words.append(f"For {jobs}, some nodes have not confirmed this: they are told again.")
        if problems:
            head = "Partly failed: " if self.good else "Not done: "
            words.append(head + "; ".join(problems) + ".")
        return " ".join(words)


def _problem(address: str, error: DisqueError) -> str:
    text = str(error)
    if isinstance(error, ConnectionLost) and error.maybe_executed:
        text += " (it may have been done anyway)"
    text = text.removesuffix(".")
    return text if not address or address in text else f"{address}: {text}"
