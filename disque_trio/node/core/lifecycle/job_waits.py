"""Makes clients wait until jobs have ended (WAITJOB), including jobs that other nodes hold.

For a job that this node holds, a flag says that somebody waits, and ``JobWaits`` hears of its end.
About any other job, all nodes are asked (a question of the kind OUTCOME). A node that knows how it
ended says so. A node that holds it says that it has not ended, remembers the asking node for a
while, and tells it when the job ends (ENDED). That message may get lost, and jobs move: so the
question is repeated, every second at first, as long as somebody waits. If no node knows anything
twice in a row, the job is gone. Once is not enough: it may have been on its way from one node to
another.

A thousand ids take half a millisecond, and a thousand clients may ask at once, or be told at once
that their time is over, or that a job has ended. So what begins or ends a WAITJOB about many ids is
done in turns of its own, and so are the questions, and telling many waits: others are served in
between.
"""

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from disque_trio.node.core.jobs.job import ACKED, FLAG_WATCHED
from disque_trio.node.core.jobs.outcomes import GONE, Outcome, Watch
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.rpc.calls import ENDED, OUTCOME, Question
from disque_trio.protocol import trailer as endings
from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    pack_number,
    pack_texts,
    unpack_number,
    unpack_texts,
)
from disque_trio.protocol.serialjob import is_job_id
from disque_trio.resp.reply import Value, encode
from disque_trio.respserver.client import Client

if TYPE_CHECKING:
    from mypy_extensions import i64

MOST_IDS: Final = 1_000  # that one WAITJOB, or one question, may name; as many as a slice takes
AT_ONCE: Final = 100  # ids; a WAITJOB with more begins and ends in slices
TOLD: Final = 1_000  # waits to tell about jobs in a turn
FIRST_GAP: Final = 1_000  # ms between questions about a job, doubled each time
MAX_GAP: Final = 4_000
AGAIN: Final = 100  # ms until the question is repeated if no node knew anything
PATIENCE: Final = 900  # ms until a node that has not answered counts as silent
WATCHED_FOR: Final = 3 * MAX_GAP  # ms for which an asking node is notified when the job ends
WAIT_OVERHEAD: Final = 500  # bytes that a client's wait for one job takes
MOST_TOLD: Final = 1_000_000  # bytes of results in one answer; a single result may have as many

# Fields of questions, answers and news about jobs that end, besides the ticket (1).
_IDS: Final = 2
_OUTCOME: Final = 3

# Used instead of how a job ended.
_PENDING: Final = 16
_MORE: Final = 17  # known, but the answer is full: ask again
_SECOND_HAND: Final = 32  # added to how it ended: a client said so, this node never had the job

_PENDING_NAME: Final = b"pending"


class JobWait:
    """A WAITJOB.

    Attributes:
        client: waits; None: it only wants to know what this node knows.
        ids: the jobs, in the order of the request.
        ended: what is known of them so far.
        left: how many different ones have not ended, of those that were looked at.
        looked: whether all were.
        late: its time is over; it gets its reply in a slice.
        over: the client no longer waits.
        queued: it is to get a slice.
    """

    def __init__(self, client: Client | None, ids: list[bytes]) -> None:
        self.client = client
        self.ids = ids
        self.ended: dict[bytes, Outcome] = {}
        self.left = 0
        self.looked = False
        self.late = False
        self.over = False
        self.queued = False

    def reply(self, resp: int) -> bytes:
        """The reply: the jobs with their states and results, for the protocol version ``resp``."""
        found: list[Value] = []
        for id in self.ids:
            outcome = self.ended.get(id)
            if outcome is None:
                found.append([id, _PENDING_NAME, None])
            else:
                found.append([id, endings.ENDING_NAMES[outcome.kind], outcome.result])
        return encode(found, resp)


class Awaited:
    """A job that clients wait for.

    Attributes:
        waits: the WAITJOBs that name it.
        due: when to ask other nodes, in ms; 0: not until something happens, since this node
            holds the job, or they are being asked.
        gap: ms until they are asked again.
        misses: how often no node knew anything.
        second_hand: what became of it according to nodes that never had it.
    """

    def __init__(self) -> None:
        self.waits: dict[JobWait, None] = {}
        self.due = 0
        self.gap = FIRST_GAP
        self.misses = 0
        self.second_hand: Outcome | None = None


class Round:
    """One question about some jobs to all nodes; ``waits`` takes the answers."""

    def __init__(self, waits: "JobWaits", ids: list[bytes]) -> None:
        self.ids = ids
        self.pending: set[bytes] = set()
        self.more: set[bytes] = set()
        self.asked = 0
        self._read: set[bytes] = set()
        self._waits = waits

    def on_answer(self, question: Question) -> None:
        """Read the answers that arrived since the last call. Raises ``FieldsError``."""
        malformed: FieldsError | None = None
        for node, fields in question.answers.items():
            if node not in self._read:
                self._read.add(node)
                try:
                    for type, value in fields:
                        if type == _OUTCOME:
                            self._waits.read_answer(self, value)
                except FieldsError as problem:
                    malformed = problem
        if question.over:
            self._waits.end_round(self, bool(question.waiting))
        if malformed is not None:
            raise malformed


class JobWaits(Watch):
    """The clients of one node, and the other nodes, that wait for jobs to end.

    Attributes:
        by_client: the waiting WAITJOBs.
    """

    def __init__(self, core: Core) -> None:
        store = core.store
        self.by_client: dict[Client, JobWait] = {}
        self._store = store
        self._machine = store.machine
        self._outcomes = store.outcomes
        self._paging = core.paging
        self._rpc = core.rpc
        self._notices = core.notices
        self._peers = core.peers
        self._memory = store.machine.memory
        self._awaited: dict[bytes, Awaited] = {}
        self._asks: list[tuple[int, bytes]] = []  # heap: when (ms), and about which job
        self._in_slices: deque[JobWait] = deque()
        # How jobs ended, and which waits are yet to be told.
        self._news: deque[tuple[bytes, Outcome, list[JobWait]]] = deque()
        self._now: i64 = 0
        self._room = 0  # waits that may be told at ``_now``
        self._nodes: dict[bytes, dict[bytes, int]] = {}  # by job: the nodes to tell, until when
        store.outcomes.watch = self
        core.rpc.handlers[OUTCOME] = self._answer
        core.rpc.handlers[ENDED] = self._on_ended

    # ---- clients ----------------------------------------------------------------------------

    def look(self, ids: list[bytes], client: Client | None = None) -> JobWait:
        """Return what this node knows of the jobs ``ids``, which ``client`` wants to know."""
        wait = JobWait(client, ids)
        self._look(wait)
        wait.left = len(set(ids)) - len(wait.ended)
        return wait

    def _look(self, wait: JobWait) -> None:
        """Note what this node knows of the jobs of ``wait``."""
        is_alone = self._peers.size == 1
        for id in wait.ids:
            if id not in wait.ended:
                outcome = self._known(id)
                if outcome is not None:
                    wait.ended[id] = outcome
                elif is_alone and self._store.jobs.get(id) is None:
                    wait.ended[id] = GONE
        wait.looked = True

    def _known(self, id: bytes) -> Outcome | None:
        """Return how the job ``id`` ended; None: it has not, or this node does not know."""
        job = self._store.jobs.get(id)
        if job is None:
            return self._outcomes.of(id)
        return None if job.delivered == () else self._outcomes.of_held(job)

    def begin(self, client: Client, wait: JobWait) -> None:
        """Make ``client``, which is blocked from now on, wait for the jobs of ``wait``, which were
        looked at and have not all ended."""
        self.by_client[client] = wait
        self._register(wait)

    def begin_later(self, client: Client, ids: list[bytes]) -> None:
        """Make ``client``, which is blocked from now on, wait for the jobs ``ids``; they are looked
        at in a slice."""
        wait = self.by_client[client] = JobWait(client, ids)
        client.in_slices = len(ids)
        client.resized = True
        self._queue(wait)

    def _register(self, wait: JobWait) -> None:
        """Make sure to hear of the ends of the jobs of ``wait``."""
        for id in wait.ids:
            if id not in wait.ended:
                awaited = self._awaited.get(id)
                if awaited is None:
                    awaited = self._awaited[id] = Awaited()
                    if not self._watch(id):
                        self._ask_at(id, awaited, self._machine.now)
                if wait not in awaited.waits:
                    awaited.waits[wait] = None
                    self._memory.used += WAIT_OVERHEAD
        self.tick(self._machine.now)

    def _watch(self, id: bytes) -> bool:
        """Make sure to hear of the end of the job ``id``; False: this node does not hold it."""
        job = self._store.jobs.get(id)
        if job is None or job.state >= ACKED:
            return False
        job.flags |= FLAG_WATCHED
        return True

    def time_out(self, client: Client, wait: JobWait) -> None:
        """Reply to ``client``, whose ``wait`` is over, what is known so far."""
        wait.late = True
        self._end(client, wait)

    def _end(self, client: Client, wait: JobWait) -> None:
        """Reply to ``client``: at once, or in a slice if ``wait`` is about many jobs."""
        if len(wait.ids) > AT_ONCE:
            self._queue(wait)
        else:
            self._reply(client, wait)

    def _reply(self, client: Client, wait: JobWait) -> None:
        """Reply to ``client`` and end its ``wait``."""
        machine = self._machine
        machine.unblock(client, wait.reply(client.resp))
        if machine.journaling and client.out:
            machine.uncommitted.append((client, len(client.out) - 1, len(client.out)))

    def forget(self, client: Client) -> None:
        """Stop waiting for ``client``."""
        wait = self.by_client.pop(client)
        wait.over = True
        if wait.left:
            if len(wait.ids) > AT_ONCE:
                self._queue(wait)
            else:
                self._unregister(wait)

    def _unregister(self, wait: JobWait) -> None:
        """Forget that ``wait``, which is over, was about its jobs."""
        for id in wait.ids:
            awaited = self._awaited.get(id)
            if awaited is not None and wait in awaited.waits:
                del awaited.waits[wait]
                self._memory.used -= WAIT_OVERHEAD
                if not awaited.waits:
                    del self._awaited[id]

    def _resolve(self, id: bytes, outcome: Outcome) -> None:
        """Tell the clients that wait for the job ``id`` how it ended."""
        awaited = self._awaited.pop(id, None)
        if awaited is None:
            return
        self._memory.used -= WAIT_OVERHEAD * len(awaited.waits)
        if self._now != self._machine.now:
            self._now = self._machine.now
            self._room = TOLD
        self._news.append((id, outcome, list(awaited.waits)))
        self._tell()
        if self._news:
            self._rpc.timer.wake_by(self._machine.now)

    def _tell(self) -> None:
        """Pass on the news, as far as there is room."""
        while self._news and self._room > 0:
            id, outcome, waits = self._news[0]
            while waits and self._room > 0:
                wait = waits.pop()
                self._room -= 1
                if id in wait.ended:
                    continue
                wait.ended[id] = outcome
                wait.left -= 1
                client = wait.client
                if wait.left == 0 and not wait.over and client is not None:
                    self._end(client, wait)
            if not waits:
                self._news.popleft()

    # ---- slices -----------------------------------------------------------------------------

    def _queue(self, wait: JobWait) -> None:
        """Give ``wait`` a slice, unless it is going to have one."""
        if not wait.queued:
            wait.queued = True
            self._in_slices.append(wait)
            self._rpc.timer.wake_by(self._machine.now)

    def go_on(self, now: int) -> None:
        """Do the next slice: tell waits how jobs ended, or begin or end one for many jobs."""
        if self._news:
            self._now = now
            self._room = TOLD
            self._tell()
            if self._news or self._in_slices:
                self._rpc.timer.wake_by(now)
            return
        if not self._in_slices:
            return
        wait = self._in_slices.popleft()
        wait.queued = False
        self._do_slice(wait)
        if self._in_slices:
            self._rpc.timer.wake_by(now)

    def _do_slice(self, wait: JobWait) -> None:
        client = wait.client
        if client is not None:
            client.in_slices = 0
        if wait.over or client is None:
            self._unregister(wait)
            return
        if not wait.looked:
            self._look(wait)
            wait.left = len(set(wait.ids)) - len(wait.ended)
            if wait.left and not wait.late:
                self._register(wait)
                return
        self._reply(client, wait)

    # ---- jobs of this node ------------------------------------------------------------------

    def ended(self, id: bytes, outcome: Outcome) -> None:
        if outcome.kind == endings.GONE:
            awaited = self._awaited.get(id)
            if awaited is not None:
                self._ask_at(id, awaited, self._machine.now)  # other nodes may know more
        else:
            self._resolve(id, outcome)
        nodes = self._nodes.pop(id, None)
        if nodes is not None:
            fields: list[Field] = [(_OUTCOME, _pack(id, outcome.kind, outcome.result))]
            for node, until in nodes.items():
                if until >= self._machine.now:
                    self._notices.fields.append((node, self._rpc.notification(ENDED, fields)))

    # ---- asking other nodes -----------------------------------------------------------------

    @property
    def due(self) -> int:
        """When to ask other nodes next, in ms; 0: not until something happens. May be too
        early."""
        return self._asks[0][0] if self._asks else 0

    def _ask_at(self, id: bytes, awaited: Awaited, due: int) -> None:
        """Schedule a question to other nodes about the job ``id``, ``awaited``, at ``due`` (ms)."""
        awaited.due = due
        heappush(self._asks, (due, id))
        self._rpc.timer.wake_by(due)

    def tick(self, now: int) -> None:
        """Ask about jobs whose time has come, as many as fit into one question."""
        asks = self._asks
        ids: list[bytes] = []
        for _ in range(MOST_IDS):
            if not asks or asks[0][0] > now:
                break
            due, id = heappop(asks)
            awaited = self._awaited.get(id)
            if awaited is None or awaited.due != due:
                continue
            awaited.due = 0
            outcome = self._known(id)  # it may have come here meanwhile
            if outcome is not None:
                self._resolve(id, outcome)
            elif not self._watch(id):
                ids.append(id)
        if ids:
            round = Round(self, ids)
            question = self._rpc.call(
                OUTCOME,
                [(_IDS, pack_texts(round.ids))],
                self._peers.everyone(),
                PATIENCE,
                round.on_answer,
            )
            if question.over:
                self.end_round(round, False)

    def read_answer(self, round: Round, value: bytes) -> None:
        """Take another node's statement about one job of ``round``. Raises ``FieldsError``."""
        id, kind, result = _unpack(value)
        if kind == _PENDING:
            round.pending.add(id)
        elif kind == _MORE:
            round.more.add(id)
        elif kind & _SECOND_HAND:
            awaited = self._awaited.get(id)
            if awaited is not None:
                awaited.second_hand = Outcome(_ending(kind & ~_SECOND_HAND), result)
        else:
            self._resolve(id, Outcome(_ending(kind), result))

    def end_round(self, round: Round, silent: bool) -> None:
        """Go on after ``round``: all nodes that could be asked have answered, or, if ``silent``,
        not all of them."""
        now = self._machine.now
        for id in round.ids:
            awaited = self._awaited.get(id)
            if awaited is None or awaited.due or self._watch(id):
                continue  # it has ended, is here now, or something else happened meanwhile
            if id in round.more:
                self._ask_at(id, awaited, now)
            elif id in round.pending or silent:
                awaited.misses = 0
                self._ask_at(id, awaited, now + awaited.gap)
                awaited.gap = min(2 * awaited.gap, MAX_GAP)
            elif awaited.misses:
                self._resolve(id, self._second_hand(id, awaited))
            else:
                awaited.misses = 1
                self._ask_at(id, awaited, now + AGAIN)

    def _second_hand(self, id: bytes, awaited: Awaited) -> Outcome:
        """The outcome of a job that no node had or still has: what a client said."""
        job = self._store.jobs.get(id)
        if job is not None:
            return self._outcomes.of_held(job) or GONE
        return awaited.second_hand or GONE

    # ---- from other nodes -------------------------------------------------------------------

    def _answer(self, sender: bytes, fields: list[Field]) -> list[Field] | None:
        """Answer a question of ``sender`` about jobs. Raises ``FieldsError``."""
        now = self._machine.now
        answer: list[Field] = []
        told = 0
        for type, value in fields:
            if type != _IDS:
                continue
            for id in unpack_texts(value):
                if not is_job_id(id):
                    raise FieldsError("malformed id of a job")
                job = self._store.jobs.get(id)
                kind = 0
                outcome = self._outcomes.of(id)
                if job is not None:
                    outcome = self._outcomes.of_held(job)
                    kind = _SECOND_HAND if job.delivered == () else 0
                result = None if outcome is None else outcome.result
                if outcome is not None:
                    told += len(result or b"")
                    if told > MOST_TOLD and result:
                        answer.append((_OUTCOME, _pack(id, _MORE, None)))
                    else:
                        answer.append((_OUTCOME, _pack(id, kind | outcome.kind, result)))
                elif self._watch(id):
                    self._nodes.setdefault(id, {})[sender] = now + WATCHED_FOR
                    answer.append((_OUTCOME, _pack(id, _PENDING, None)))
                elif self._paging.bring(id) or self._watch(id):
                    # The next question about it will find it in memory.
                    answer.append((_OUTCOME, _pack(id, _PENDING, None)))
        return answer

    def _on_ended(self, sender: bytes, fields: list[Field]) -> list[Field] | None:
        """Handle ENDED: a node that holds or held a job tells its outcome. Raises
        ``FieldsError``."""
        for type, value in fields:
            if type == _OUTCOME:
                id, kind, result = _unpack(value)
                awaited = self._awaited.get(id)
                if awaited is None:
                    continue
                if kind == endings.GONE:
                    self._ask_at(id, awaited, self._machine.now)
                else:
                    self._resolve(id, Outcome(_ending(kind), result))
        return None

    # ---- the rest ---------------------------------------------------------------------------

    def flush(self) -> None:
        """Forget all waits, before the memory account is reset, and the nodes that wait: all jobs
        are gone. They will ask again."""
        for client, wait in list(self.by_client.items()):
            self._reply(client, wait)
        self._in_slices.clear()
        self._news.clear()
        self._awaited.clear()
        self._asks.clear()
        self._nodes.clear()


def _pack(id: bytes, kind: int, result: bytes | None) -> bytes:
    """Serialise the outcome of one job."""
    texts = [id, pack_number(kind)]
    if result is not None:
        texts.append(result)
    return pack_texts(texts)


def _unpack(value: bytes) -> tuple[bytes, int, bytes | None]:
    """The id of a job, its outcome, and its result. Raises ``FieldsError``."""
    texts = unpack_texts(value)
    if len(texts) < 2:
        raise FieldsError("malformed outcome of a job")
    return texts[0], unpack_number(texts[1]), texts[2] if len(texts) > 2 else None


def _ending(kind: int) -> int:
    """Return ``kind`` if a job can end that way. Raises ``FieldsError``."""
    if not 0 < kind < len(endings.ENDING_NAMES):
        raise FieldsError(f"unknown ending {kind}")
    return kind
