"""A message that is being processed."""

from typing import Any

from dramatiq.broker import MessageProxy
from dramatiq.message import Message


class TakenMessage(MessageProxy):
    """A message that is being processed.

    Attributes:
        unsent: if a retry of this message could not be enqueued, so that the message itself must
            come again: the delay in seconds. Otherwise None.
    """

    def __init__(self, message: Message[Any]) -> None:
        super().__init__(message)
        self.unsent: float | None = None


def reason_of(message: MessageProxy) -> str:
    """Return why a message failed; Dramatiq forgets that when the message is settled."""
    return str(message._exception or "")
