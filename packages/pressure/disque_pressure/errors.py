"""The errors of queues, one class for each case, named as in other clients of pressure.

Every error knows its queue. Unless its docstring says otherwise, an error means that the role was
given back, or never taken.
"""


class PressureError(Exception):
    """Base class of all errors of this package.

    Attributes:
        queue: the name of the queue.
        done: how many elements of a ``put_many``, counted from the first, are known to be in the
            queue nevertheless; 0 for other operations.
    """

    def __init__(self, queue: str, message: str) -> None:
        super().__init__(message)
        self.queue = queue
        self.done = 0


class QueueAlreadyExistsError(PressureError):
    """The queue to be created already exists."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue, f"queue {queue!r} already exists")


class QueueDoesNotExistError(PressureError):
    """The queue does not exist, or was deleted meanwhile."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue, f"queue {queue!r} does not exist")


class QueueClosedError(PressureError):
    """The queue is closed: nothing can be put into it, or nothing is left to get from it."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue, f"queue {queue!r} is closed")


class QueueFullError(PressureError):
    """The queue had as many elements as its bound allows, until the timeout."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue, f"queue {queue!r} is full")


class QueueEmptyError(PressureError):
    """The queue had no elements until the timeout. It is still open."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue, f"queue {queue!r} is empty")


class QueueInUseError(PressureError):
    """Another client was the producer (or the consumer) until the timeout.

    Attributes:
        user: the id that this client wrote into the queue; "" if it wrote none.
        role: "producer" or "consumer".
    """

    def __init__(self, queue: str, user: str, role: str) -> None:
        who = repr(user) if user else "a client that did not give its id"
        super().__init__(queue, f"{role} {who} is using queue {queue!r}")
        self.user = user
        self.role = role


class QueueBusyError(PressureError):
    """A queue of this name is being deleted, or the remains of one are in the way.

    Attributes:
        keys: the keys that remain.
    """

    def __init__(self, queue: str, keys: list[str]) -> None:
        left = ", ".join(keys)
        super().__init__(
            queue,
            f"queue {queue!r} is being deleted, or was left half deleted; keys that remain: {left}",
        )
        self.keys = keys


class RoleLostError(PressureError):
    """The role was taken away: its lease expired, or somebody repaired the queue.

    Attributes:
        role: "producer" or "consumer".
    """

    def __init__(self, queue: str, role: str) -> None:
        super().__init__(queue, f"the role of {role} of queue {queue!r} was taken away from us")
        self.role = role


class WrongTypeError(PressureError):
    """A key of the queue does not hold what the protocol says. Nothing was changed.

    Attributes:
        key: the key.
        expected: what it should hold.
        found: the type that Redis reports, or the value if only that is wrong.
    """

    def __init__(self, queue: str, key: str, expected: str, found: str) -> None:
        super().__init__(queue, f"key {key!r} of queue {queue!r} is not {expected} but {found}")
        self.key = key
        self.expected = expected
        self.found = found


class InvalidNameError(PressureError, ValueError):
    """A queue cannot have this name: it is empty, or its data would be a key of another queue."""


class PressureConnectionError(PressureError):
    """Redis cannot be reached, or the connection broke during a command.

    If a role that was held cannot be given back now, its lease expires.

    Attributes:
        maybe_executed: whether the command may have taken effect before the connection broke. If
            so, more than ``done`` elements of a ``put_many`` may be in the queue.
    """

    def __init__(self, queue: str, message: str, maybe_executed: bool = False) -> None:
        super().__init__(queue, message)
        self.maybe_executed = maybe_executed


class ServerRefusedError(PressureError):
    """Redis refused the command (out of memory, read-only, not permitted...). Nothing changed."""
