"""What a task needs to know about a run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from disque_spark.client import Arg
from disque_trio.respclient.login import Login


@dataclass(frozen=True)
class WorkOptions:
    """A run, as its tasks see it.

    Attributes:
        function: the user's function.
        frames: whether it takes DataFrames instead of single jobs.
        queues: queues to take jobs from; empty: jobs come in rows.
        nodes: all known nodes.
        login, timeout: see ``BlockingClient``.
        results: queue for results; None: there is none.
        add: options of ADDJOB for results.
        size: the most jobs in hand.
        wait: seconds without a job after which a task ends, if ``until_empty``.
        seconds: how long a task may take jobs; None: forever.
        delay: seconds until a failed job is delivered again; None: as the policy of its queue says.
        attempts: deliveries after which a failed job becomes a dead letter; None: likewise.
        failover: seconds to look for a node when none answers.
        limit: seconds that one call of the function may take; None: no limit.
        leased: the jobs in rows are not kept from being delivered again by anybody else.
    """

    function: Callable[[Any], object]
    frames: bool
    queues: tuple[str, ...]
    nodes: tuple[str, ...]
    login: Login
    results: str | None
    add: tuple[Arg, ...]
    size: int
    wait: float
    until_empty: bool
    seconds: float | None
    delay: float | None
    attempts: int | None
    timeout: float
    failover: float
    limit: float | None = None
    leased: bool = False
