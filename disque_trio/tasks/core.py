"""What tasks, handles and runners share of an app."""

import warnings
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from disque_trio.client import Client
from disque_trio.respclient.foreign import in_async
from disque_trio.tasks.calling import Backend
from disque_trio.tasks.definition import Definition
from disque_trio.tasks.link import Link, OfLoop, OwnThread
from disque_trio.tasks.serializers import Serializers

T = TypeVar("T")


class Core:
    """The tasks of an app, its serializers, and its way to the cluster.

    Args:
        thread: a client for whoever has none.
        serializers: that are known from the start.
        key_for: seconds for which a job that is added without a key of the program's cannot be
            added once more; None: such jobs get no key.

    Attributes:
        tasks: by name.
    """

    def __init__(
        self,
        thread: OwnThread,
        serializers: Serializers,
        key_for: float | None,
        backend: Backend,
    ) -> None:
        self.tasks: dict[str, Definition] = {}
        self.serializers = serializers
        self.key_for = key_for
        self.backend: Backend = backend
        self._thread = thread
        self._links: list[Link] = []

    @property
    def link(self) -> Link:
        """The way to the cluster: the last one that is in use, or a client in a thread."""
        for link in reversed(self._links):
            if not (isinstance(link, OfLoop) and link.inherited):
                return link
        return self._thread

    @contextmanager
    def using(self, link: Link) -> Iterator[None]:
        """Within the block all goes by ``link``, in the whole process."""
        self._links.append(link)
        try:
            yield
        finally:
            self._links.remove(link)

    def close(self) -> None:
        """Close the client in the thread."""
        self._thread.close()


class Later(Generic[T]):
    """Something that is done with a client: at once if this is made in a thread, and when it is
    awaited if it is made in a task of Trio or asyncio.

    Args:
        core: whose way to the cluster is taken.
        function: what is done. It may be called again where a first await was cancelled.
        what: names it, in the warning when it was never awaited.
    """

    def __init__(self, core: Core, function: Callable[[Client], Awaitable[T]], what: str) -> None:
        self._core = core
        self._function = function
        self._what = what
        self._values: list[T] = []
        self._begun = True
        if in_async():
            self._begun = False
        else:
            self._values.append(core.link.run_sync(function))

    @property
    def done(self) -> bool:
        """Whether it has been done."""
        return bool(self._values)

    @property
    def value(self) -> T:
        """What came of it. Raises RuntimeError: it is not done yet."""
        if not self._values:
            raise RuntimeError(f"{self._what} was not awaited yet")
        return self._values[0]

    def __await__(self) -> Generator[Any, Any, T]:
        return self._do().__await__()

    async def _do(self) -> T:
        self._begun = True
        if not self._values:
            value = await self._core.link.run(self._function)
            self._values[:] = [value]
        return self._values[0]

    def __del__(self) -> None:
        if not getattr(self, "_begun", True):
            text = f"{self._what} was never awaited"
            warnings.warn(text, RuntimeWarning, stacklevel=2, source=self)
