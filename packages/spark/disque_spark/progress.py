"""The progress of streaming queries, with a description and metrics for each ``disque`` source.

Spark does not accept these from Python data sources, so ``DisqueSource`` passes them as a part of
``latestOffset``. ``described`` puts them where they belong:

    from disque_spark.progress import ProgressListener
    spark.streams.addListener(ProgressListener(lambda progress: print(progress["sources"])))
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)


class QueueBacklog(NamedTuple):
    """The backlog of a queue, on all nodes, when a batch was planned.

    Attributes:
        jobs: queued jobs.
        behind: those that are not in the batch.
        oldest: age of the oldest queued job in seconds.
    """

    jobs: int
    behind: int
    oldest: float


class Backlog(NamedTuple):
    """What a ``disque`` source reports in ``latestOffset``.

    Attributes:
        description: queues and nodes.
        queues: by name. If there are very many, those with few jobs are added up under "".
        metrics: like those of Kafka's source: ``minJobsBehindLatest``, ``max``, ``avg``, ``total``.
    """

    description: str
    queues: Mapping[str, QueueBacklog]
    metrics: Mapping[str, str]

    @classmethod
    def of(cls, latest: object) -> Self | None:
        """Read it from ``latestOffset``, as JSON or parsed; None if that is of another source."""
        offset = parsed(latest)
        if not isinstance(offset, dict) or not isinstance(offset.get("metrics"), dict):
            return None
        queues = {
            name: QueueBacklog(queue["jobs"], queue["behind"], queue["oldestJobAge"])
            for name, queue in offset.get("queues", {}).items()
        }
        return cls(offset.get("description", ""), queues, offset["metrics"])


def parsed(offset: object) -> object:
    """An offset, parsed if it is a string; None if that is not JSON."""
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None


def described(progress: Mapping[str, Any]) -> dict[str, Any]:
    """A ``StreamingQueryProgress`` (such as ``query.lastProgress``, or its parsed JSON) with the
    ``description`` and ``metrics`` of each ``disque`` source."""
    return {**progress, "sources": [_source(source) for source in progress.get("sources") or ()]}


def _source(progress: Mapping[str, Any]) -> dict[str, Any]:
    backlog = Backlog.of(progress.get("latestOffset"))
    if backlog is None:
        return dict(progress)
    return {**progress, "description": backlog.description, "metrics": dict(backlog.metrics)}


class ProgressListener(StreamingQueryListener):
    """Calls ``heard`` with the ``described`` progress of each batch of a session."""

    def __init__(self, heard: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._heard = heard

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._heard(described(event.progress))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass
