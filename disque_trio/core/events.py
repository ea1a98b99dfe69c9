"""What happens to jobs, noted for an event log.

Owns the shape of what is noted. Nothing is unless ``eventing`` is on. Mostly the same thing happens
to many jobs in a row, as with commands that come in a pipeline: it is noted once, and the ids of
the jobs behind it. Whoever drives the node takes the list away.
"""

from typing import TypeAlias

from disque_trio.core.client import Client
from disque_trio.core.job import Job
from disque_trio.core.machine import Machine

# The first is what happens. Each is one of
# - a client, as the log calls it, on whose behalf all happens from here on; empty: nobody's;
# - what happens: time in ms, event, queue, reason, peer, nacks, additional deliveries; and where
#   jobs are new to this node: size of the body, copies wanted, copies, retry in s, time to live in
#   s, delay in s, and the ctime of the first job; each further one's is higher by one. What does
#   not apply is empty;
# - the id of a job to which that happens.
Event: TypeAlias = "str | tuple[int | str | bytes, ...] | bytes"


class EventSource(Machine):
    """Notes events of jobs.

    Attributes:
        eventing: note them, in ``events``; the driver takes that list and leaves an empty one.
        peer: id of the node that it reacts to, empty: none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.eventing = False
        self.peer = b""
        # What was noted last, and of which job. A job's own facts never change.
        self._last: Job | None = None
        self._time = 0
        self._event = ""
        self._reason = ""
        self._label = ""
        self._peer = b""
        self._nacks = 0
        self._deliveries = 0
        self._size = 0
        self._holders: tuple[bytes, ...] | None = None

    def name_client(self, client: Client) -> str:
        """How the log calls ``client``."""
        return client.name.decode("utf-8", "backslashreplace")

    def note(self, event: str, job: Job, reason: str = "", new: bool = False) -> None:
        """Something happened to ``job``. ``new``: the job is new to this node. An "added" with a
        reason is two events, as nearly every job has them: it was also queued, for that reason."""
        events = self.events
        if not events:
            self._event = self._label = ""  # who gets this list knows nothing of the last one
        client = self.client
        label = "" if client is None else client.label or self.name_client(client)
        last = self._last
        # Field by field, since that costs a compiled node next to nothing; and what is equal is
        # mostly one object.
        if (
            event is not self._event
            or last is None
            or self.now != self._time
            or reason is not self._reason
            or self.peer is not self._peer
            or job.queue is not last.queue
            or job.nacks != self._nacks
            or job.deliveries != self._deliveries
            or (
                new
                and (
                    job.ctime != last.ctime + 1
                    or job.etime != last.etime
                    or job.retry != last.retry
                    or job.delay != last.delay
                    or job.repl != last.repl
                    or job.delivered is not self._holders
                    or len(job.body or b"") != self._size
                )
            )
        ):
            now = self._time = self.now
            peer = self._peer = self.peer
            self._event = event
            self._reason = reason
            self._nacks = job.nacks
            self._deliveries = job.deliveries
            what: tuple[int | str | bytes, ...] = (
                now,
                event,
                job.queue,
                reason,
                peer,
                job.nacks,
                job.deliveries,
            )
            if new:
                size = self._size = len(job.body or b"")
                holders = self._holders = job.delivered
                copies = 1 if holders is None else len(holders)
                ttl = max(job.etime - now // 1000, 0)
                what += (size, job.repl, copies, job.retry, ttl, job.delay, job.ctime)
            events.append(what)
        if label is not self._label:
            self._label = label
            events.append(label)
        self._last = job
        events.append(job.id)
