"""Makes clients wait until jobs have ended (WAITJOB), including jobs that other nodes hold.

For a job that this node holds, a flag says that somebody waits, and ``JobWaits`` hears of its end.
About any other job, all nodes are asked (a question of the kind OUTCOME). A node that knows how it
ended says so. A node that holds it says that it has not ended, remembers the asking node for a
while, and tells it when the job ends (ENDED). That message may get lost, and jobs move: so the
question is repeated, every second at first, as long as somebody waits. If no node knows anything
twice in a row, the job is gone. Once is not enough: it may have been on its way from one node to
another.
"""

from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.job import ACKED, FLAG_WATCHED
from disque_trio.node.core.notices import Notices
from disque_trio.node.core.outcomes import GONE, Outcome, Recent, Watch
from disque_trio.node.core.questions import ENDED, OUTCOME, Question, Questions
from disque_trio.node.core.store import JobStore
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

MOST_IDS: Final = 1_000  # that one WAITJOB, or one question, may name
FIRST_GAP: Final = 1_000  # ms between questions about a job, doubled each time
MAX_GAP: Final = 4_000
AGAIN: Final = 100  # ms until the question is repeated if no node knew anything
PATIENCE: Final = 900  # ms until a node that has not answered counts as silent
WATCHED_FOR: Final = 3 * MAX_GAP  # ms for which an asking node is notified when the job ends
MOST_TOLD: Final = 1_000_000  # bytes of results in one answer; a single result may have as many

# Fields of questions, answers and news about jobs that end, besides the ticket (1).
_IDS: Final = 2
_OUTCOME: Final = 3

# Used instead of how a job ended.
_PENDING: Final = 16
_MORE: Final = 17  # known, but the answer is full: ask again
_HEARSAY: Final = 32  # added to how it ended: a client said so, this node never had the job

_PENDING_NAME: Final = b"pending"


class JobWait:
    """A waiting WAITJOB.

    Attributes:
        ids: the jobs, in the order of the request.
        ended: what is known of them so far.
        left: how many different ones have not ended.
    """

    def __init__(self, ids: list[bytes]) -> None:
        self.ids = ids
        self.ended: dict[bytes, Outcome] = {}
        self.left = 0

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
        clients: those that wait.
        due: when to ask other nodes, in ms; 0: not until something happens, since this node
            holds the job, or they are being asked.
        gap: ms until they are asked again.
        misses: how often no node knew anything.
        hearsay: what became of it according to nodes that never had it.
    """

    def __init__(self) -> None:
        self.clients: dict[Client, JobWait] = {}
        self.due = 0
        self.gap = FIRST_GAP
        self.misses = 0
        self.hearsay: Outcome | None = None


class Round:
    """One question about some jobs to all nodes; ``waits`` takes the answers."""

    def __init__(self, waits: "JobWaits", ids: list[bytes]) -> None:
        self.ids = ids
        self.pending: set[bytes] = set()
        self.more: set[bytes] = set()
        self.asked = 0
        self._read: set[bytes] = set()
        self._waits = waits

    def heard(self, question: Question) -> None:
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

    Args:
        store: the jobs, and how they ended.
        questions: asks other nodes.
        notices: for other nodes, at the end of the turn.
        peers: the rest of the cluster.

    Attributes:
        by_client: the waiting WAITJOBs.
        due: when to ask other nodes next, in ms; 0: not until something happens.
    """

    def __init__(
        self, store: JobStore, questions: Questions, notices: Notices, peers: Peers
    ) -> None:
        self.by_client: dict[Client, JobWait] = {}
        self.due = 0
        self._store = store
        self._machine = store.machine
        self._outcomes = store.outcomes
        self._questions = questions
        self._notices = notices
        self._peers = peers
        self._awaited: dict[bytes, Awaited] = {}
        self._nodes: dict[bytes, dict[bytes, int]] = {}  # by job: the nodes to tell, until when
        store.outcomes.watch = self
        questions.answerers[OUTCOME] = self._answer
        questions.answerers[ENDED] = self._on_ended

    # ---- clients ----------------------------------------------------------------------------

    def look(self, ids: list[bytes]) -> JobWait:
        """Return what this node knows of the jobs ``ids``."""
        wait = JobWait(ids)
        recent = self._outcomes.recent()
        for id in ids:
            if id not in wait.ended:
                outcome = self._known(id, recent)
                if outcome is not None:
                    wait.ended[id] = outcome
        if self._peers.size == 1:
            for id in ids:
                if id not in wait.ended and self._store.jobs.get(id) is None:
                    wait.ended[id] = GONE
        wait.left = len(set(ids)) - len(wait.ended)
        return wait

    def _known(self, id: bytes, recent: Recent) -> Outcome | None:
        """Return how the job ``id`` ended; None: it has not ended, or this node does not know."""
        job = self._store.jobs.get(id)
        if job is None:
            return self._outcomes.of(id, recent)
        return None if job.delivered == () else self._outcomes.of_held(job)

    def begin(self, client: Client, wait: JobWait) -> None:
        """Make ``client``, which is blocked from now on, wait for the jobs of ``wait``."""
        self.by_client[client] = wait
        for id in wait.ids:
            if id not in wait.ended:
                awaited = self._awaited.get(id)
                if awaited is None:
                    awaited = self._awaited[id] = Awaited()
                    if not self._watch(id):
                        self._ask_at(awaited, self._machine.now)
                awaited.clients[client] = wait
        self.tick(self._machine.now)

    def _watch(self, id: bytes) -> bool:
        """Make sure to hear of the end of the job ``id``; False: this node does not hold it."""
        job = self._store.jobs.get(id)
        if job is None or job.state >= ACKED:
            return False
        job.flags |= FLAG_WATCHED
        return True

    def forget(self, client: Client) -> None:
        """Stop waiting for ``client``."""
        wait = self.by_client.pop(client)
        for id in wait.ids:
            awaited = self._awaited.get(id)
            if awaited is not None:
                awaited.clients.pop(client, None)
                if not awaited.clients:
                    del self._awaited[id]

    def _resolve(self, id: bytes, outcome: Outcome) -> None:
        """Tell the clients that wait for the job ``id`` how it ended."""
        awaited = self._awaited.pop(id, None)
        if awaited is None:
            return
        machine = self._machine
        for client, wait in awaited.clients.items():
            wait.ended[id] = outcome
            wait.left -= 1
            if wait.left == 0:
                machine.unblock(client, wait.reply(client.resp))
                if machine.journaling and client.out:
                    machine.uncommitted.append((client, len(client.out) - 1, len(client.out)))

    # ---- jobs of this node ------------------------------------------------------------------

    def ended(self, id: bytes, outcome: Outcome) -> None:
        if outcome.kind == endings.GONE:
            awaited = self._awaited.get(id)
            if awaited is not None:
                self._ask_at(awaited, self._machine.now)  # other nodes may know more
        else:
            self._resolve(id, outcome)
        nodes = self._nodes.pop(id, None)
        if nodes is not None:
            fields: list[Field] = [(_OUTCOME, _pack(id, outcome.kind, outcome.result))]
            for node, until in nodes.items():
                if until >= self._machine.now:
                    self._notices.fields.append((node, self._questions.news(ENDED, fields)))

    # ---- asking other nodes -----------------------------------------------------------------

    def _ask_at(self, awaited: Awaited, due: int) -> None:
        """Schedule a question to other nodes about ``awaited`` at ``due`` (ms)."""
        awaited.due = due
        self._questions.agenda.call(due)
        if self.due == 0 or due < self.due:
            self.due = due

    def tick(self, now: int) -> None:
        """Ask about the jobs whose time has come."""
        if self.due == 0 or self.due > now:
            return
        ids: list[bytes] = []
        self.due = 0
        recent = self._outcomes.recent()
        for id, awaited in list(self._awaited.items()):
            if awaited.due == 0 or awaited.due > now:
                if awaited.due:
                    self._ask_at(awaited, awaited.due)
                continue
            awaited.due = 0
            outcome = self._known(id, recent)  # it may have come here meanwhile
            if outcome is not None:
                self._resolve(id, outcome)
            elif not self._watch(id):
                ids.append(id)
        for at in range(0, len(ids), MOST_IDS):
            round = Round(self, ids[at : at + MOST_IDS])
            question = self._questions.ask(
                OUTCOME,
                [(_IDS, pack_texts(round.ids))],
                self._peers.everyone(),
                PATIENCE,
                round.heard,
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
        elif kind & _HEARSAY:
            awaited = self._awaited.get(id)
            if awaited is not None:
                awaited.hearsay = Outcome(_ending(kind & ~_HEARSAY), result)
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
                self._ask_at(awaited, now)
            elif id in round.pending or silent:
                awaited.misses = 0
                self._ask_at(awaited, now + awaited.gap)
                awaited.gap = min(2 * awaited.gap, MAX_GAP)
            elif awaited.misses:
                self._resolve(id, self._hearsay(id, awaited))
            else:
                awaited.misses = 1
                self._ask_at(awaited, now + AGAIN)

    def _hearsay(self, id: bytes, awaited: Awaited) -> Outcome:
        """The outcome of a job that no node had or still has: what a client said."""
        job = self._store.jobs.get(id)
        if job is not None:
            return self._outcomes.of_held(job) or GONE
        return awaited.hearsay or GONE

    # ---- from other nodes -------------------------------------------------------------------

    def _answer(self, sender: bytes, fields: list[Field]) -> list[Field] | None:
        """Answer a question of ``sender`` about jobs. Raises ``FieldsError``."""
        now = self._machine.now
        answer: list[Field] = []
        told = 0
        recent = self._outcomes.recent()
        for type, value in fields:
            if type != _IDS:
                continue
            for id in unpack_texts(value):
                if not is_job_id(id):
                    raise FieldsError("malformed id of a job")
                job = self._store.jobs.get(id)
                kind = 0
                outcome = self._outcomes.of(id, recent)
                if job is not None:
                    outcome = self._outcomes.of_held(job)
                    kind = _HEARSAY if job.delivered == () else 0
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
                    self._ask_at(awaited, self._machine.now)
                else:
                    self._resolve(id, Outcome(_ending(kind), result))
        return None

    # ---- the rest ---------------------------------------------------------------------------

    def flush(self) -> None:
        """Forget the nodes that wait: all jobs are gone. They will ask again."""
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
    if not 0 < kind <= endings.GONE:
        raise FieldsError(f"unknown ending {kind}")
    return kind
