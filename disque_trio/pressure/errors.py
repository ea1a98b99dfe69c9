"""The errors of queues, one class for each case, named as in other clients of pressure.

Every error knows the queue it is about. All of them mean that the role was given back (or was
never taken), unless its docstring says otherwise.
"""


class PressureError(Exception):
    """Base of all errors of this package.

    Attributes:
        queue: the name of the queue.
        done: how many elements of a ``put_many`` are known to be in the queue nevertheless, the
            first ones; 0 for other operations.
    """

    def __init__(self, queue: str, message: str) -> None:
        super().__init__(message)
        self.queue = queue
        self.done = 0


class QueueAlreadyExistsError(PressureError):
    """A queue cannot be created twice."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue, f"queue {queue!r} already exists")


class QueueDoesNotExistError(PressureError):
    """There is no such queue, or it was deleted meanwhile."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue, f"queue {queue!r} does not exist")


class QueueClosedError(PressureError):
    """Nothing can be put into a closed queue; nothing is left to get from it."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue, f"queue {queue!r} is closed")


class QueueFullError(PressureError):
    """The queue holds as many elements as its bound allows, and so it stayed until the timeout."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue, f"queue {queue!r} is full")


class QueueEmptyError(PressureError):
    """The queue has no element, and so it stayed until the timeout; it is still open."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue, f"queue {queue!r} is empty")


class QueueInUseError(PressureError):
    """Another client is the producer (or the consumer), and so it stayed until the timeout.

    Attributes:
        user: the id of that client as it wrote it into the queue; "" if it did not.
        role: "producer" or "consumer".
    """

    def __init__(self, queue: str, user: str, role: str) -> None:
        who = repr(user) if user else "a client that has not given its id"
        super().__init__(queue, f"{role} {who} is using queue {queue!r}")
        self.user = user
        self.role = role


class QueueBusyError(PressureError):
    """A queue of this name is just being deleted, or what is left of one is in the way.

    Attributes:
        keys: the keys that are left.
    """

    def __init__(self, queue: str, keys: list[str]) -> None:
        left = ", ".join(keys)
        super().__init__(
            queue,
            f"queue {queue!r} is being deleted, or was left half deleted; still there: {left}",
        )
        self.keys = keys


class RoleLostError(PressureError):
    """The role was taken away while we held it: its lease ran out, or somebody repaired the queue.

    Attributes:
        role: "producer" or "consumer".
    """

    def __init__(self, queue: str, role: str) -> None:
        super().__init__(queue, f"the role of {role} of queue {queue!r} was taken away from us")
        self.role = role


class WrongTypeError(PressureError):
    """A key of the queue holds something else than the protocol says. Nothing was changed.

    Attributes:
        key: the key. found: the type that Redis tells, or the value if only that is wrong.
    """

    def __init__(self, queue: str, key: str, expected: str, found: str) -> None:
        super().__init__(queue, f"key {key!r} of queue {queue!r} is not {expected} but {found}")
        self.key = key
        self.expected = expected
        self.found = found


class InvalidNameError(PressureError, ValueError):
    """The name cannot be that of a queue: empty, or its data would be a key of another queue."""


class PressureConnectionError(PressureError):
    """Redis cannot be reached, or the connection broke while a command was under way.

    Roles that were held are given back by the lease if they cannot be now.

    Attributes:
        maybe_executed: the command may have taken effect before the connection broke; then more
            than ``done`` elements of a ``put_many`` may be in the queue.
    """

    def __init__(self, queue: str, message: str, maybe_executed: bool = False) -> None:
        super().__init__(queue, message)
        self.maybe_executed = maybe_executed


class ServerRefusedError(PressureError):
    """Redis refused the command: out of memory, read-only, not permitted... Nothing was changed."""
