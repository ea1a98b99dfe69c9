"""What a task needs to know of a run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from disque_trio.respclient.login import Login
from disque_trio.spark.client import Arg


@dataclass(frozen=True)
class WorkOptions:
    """A run, as its tasks see it.

    Attributes:
        function: of the user. frames: it takes frames, not single jobs.
        queues: to take from; none: jobs come in rows.
        nodes: all that are known. login, timeout: of connections, see ``BlockingClient``.
        results: queue for results; None: there is none.
        add: options of ADDJOB for results.
        size: jobs in hand, at most.
        wait: seconds without a job until a task ends. until_empty: whether it ends then.
        seconds: how long a task may take jobs; None: for ever.
        delay: seconds until a failed job comes again; None: as the policy of its queue says.
        attempts: deliveries after which a failed job becomes a dead letter; None: as above.
        failover: seconds to look for a node when none answers.
        limit: seconds that a call of the function may take; None: any number.
        leased: rows have jobs that nobody else keeps from being delivered again.
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
