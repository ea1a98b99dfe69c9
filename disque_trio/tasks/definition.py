"""What is said of a task when it is defined."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

from disque_trio.tasks.serializers import Serializer

Unique: TypeAlias = bool | Callable[..., str]
"""Whether a job may not be added while there is one like it, or what makes the key of its
arguments."""


_signature = lru_cache(maxsize=1000)(inspect.signature)


def name_of(function: Callable[..., Any]) -> str:
    """Module and name of a function: in the program that is run the same as where a worker imports
    it, whether that was run by its name or as a file."""
    module = function.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        file = getattr(main, "__file__", None)
        if spec is not None:
            module = spec.name
        elif file is not None:
            module = Path(file).stem
    return f"{module}.{function.__qualname__}"


@dataclass(frozen=True, slots=True)
class Definition:
    """A task.

    Attributes:
        name: of the task, in jobs.
        function: what is called.
        queue: where its jobs go.
        serializer: of its arguments and results.
        retries: how often it is tried again.
        backoff: shortest and longest pause before that, s.
        timeout: s that it may take; None: any time.
        unique: see ``Unique``.
        options: of ADDJOB, by the names of ``Client.add``.
    """

    name: str
    function: Callable[..., Any]
    queue: str
    serializer: Serializer
    retries: int = 5
    backoff: tuple[float, float] = (1.0, 600.0)
    timeout: float | None = None
    unique: Unique = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_async(self) -> bool:
        """Whether the function is awaited."""
        return inspect.iscoroutinefunction(self.function)

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise TypeError where the function does not take these arguments."""
        _signature(self.function).bind(*args, **kwargs)

    def key(
        self, unique: Unique | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> str | None:
        """The key of a job with these arguments: the same for the same call, however its
        arguments are given. None: it has none."""
        if unique is False:
            return None
        if unique is not True:
            said = unique if isinstance(unique, str) else unique(*args, **kwargs)
            return f"{self.name} {said}"
        call = _signature(self.function).bind(*args, **kwargs)
        call.apply_defaults()
        data = self.serializer.dumps([call.args, sorted(call.kwargs.items())])
        return f"{self.name} {sha256(data).hexdigest()}"
