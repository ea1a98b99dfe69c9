"""ADDJOBs that add their job only after other nodes have answered: MAXLEN, MAXBYTES and UNIQUE.

MAXLEN and MAXBYTES limit what all nodes together have in the queue. The node that got the ADDJOB
asks the others how much they have, and looks at its own queue when they have answered. So the limit
is exact as long as all ADDJOBs go to one node; nodes that add at the same time do not see each
other's jobs. C nodes cannot be asked. A node that does not answer in time counts as having none: a
missing node must not stop the others.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from disque_trio.node.core.copies.replication import Replication
from disque_trio.node.core.jobs.job import ACTIVE, JOB_OVERHEAD, WAIT_REPL, Job
from disque_trio.node.core.jobs.waits import REMOVED, ReplicationWait
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.rpc.calls import LENGTH, Question
from disque_trio.protocol.bus import MAX_NAME_IN_FIELDS
from disque_trio.protocol.fields import Field, number_of, pack_number
from disque_trio.resp.reply import error
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError

COUNT_TIME: Final = 100  # ms that a node has to report how long a queue is

# Types of fields.
_QUEUE: Final = 2
_LENGTH: Final = 3
_SIZE: Final = 4


class Queued:
    """The total size of a queue on several nodes.

    Attributes:
        length: number of jobs.
        size: bytes of their bodies.
    """

    def __init__(self, length: int, size: int) -> None:
        self.length = length
        self.size = size


NOTHING: Final = Queued(0, 0)
Admit: TypeAlias = Callable[[Queued], object]


class Admission(ReplicationWait):
    """The pending reply of an ADDJOB that adds its job after other nodes have answered.

    Attributes:
        waits: whether it waits for copies; otherwise the reply comes as soon as the job is added.
        bounded: whether the queue has a limit for all nodes together.
        admit: takes what other nodes have; raises ``CommandError`` if the job cannot be added.
    """

    def __init__(
        self,
        client: Client,
        job: Job,
        wait: bool,
        external: bool,
        deadline: int,
        bounded: bool,
        admit: Admit,
    ) -> None:
        needed = job.repl if external else job.repl - 1
        super().__init__(client, job, needed, external, deadline, 0)
        self.waits = needed > 0 and (wait or external)
        self.bounded = bounded
        self.admit = admit


class Admissions:
    """The ADDJOBs of one node whose jobs have not been added yet.

    Args:
        replication: adds them.

    Attributes:
        held: the admissions, by the ids of their jobs.
    """

    def __init__(self, core: Core, replication: Replication) -> None:
        self.held: dict[bytes, Admission] = {}
        # By queue: who waits for its length, as far as it was asked for at ``_counted_at``.
        self._counts: dict[bytes, list[Callable[[Queued], None]]] = {}
        self._counted_at = 0
        self._store = core.store
        self._machine = core.machine
        self._replication = replication
        self._rpc = core.rpc
        self._peers = core.peers
        core.rpc.handlers[LENGTH] = self._answer

    # ---- ADDJOB -----------------------------------------------------------------------------

    def begin(self, admission: Admission) -> None:
        """Add the job of ``admission``, which is new, if the queue is not too long."""
        self.hold(admission)
        self.count(admission, partial(self._decide, admission))

    def hold(self, admission: Admission) -> None:
        """Hide the job of ``admission``, which is new, until it is added; the client gets its reply
        in turn."""
        job = admission.job
        self._store.jobs.drop(job.id)
        job.state = WAIT_REPL
        self.held[job.id] = admission
        admission.client.line_up(admission)

    def admits(self, admission: Admission, elsewhere: Queued) -> bytes:
        """Return the error that keeps the job of ``admission`` from being added now; empty: none.
        ``elsewhere``: what other nodes have in its queue."""
        try:
            admission.admit(elsewhere)
        except CommandError as problem:
            return error(str(problem))
        return b""

    def _decide(self, admission: Admission, elsewhere: Queued) -> None:
        if admission.reply is None:
            refusal = self.admits(admission, elsewhere)
            if refusal:
                self.refuse(admission, refusal)
            else:
                self.add(admission)

    def add(self, admission: Admission) -> None:
        """Add the job of ``admission``."""
        job = admission.job
        store = self._store
        machine = self._machine
        del self.held[job.id]
        job.dump = store.dump_number
        store.jobs.put(job.id, job)
        store.notes.peer = b""  # which node answered last does not matter
        before, machine.client = machine.client, admission.client
        if admission.waits:
            client = admission.client
            self._replication.add_sync(client, job, admission.external, 0, admission)
        else:
            job.state = ACTIVE
            if admission.needed:
                self._replication.add_async(job)
            else:
                self._replication.place(job)
            self._reply(admission, b"+" + job.id + b"\r\n")
            admission.journaled = machine.journaling
        machine.client = before

    def refuse(self, admission: Admission, reply: bytes) -> None:
        """Drop the job of ``admission``, and send ``reply``."""
        job = admission.job
        del self.held[job.id]
        self._store.trailers.drop(job)
        memory = self._machine.memory
        size = JOB_OVERHEAD + len(job.body or b"")
        memory.used -= size
        if memory.shares is not None:
            memory.shares.job_grew(job.id, job.queue, -size)
        self._reply(admission, reply)

    def _reply(self, admission: Admission, reply: bytes) -> None:
        admission.reply = reply
        self._machine.answered.append(admission)

    def forget_client(self, client: Client) -> None:
        """Drop the jobs of ``client``, which has disconnected."""
        for admission in list(self.held.values()):
            if admission.client is client:
                self.refuse(admission, b"")

    def flush(self) -> None:
        """Give up all admissions, before all jobs are forgotten."""
        for admission in list(self.held.values()):
            self.refuse(admission, REMOVED)
        self._counts.clear()

    # ---- lengths ----------------------------------------------------------------------------

    def count(self, admission: Admission, counted: Callable[[Queued], None]) -> None:
        """Call ``counted`` with what the other nodes that answer in time have in the queue of
        ``admission``."""
        now = self._machine.now
        queue = admission.job.queue
        if now != self._counted_at:
            self._counted_at = now
            self._counts.clear()
        waiting = self._counts.get(queue)
        if waiting is not None:  # many ADDJOBs may come in one turn
            waiting.append(counted)
            return
        waiting = [counted]
        nodes = self._peers.everyone() if len(queue) <= MAX_NAME_IN_FIELDS else []
        on_answer = partial(self._on_answer, queue, waiting)
        question = self._rpc.call(LENGTH, [(_QUEUE, queue)], nodes, COUNT_TIME, on_answer)
        if question.over:
            counted(NOTHING)
        else:
            self._counts[queue] = waiting

    def _on_answer(
        self, queue: bytes, waiting: list[Callable[[Queued], None]], question: Question
    ) -> None:
        if question.over:
            if self._counts.get(queue) is waiting:
                del self._counts[queue]
            answers = question.answers.values()
            length = sum([number_of(fields, _LENGTH) for fields in answers])
            elsewhere = Queued(length, sum([number_of(fields, _SIZE) for fields in answers]))
            for counted in waiting:
                counted(elsewhere)

    def _answer(self, sender: bytes, fields: list[Field]) -> list[Field] | None:
        """Report how much is in a queue here."""
        length = size = 0
        for type, value in fields:
            if type == _QUEUE:
                queue = self._store.queues.by_name.get(value)
                if queue is not None:
                    length = queue.length
                    if self._store.limits.policies.of(value).maxbytes:
                        size = queue.bytes_queued()
        return [(_LENGTH, pack_number(length)), (_SIZE, pack_number(size))]
