"""The progress of streaming queries, with the description and metrics that Spark takes from no
source in Python.

``DisqueSource`` tells them as a part of ``latestOffset``. ``described`` puts them where they
belong:

    from disque_trio.spark.progress import ProgressListener
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
    """A queue, on all nodes, when a batch was planned.

    Attributes:
        jobs: that were queued. behind: of these, jobs that are not in the batch.
        oldest: s since the oldest one was added.
    """

    jobs: int
    behind: int
    oldest: float


class Backlog(NamedTuple):
    """What a ``disque`` source tells in ``latestOffset``.

    Attributes:
        description: queues and nodes.
        queues: by name. Of very many, those with few jobs are added up in the queue "".
        metrics: as of Kafka's source: ``minJobsBehindLatest``, ``max``, ``avg``, ``total``.
    """

    description: str
    queues: Mapping[str, QueueBacklog]
    metrics: Mapping[str, str]

    @classmethod
    def of(cls, latest: object) -> Self | None:
        """From ``latestOffset``, as JSON or parsed; None if it is not one of these."""
        offset = parsed(latest)
        if not isinstance(offset, dict) or not isinstance(offset.get("metrics"), dict):
            return None
        queues = {
            name: QueueBacklog(queue["jobs"], queue["behind"], queue["oldestJobAge"])
            for name, queue in offset.get("queues", {}).items()
        }
        return cls(offset.get("description", ""), queues, offset["metrics"])


def parsed(offset: object) -> object:
    """An offset that may be JSON; None if it is a text that is not."""
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None


def described(progress: Mapping[str, Any]) -> dict[str, Any]:
    """A ``StreamingQueryProgress`` (``query.lastProgress``, or what one is as JSON) with
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
