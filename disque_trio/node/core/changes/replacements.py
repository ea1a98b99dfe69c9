"""ADDJOB REPLACE: gives a job that has a key the contents of the one that was to be added.

One of the nodes that hold the job changes it, as for UPDATEJOB: it tells the other holders, and
says that it was done once all that can be reached have the change. If one of them has given the job
to a client, the change is undone.

The node that was asked to add the job sends it in an UPDATEJOB that is no change yet (its version
is 0), since it may be large; the question follows.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from disque_trio.node.core.changes.contents import Contents
from disque_trio.node.core.changes.updates import DELIVERED, ENDED, SUPERSEDED, Updates
from disque_trio.node.core.jobs.job import ACKED, QUEUED, WAIT_REPL, Job, first_due, is_delivered
from disque_trio.node.core.jobs.key_messages import AGAIN, HAS_STARTED, REPLACED
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.rpc.calls import REPLACE, Question
from disque_trio.protocol import bus
from disque_trio.protocol.bus import MAX_JOB
from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    pack_number,
    pack_texts,
    unpack_number,
    unpack_texts,
)
from disque_trio.protocol.keyrecord import is_plain_id
from disque_trio.protocol.trailer import STARTED, Trailer
from disque_trio.resp.reply import OK, error

Told: TypeAlias = Callable[[bytes], None]
"""Called with REPLACED, HAS_STARTED, AGAIN or an error."""

ASKED_AGAIN: Final = 200  # ms after which a node is asked once more
MANY: Final = 1_000  # results to remember
_BODY: Final = 2  # type of the only field besides the ticket

_OTHER_RETRY: Final = error(
    b"ERR RETRY of the job that has the key cannot be changed from or to 0: its id says which it is"
)
_TOO_LARGE: Final = error(b"ERR the job is too large to be sent to other nodes")
_RUNNING: Final = error(
    b"DELIVERED The job that has the key was delivered, and keeps it until it has ended: it was "
    b"added without REPLACE and UNTIL START"
)


class Replacements:
    """The jobs of one node that get the contents of others.

    Args:
        updates: changes them.
    """

    def __init__(self, core: Core, updates: Updates) -> None:
        self._store = core.store
        self._machine = core.machine
        self._replicas = core.store.replicas
        self._trailers = core.store.trailers
        self._codec = core.bus_codec
        self._paging = core.paging
        self._packets = core.packets
        self._notices = core.notices
        self._rpc = core.rpc
        self._updates = updates
        self._proposed: dict[bytes, tuple[Job, Trailer]] = {}  # the last one of each node
        self._asked: dict[bytes, int] = {}  # by id of the new job, while it is done: the question
        self._results: dict[bytes, bytes] = {}  # by the same, when it was done
        core.rpc.handlers[REPLACE] = self._answer
        updates.on_proposal = self._on_proposal

    def ask(self, node: bytes, id: bytes, new: Job, timeout: int, told: Told) -> None:
        """Let ``node``, which may be this one, give the job ``id`` the contents of ``new``, and
        call ``told`` with the result; with AGAIN if there was none after ``timeout`` ms."""
        now = self._machine.now
        due = int(new.qtime) if new.delay else 0
        trailer = self._trailers.want(new)
        if node == self._replicas.own:
            self._replace(id, new, trailer, due, told)
            return
        if trailer.updated:
            told(AGAIN)  # it is none that a client has just asked for
            return
        packet = self._packets.jobs(bus.UPDATEJOB, [self._codec.encode(new)])
        self._notices.fields.append((node, packet))
        left = pack_number(max(due - now, 1) if due else 0)
        fields = [(_BODY, pack_texts([id, new.id, left]))]
        on_answer = partial(self._on_answer, told)
        question = self._rpc.call(
            REPLACE, fields, [node], timeout, on_answer, self._notices.fields, ASKED_AGAIN
        )
        if question.over:
            told(AGAIN)

    def _on_answer(self, told: Told, question: Question) -> None:
        answers = list(question.answers.values())
        if not answers:
            told(AGAIN)
            return
        fields = answers[0]
        told(fields[0][1] if fields and fields[0][0] == _BODY else AGAIN)

    # ---- from other nodes -------------------------------------------------------------------

    def _on_proposal(self, sender: bytes, new: Job, trailer: Trailer) -> None:
        """Note the job whose contents ``sender`` will ask this node to give to another one."""
        self._proposed[sender] = (new, trailer)

    def _answer(self, sender: bytes, fields: list[Field]) -> list[Field] | None:
        """Replace a job for ``sender``; the answer comes when it is done. Raises
        ``FieldsError``."""
        texts = unpack_texts(fields[0][1]) if fields and fields[0][0] == _BODY else []
        if len(texts) != 3 or not is_plain_id(texts[0]) or len(texts[2]) != 8:
            raise FieldsError("malformed request to replace a job")
        id, new_id, left = texts[0], texts[1], unpack_number(texts[2])
        if new_id in self._results:
            return [(_BODY, self._results[new_id])]
        proposal = self._proposed.pop(sender, None)
        if new_id in self._asked:
            return None
        if proposal is None or proposal[0].id != new_id:
            return [(_BODY, AGAIN)]
        self._asked[new_id] = self._rpc.asked
        due = self._machine.now + left if left else 0
        new, trailer = proposal
        self._replace(id, new, trailer, due, partial(self._done, sender, new_id))
        return None

    def _done(self, sender: bytes, id: bytes, result: bytes) -> None:
        """Answer ``sender``, which wanted a job to be replaced by the job ``id``."""
        number = self._asked.pop(id, 0)
        while len(self._results) >= MANY:
            del self._results[next(iter(self._results))]
        self._results[id] = result
        packet = self._rpc.answer(number, REPLACE, [(_BODY, result)])
        self._notices.fields.append((sender, packet))

    # ---- the job ----------------------------------------------------------------------------

    def _replace(self, id: bytes, new: Job, trailer: Trailer, due: int, told: Told) -> None:
        """Give the job ``id`` the contents of ``new``, with its ``trailer``; it is queued at
        ``due`` (ms since the epoch); 0: at once."""
        job = self._store.jobs.get(id)
        if job is None:
            again = partial(self._replace, id, new, trailer, due, told)
            if not self._paging.bring(id, again):
                told(AGAIN)
            return
        known = self._trailers.of(job)
        if job.state in (ACKED, WAIT_REPL) or known is None:
            told(AGAIN)
        elif known.key_state == STARTED:
            told(HAS_STARTED)
        elif is_delivered(job):
            told(_RUNNING)
        elif (job.retry == 0) != (new.retry == 0):
            told(_OTHER_RETRY)
        elif job.delivered is not None and len(job.queue) + len(new.body or b"") > MAX_JOB:
            told(_TOO_LARGE)
        else:
            contents = Contents(new, trailer)
            contents.queue = job.queue
            contents.due = due or (first_due(job) if job.state == QUEUED else self._machine.now)
            self._updates.replace(job, contents, partial(self._replaced, id, told))

    def _replaced(self, id: bytes, told: Told, reply: bytes) -> None:
        """Pass on what ``reply``, that to UPDATEJOB, says of the job ``id``."""
        if reply == OK:
            told(REPLACED)
        elif reply == DELIVERED:
            job = self._store.jobs.get(id)
            trailer = None if job is None else self._trailers.of(job)
            frees = trailer is None or trailer.key_state
            told(HAS_STARTED if frees else _RUNNING)
        else:
            told(AGAIN if reply in (ENDED, SUPERSEDED) else reply)

    def flush(self) -> None:
        """Forget all jobs, as the node does."""
        self._proposed.clear()
        self._asked.clear()
