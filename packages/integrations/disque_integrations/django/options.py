"""The OPTIONS of a backend."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from disque_trio.client.urls import Cluster

DAY: Final = 86400


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """The options of a backend; times in seconds.

    Attributes:
        url: the nodes, as ``disque[s]://[[user]:password@]host[:port]``; several are separated by
            semicolons, or in a list.
        prefix: a queue is called ``PREFIX.queue`` on the nodes.
        retry_for: how long enqueuing keeps trying if there is no node.
        retry: the time after which a task goes to another worker at the latest, if nothing was
            heard of the worker that has it.
        task_ttl: how long a task waits at most, counted from ``run_after``.
        result_ttl: how long to keep the result.
        replicate: how many nodes must have a task; None: the node's default.
        modules: names of modules and packages with tasks, besides the ``tasks`` of apps and of the
            project: a worker imports only these.
    """

    url: str | list[str] = "disque://127.0.0.1:7711"
    prefix: str = "django"
    retry_for: float = 5.0
    retry: int = 20
    task_ttl: int = 30 * DAY
    result_ttl: int = DAY
    replicate: int | None = None
    modules: list[str] | tuple[str, ...] = ()

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> "BackendOptions":
        """Read the given options.

        Raises:
            ValueError: an option is unknown or invalid.
        """
        unknown = given.keys() - {field.name for field in fields(cls)}
        if unknown:
            raise ValueError(f"unknown: {', '.join(sorted(map(str, unknown)))}")
        options = cls(**given)
        urls = [options.url] if isinstance(options.url, str) else options.url
        if not isinstance(urls, list | tuple) or not all(isinstance(url, str) for url in urls):
            raise ValueError("url must be a string or a list of strings")
        options.cluster()
        if not isinstance(options.prefix, str):
            raise ValueError("prefix must be a string")
        if not isinstance(options.modules, list | tuple) or not all(
            isinstance(name, str) and name for name in options.modules
        ):
            raise ValueError("modules must be a list of names of modules")
        seconds = options.retry_for
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
            raise ValueError(f"retry_for must be a number of 0 or more, not {seconds!r}")
        for name in ("retry", "task_ttl", "result_ttl", "replicate"):
            value = getattr(options, name)
            if value is None and name == "replicate":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive integer, not {value!r}")
        return options

    def cluster(self) -> Cluster:
        """Return the cluster of the nodes."""
        return Cluster.parse(self.url)

    def queue(self, name: str) -> str:
        """Return the name of a queue on the nodes."""
        return f"{self.prefix}.{name}" if self.prefix else name

    def results(self, id: str) -> str:
        """Return the queue on the nodes that has the result of a task."""
        return self.queue(f"results.{id}")
