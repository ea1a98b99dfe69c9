"""pressure: bounded, synchronised, exclusive FIFO queues in any Redis (protocol 0.15)."""

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
from disque_trio.pressure.queue import PressureQueue, Stats
from disque_trio.pressure.roles import Consumer, Producer

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
