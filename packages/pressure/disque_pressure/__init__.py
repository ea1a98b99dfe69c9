"""pressure: bounded, synchronised, exclusive FIFO queues in any Redis (protocol 0.15).

Names are imported when they are first used, since the command's --help needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from disque_pressure.errors import (
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
    from disque_pressure.queue import PressureQueue
    from disque_pressure.roles import Consumer, Producer
    from disque_pressure.stats import Stats

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

_MODULES = {"PressureQueue": "queue", "Consumer": "roles", "Producer": "roles", "Stats": "stats"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
