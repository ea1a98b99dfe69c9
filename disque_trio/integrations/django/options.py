"""The OPTIONS of a backend."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from disque_trio.client.urls import Cluster

DAY: Final = 86400


@dataclass(frozen=True, slots=True)
class Options:
    """What a project sets; times in s.

    Attributes:
        url: of the nodes, ``disque[s]://[[user]:password@]host[:port]``, several with semicolons
            or in a list.
        prefix: a queue is called ``PREFIX.queue`` on the nodes.
        retry_for: how long enqueuing goes on trying when no node is there.
        retry: when a task is given to another worker at the latest, if nobody has heard of the one
            who has it.
        task_ttl: how long a task waits at most, from ``run_after`` on.
        result_ttl: how long the result is kept.
        replicate: how many nodes must have a task; None: as the nodes say.
    """

    url: str | list[str] = "disque://127.0.0.1:7711"
    prefix: str = "django"
    retry_for: float = 10.0
    retry: int = 20
    task_ttl: int = 30 * DAY
    result_ttl: int = DAY
    replicate: int | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> "Options":
        """The options that are given.

        Raises:
            ValueError: one is unknown, or wrong.
        """
        unknown = given.keys() - {field.name for field in fields(cls)}
        if unknown:
            raise ValueError(f"unknown: {', '.join(sorted(map(str, unknown)))}")
        options = cls(**given)
        urls = [options.url] if isinstance(options.url, str) else options.url
        if not isinstance(urls, list | tuple) or not all(isinstance(url, str) for url in urls):
            raise ValueError("url has to be a text, or a list of texts")
        options.cluster()
        if not isinstance(options.prefix, str):
            raise ValueError("prefix has to be a text")
        seconds = options.retry_for
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
            raise ValueError(f"retry_for has to be a number that is not negative, not {seconds!r}")
        for name in ("retry", "task_ttl", "result_ttl", "replicate"):
            value = getattr(options, name)
            if value is None and name == "replicate":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} has to be a positive whole number, not {value!r}")
        return options

    def cluster(self) -> Cluster:
        """Where the nodes are."""
        return Cluster.parse(self.url)

    def queue(self, name: str) -> str:
        """What a queue is called on the nodes."""
        return f"{self.prefix}.{name}" if self.prefix else name

    def results(self, id: str) -> str:
        """The queue on the nodes that has the result of a task."""
        return self.queue(f"results.{id}")
