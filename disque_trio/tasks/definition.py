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
    it, whether that was run by its name or as a file. Raises TypeError: it is no function."""
    if not (callable(function) and hasattr(function, "__qualname__")):
        raise TypeError(f"a task is made of a function, not of {function!r}")
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

    Raises:
        TypeError, ValueError: something of it makes no sense.
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

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a task needs a name")
        if inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function):
            raise TypeError(f"{self.name} is a generator, whose values nobody would get")
        if self.retries < 0:
            raise ValueError(f"retries are 0 or more, not {self.retries}")
        shortest, longest = self.backoff
        if not 0 <= shortest <= longest:
            raise ValueError(f"a backoff is (shortest, longest) in seconds, not {self.backoff}")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"a timeout is more than 0 seconds, not {self.timeout}")
        if "unique_for" in self.options and self.unique is False:
            raise ValueError("unique_for needs unique")

    @property
    def is_async(self) -> bool:
        """Whether the function is awaited."""
        return inspect.iscoroutinefunction(self.function)

    def check(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, all_there: bool = True
    ) -> None:
        """Raise TypeError where the function does not take these arguments. ``all_there``: no
        others will come before or behind them."""
        signature = _signature(self.function)
        (signature.bind if all_there else signature.bind_partial)(*args, **kwargs)

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
