"""What happens to jobs, noted for an event log: one tuple an event.

Owns the shape of the tuples. Nothing is noted unless ``eventing`` is on; then an event costs a
tuple and an append, and whoever drives the node takes the list away.
"""

from typing import TypeAlias

from disque_trio.core.client import Client
from disque_trio.core.job import Job

# time in ms, event, id, queue, reason, client, peer, nacks, additional deliveries; and where the
# job is new to this node: size of the body, copies wanted, copies, retry in s, time to live in s,
# delay in s, ctime. What does not apply is empty or -1.
Event: TypeAlias = "tuple[int | str | bytes, ...]"


class EventSource:
    """Notes events of jobs.

    Attributes:
        now: time of the current turn, ms since the epoch.
        eventing: note them.
        events: those since the driver took the list.
        client: on whose behalf the node acts, None: on its own or on another node's.
        peer: id of the node that it reacts to, empty: none.
    """

    def __init__(self) -> None:
        self.now = 0
        self.eventing = False
        self.events: list[Event] = []
        self.client: Client | None = None
        self.peer = b""

    def name_client(self, client: Client) -> str:
        """How the log calls ``client``."""
        return client.name.decode("utf-8", "backslashreplace")

    def note(self, event: str, job: Job, reason: str = "") -> None:
        """Something happened to ``job``."""
        client = self.client
        self.events.append(
            (
                self.now,
                event,
                job.id,
                job.queue,
                reason,
                "" if client is None else client.label or self.name_client(client),
                self.peer,
                job.nacks,
                job.deliveries,
            )
        )

    def note_new(self, event: str, job: Job, reason: str = "") -> None:
        """``job`` is new to this node. An "added" with a reason is two events, as nearly every job
        has them: it was also queued, for that reason. Two tuples cost twice as much."""
        client = self.client
        ttl = job.etime - self.now // 1000
        self.events.append(
            (
                self.now,
                event,
                job.id,
                job.queue,
                reason,
                "" if client is None else client.label or self.name_client(client),
                self.peer,
                job.nacks,
                job.deliveries,
                0 if job.body is None else len(job.body),
                job.repl,
                1 if job.delivered is None else len(job.delivered),
                job.retry,
                ttl if ttl > 0 else 0,
                job.delay,
                job.ctime,
            )
        )
