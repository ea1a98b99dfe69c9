"""pressure: bounded, synchronised, exclusive FIFO queues in any Redis (protocol 0.15).

Needs the extra `redis`.
"""

try:
    import coredis as _coredis  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "coredis":
        raise
    raise ImportError(
        "disque_trio.pressure needs a client of Redis: pip install disque-trio[redis]"
    ) from missing

from disque_trio.pressure.errors import (
    InvalidNameError,
    PressureConnectionError,
    PressureError,
    QueueAlreadyExistsError,
    QueueBusyError,
    QueueClosedError,
    QueueDoesNotExistError,
    QueueEmptyError,
    QueueFullError,
    QueueInUseError,
    RoleLostError,
    ServerRefusedError,
    WrongTypeError,
)
from disque_trio.pressure.queue import PressureQueue
from disque_trio.pressure.roles import Consumer, Producer
from disque_trio.pressure.stats import Stats

__all__ = [
    "Consumer",
    "InvalidNameError",
    "PressureConnectionError",
    "PressureError",
    "PressureQueue",
    "Producer",
    "QueueAlreadyExistsError",
    "QueueBusyError",
    "QueueClosedError",
    "QueueDoesNotExistError",
    "QueueEmptyError",
    "QueueFullError",
    "QueueInUseError",
    "RoleLostError",
    "ServerRefusedError",
    "Stats",
    "WrongTypeError",
]
