"""The definition of a task."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypedDict, get_args

from disque_trio.job_options import OPTIONS
from disque_trio.tasks import uniqueness
from disque_trio.tasks.depends import signature_of
from disque_trio.tasks.serializers import Serializer, fingerprint

Unique: TypeAlias = bool | Callable[..., str]
"""Whether to add no job while there is one like it, or a function that makes a key from the
arguments."""

Backoff: TypeAlias = tuple[float, float] | Callable[[int, BaseException], float]
"""The shortest and the longest pause before a retry, in seconds; or a function that returns the
pause after the attempt of that number, the first being 1, which failed with that exception."""

Results: TypeAlias = Literal["memory", "store"]
"""Where results are kept: in the memory of nodes for a minute, or as jobs for a day."""

DEFAULT_BACKOFF: Final = (1.0, 600.0)
_SAID: Final = {"retry": "redeliver_after"}  # what tasks call options of their jobs


class QueueOptions(TypedDict, total=False):
    """Properties of a queue, which are set in its policy (QSET) when a worker starts.

    Keys:
        active: how many of its jobs all workers together may have in hand.
        rate: how many of its jobs all workers together may start: ``50/s``, ``300/m`` or
            ``1000/h``.
        burst: how many of these at once after a pause.
        groups: ``fair``: the groups of its jobs take turns; ``fifo``: they also have only one job
            in hand, in order.
        group_active, group_rate, group_burst: as ``active`` and so on, for the jobs of each group.
            Without ``groups`` they imply ``fair``.
        dead: the queue for its dead letters; by default the one that its policy has, or
            ``<queue>.dead``.
    """

    active: int | None
    rate: str | None
    burst: int | None
    groups: str | None
    group_active: int | None
    group_rate: str | None
    group_burst: int | None
    dead: str | None


class DeclaredQueue(QueueOptions, total=False):
    """Properties of a queue with those that jobs of tasks have of their own.

    Keys:
        replicate: how many nodes must hold a job that does not say it.
    """

    replicate: int | None


def name_of(function: Callable[..., Any]) -> str:
    """Return the module and name of a function.

    A function in the program's main module gets the name that it has where a worker imports it,
    whether the program was started by module name or as a file. Raises TypeError if ``function`` is
    not a function.
    """
    if not (callable(function) and hasattr(function, "__qualname__")):
        raise TypeError(f"a task is made from a function, not from {function!r}")
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
        name: the name of the task in jobs.
        function: the function to call.
        queue: the queue for its jobs.
        serializer: the serializer of its arguments and results.
        retries: how often a failed job is tried again.
        backoff: see ``Backoff``.
        retry_for: the exceptions after which a job is tried again; None: after all.
        never_for: the exceptions after which it is not, although ``retry_for`` has them.
        timeout: how long the function may take, in seconds; None: forever.
        process: whether it runs in a process that runs nothing else meanwhile.
        unique: see ``Unique``; None: as False, but jobs that tasks add have keys all the same.
        results: where its results are kept; None: where the app says.
        group_by: makes the name of a job's group from the arguments; None: nothing does.
        options: options of ADDJOB, named as in ``Client.add``.

    Raises:
        TypeError, ValueError: the definition is invalid.
    """

    name: str
    function: Callable[..., Any]
    queue: str
    serializer: Serializer
    retries: int = 5
    backoff: Backoff = DEFAULT_BACKOFF
    retry_for: tuple[type[BaseException], ...] | None = None
    never_for: tuple[type[BaseException], ...] = ()
    timeout: float | None = None
    process: bool = False
    unique: Unique | None = None
    results: Results | None = None
    group_by: Callable[..., object] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a task needs a name")
        if inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function):
            raise TypeError(f"{self.name} is a generator, whose values would be lost")
        self._check_types()
        if self.retries < 0:
            raise ValueError(f"retries must be 0 or more, not {self.retries}")
        if not callable(self.backoff):
            shortest, longest = self.backoff
            if not 0 <= shortest <= longest:
                raise ValueError(f"backoff must be (shortest, longest) in s, not {self.backoff}")
        for name, types in (("retry_for", self.retry_for or ()), ("never_for", self.never_for)):
            if not isinstance(types, tuple) or not all(_is_exception(one) for one in types):
                raise TypeError(f"{name} must be a tuple of exception classes, not {types!r}")
        if self.results not in (None, *get_args(Results)):
            raise ValueError(f"results must be memory or store, not {self.results!r}")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"the timeout must be more than 0 seconds, not {self.timeout}")
        for name, value in self.options.items():
            if name in OPTIONS:
                OPTIONS[name].check(_SAID.get(name, name), value)
        uniqueness.check(self.options, self.unique)
        if "debounce" in self.options and "delay" in self.options:
            raise ValueError("debounce cannot be combined with delay")
        if self.group_by is not None and "group" in self.options:
            raise ValueError("give either a group or group_by")

    def _check_types(self) -> None:
        """Raise TypeError for options that can be known to be wrong, or only a run would tell."""
        pauses: object = self.backoff
        wanted = {
            "retries must be a whole number": _is_number(self.retries, Integral),
            "backoff must be (shortest, longest) in s, or a function": callable(pauses)
            or (
                isinstance(pauses, tuple | list)
                and len(pauses) == 2
                and all(_is_number(pause, Real) for pause in pauses)
            ),
            "timeout must be a number of seconds": self.timeout is None
            or _is_number(self.timeout, Real),
            "process must be True or False": isinstance(self.process, bool),
            "replace must be True or False": isinstance(self.options.get("replace", False), bool),
            "unique must be True, False or a function": self.unique is None
            or isinstance(self.unique, bool | str)
            or callable(self.unique),
            "group_by must be a function": self.group_by is None or callable(self.group_by),
        }
        for text, is_so in wanted.items():
            if not is_so:
                name = text.partition(" ")[0]
                found = self.options.get(name) if name == "replace" else getattr(self, name)
                raise TypeError(f"{text}, not {found!r}")

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    def check(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, all_there: bool = True
    ) -> None:
        """Raise TypeError if the function does not take these arguments.

        Args:
            all_there: whether these are all arguments; False: others may come before or after them.
        """
        signature = signature_of(self.function)
        (signature.bind if all_there else signature.bind_partial)(*args, **kwargs)

    def problem(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Return why the function does not take these arguments; empty if it does."""
        try:
            self.check(args, kwargs)
        except TypeError as error:
            return f"{self.name}: {error}"
        return ""

    def group(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """Return the group of a job with these arguments; None: it has none of its own."""
        found = None if self.group_by is None else self.group_by(*args, **kwargs)
        return None if found is None else str(found)

    def key(
        self, unique: Unique | str | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> str | None:
        """Return the key of a job with these arguments; None if it has none, and empty if it must
        have none.

        Equivalent calls have the same key, however their arguments are passed.
        """
        if unique is None:
            return None
        if unique is False:
            return ""
        if unique is not True:
            said = unique if isinstance(unique, str) else unique(*args, **kwargs)
            return f"{self.name} {said}"
        call = signature_of(self.function).bind(*args, **kwargs)
        call.apply_defaults()
        data = fingerprint(self.serializer, [call.args, sorted(call.kwargs.items())])
        return f"{self.name} {sha256(data).hexdigest()}"


def _is_number(one: object, kind: type) -> bool:
    return isinstance(one, kind) and not isinstance(one, bool)


def _is_exception(one: object) -> bool:
    return isinstance(one, type) and issubclass(one, BaseException)
