"""ADDJOB UNIQUE: makes sure that no two jobs of a queue with the same key are alive at once.

A node that is alone looks into its ``uniques``. In a cluster, the node that got the ADDJOB asks the
voters of the key, and needs a majority of them:

1. It claims the key for the id that the job will have. A voter that has no job for the key grants
   it, and keeps the claim, in its file too; a voter that has one says which.
2. With a majority, it adds the job as usual. If other nodes have to confirm copies, it asks the
   voters again once they have, and replies only if a majority still has the claim. So a claim whose
   node is no longer heard of can be passed over.
3. It tells the voters that the job was added.

If another job has the key, the nodes are asked what they know of it. If that job may have its
copies, the reply is its id, once its holders have made those that are missing and a majority of the
voters has confirmed it: then nobody can pass it over. If its node has given it up, the nodes that
still hold a copy are asked to forget it. If nobody holds it, and all nodes said so or one knows
that it ended, the claim is repeated in its place. If its own node is about to add it, the claim
waits for that. In all other cases nobody can tell whether the job is alive, and the client gets
-NOUNIQ when its time is over.

A job may have its key only until a client gets it (UNTIL START): then its node frees the key, and
tells the others. So if such a job is to be added, all nodes are asked whether the one that has the
key has started; if so, the others are told once more, and the claim is repeated in its place. With
REPLACE, one that has not started is given the contents of the new one, by a node that holds it.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from disque_trio.node.core.copies.admissions import NOTHING, Admissions, Admit, Queued
from disque_trio.node.core.copies.replication import Replication
from disque_trio.node.core.jobs import key_messages as words
from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.jobs.key_messages import Vote
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.rpc.calls import CLAIM, Question
from disque_trio.node.core.unique.quorum import (
    AGREED,
    ANSWER_TIME,
    CLAIMING,
    CONFIRMING,
    COPYING,
    FREED,
    GONE,
    LIVES,
    UNDECIDED,
    UNKNOWN,
    WAIT,
    Agreement,
    Claim,
    ClaimOptions,
    Conflicts,
    Quorum,
    read_votes,
)
from disque_trio.node.core.unique.voter import Voter
from disque_trio.protocol.keyrecord import ADDED, PENDING
from disque_trio.protocol.trailer import Trailer
from disque_trio.resp.reply import error
from disque_trio.respserver.client import Client

Replace: TypeAlias = Callable[[bytes, bytes, Job, int, Callable[[bytes], None]], None]

REPLACE_TIME: Final = 2_500  # ms for a node to replace a job, on all nodes that hold it
PAUSE: Final = 40  # ms until an undecided claim is repeated; up to twice as long

_KEPT: Final = error(
    b"DELIVERED The job that had the key has ended, and keeps it for some time: it was added with "
    b"FOR"
)
_FLUSHED: Final = error(b"NOUNIQ job removed before the nodes agreed on its key")


class Claims(Agreement):
    """The ADDJOBs UNIQUE of one node.

    Args:
        voter: this node's own.
        replication: adds jobs.
        admissions: the ADDJOBs whose jobs are not added yet.
        replace: lets a node give the job with this id the contents of another, within so many ms,
            and calls a function with the result (see ``key_messages``).

    Attributes:
        claiming: the claims in the stage CLAIMING, by the ids of their jobs.
        repeats: number of ADDJOBs that were answered with an existing job.
    """

    def __init__(
        self,
        core: Core,
        voter: Voter,
        replication: Replication,
        admissions: Admissions,
        replace: Replace,
    ) -> None:
        store = core.store
        self._random = core.rng.random
        self.machine = store.machine
        self.claiming: dict[bytes, Claim] = {}
        self.repeats = 0
        self.replicated = replication.replicated
        self._store = store
        self._uniques = core.store.uniques
        self._voter = voter
        self._replication = replication
        self._ask_to_replace = replace
        self._rpc = core.rpc
        self._notices = core.notices
        self._admissions = admissions
        self._peers = core.peers
        self._quorum = Quorum(core, voter)
        self._conflicts = Conflicts(core, voter, self._quorum, self._verdict)

    # ---- ADDJOB -----------------------------------------------------------------------------

    def known(self, queue: bytes, trailer: Trailer, replace: bool) -> bytes:
        """The id of the job that has the key in ``trailer``; empty: there is none, or it is to be
        replaced, or other nodes have to be asked."""
        entry = self._uniques.find(queue, trailer.key)
        alone = self._peers.size == 1
        if entry is None or (trailer.key_state and not alone):
            return b""
        held = self._voter.status(entry.id) in (words.HELD, words.ADDING)
        if (held or (entry.lasts and entry.state > PENDING)) and (alone or entry.state == ADDED):
            if replace:
                return b""
            self.repeats += 1
            return entry.id
        if alone:
            self._uniques.drop(entry)
        return b""

    def begin(
        self,
        client: Client,
        job: Job,
        trailer: Trailer,
        external: bool,
        timeout: int,
        bounded: bool,
        admit: Admit,
        options: ClaimOptions,
    ) -> None:
        """Add ``job``, which is new, if the nodes agree that it may have its key; then ``client``
        gets its reply. Until they do, nobody sees the job."""
        voters = self._uniques.voters(job.queue, trailer.key)
        claim = Claim(
            self,
            self.machine.now,
            client,
            job,
            external,
            timeout,
            bounded,
            admit,
            trailer,
            voters,
            options,
        )
        self._admissions.hold(claim)
        self.claiming[job.id] = claim
        self._uniques.adding[job.id] = None
        self._claim(claim)

    def _claim(self, claim: Claim) -> None:
        """Ask for the key."""
        self._ask_voters(claim, not claim.waits, self._judge)

    def _ask_voters(
        self, claim: Claim, final: bool, judge: "Callable[[Claim, Question], None]"
    ) -> None:
        message = claim.message(words.CLAIM)
        message.final = final
        message.lasts = claim.lasts
        message.left = claim.until - self.machine.now
        message.instead = claim.instead
        message.any = claim.any
        message.replaces = claim.replace
        self._quorum.ask(claim, message, claim.voters, judge)

    def _judge(self, claim: Claim, question: Question) -> None:
        """Count the votes for ``claim``."""
        if claim.question is not question or claim.reply is not None or claim.stage != CLAIMING:
            return
        votes = read_votes(question)
        granted = [id for id, vote in votes.items() if vote.id == claim.job.id]
        rival: Vote | None = None
        for vote in votes.values():
            if not vote.id:
                self._refuse(claim, UNDECIDED)
                return
            if vote.id != claim.job.id:
                if _is_added(vote) and not claim.exact:
                    self._answer(claim, vote.id)
                    return
                if rival is None or vote.state > rival.state:
                    rival = vote
        needed = len(claim.voters) // 2 + 1
        # Those that vote for a job that is to be replaced keep its key for as long as it may live.
        enough = len(votes) >= needed or not claim.replace
        if len(granted) >= needed and (rival is None or rival.state == PENDING):
            self._had(claim)
        elif question.over or (enough and len(granted) + len(question.waiting) < needed):
            self._rpc.close(question)
            claim.instead = b""
            claim.any = False
            if rival is None or not enough:
                self._undecided(claim)
            else:
                if rival.id < claim.job.id:
                    self._withdraw(claim, [])  # of two that begin at once, one has to go first
                self._conflicts.look_at(claim, rival)

    def _verdict(self, claim: Claim, rival: Vote, what: int) -> None:
        """Go on now that the fate of the job ``rival``, which has the key, is known to be
        ``what``."""
        claim.waited = what == WAIT or claim.is_too_late(self.machine.now)
        if what == LIVES and claim.replace:
            self._replace(claim, rival)
        elif what == LIVES:
            self._answer(claim, rival.id)
        elif what == FREED:
            self._free(claim, rival.id)
        elif what == WAIT:
            if rival.id < claim.job.id:
                claim.rival = rival
            self._pause(claim)
        elif what == UNKNOWN:
            self._undecided(claim)
        else:
            bury = claim.message(words.BURY, rival.id)
            self._uniques.tell(bury, self._peers.everyone())
            self._voter.on_notification(bury)
            claim.instead = rival.id
            claim.any = what == GONE
            self._claim(claim)

    def _free(self, claim: Claim, id: bytes) -> None:
        """Claim the key again: its job, ``id``, has it no more, which not all nodes have heard."""
        free = claim.message(words.FREE, id)
        self._uniques.tell(free, self._peers.everyone())
        self._voter.on_notification(free)
        claim.instead = id
        claim.any = True
        if claim.freed == id:
            self._pause(claim)
        else:
            claim.freed = id
            self._claim(claim)

    def _replace(self, claim: Claim, rival: Vote) -> None:
        """Give the job ``rival``, which has the key, the contents of that of ``claim``."""
        votes = {} if claim.question is None else read_votes(claim.question)
        own = self._store.replicas.own
        holders = [id for id, vote in votes.items() if vote.status == words.HELD]
        if not holders:
            if rival.lasts:
                self._refuse(claim, _KEPT)
            else:
                self._pause(claim)
            return
        node = own if own in holders else min(holders)
        timeout = max(min(REPLACE_TIME, claim.agree_by - self.machine.now), 1)
        told = partial(self._replaced, claim, rival)
        self._ask_to_replace(node, rival.id, claim.job, timeout, told)

    def _replaced(self, claim: Claim, rival: Vote, result: bytes) -> None:
        if claim.reply is not None or claim.stage != CLAIMING:
            return
        if result == words.REPLACED:
            self._answer(claim, rival.id)
        elif result == words.HAS_STARTED:
            self._free(claim, rival.id)
        elif result == words.AGAIN:
            self._pause(claim)
        else:
            self._refuse(claim, result)

    def _undecided(self, claim: Claim) -> None:
        if claim.anyway and not claim.is_too_late(self.machine.now):
            self._had(claim)
        else:
            self._pause(claim)

    def _pause(self, claim: Claim) -> None:
        """Try again in a moment, if there is time left."""
        now = self.machine.now
        if now < claim.agree_by:
            claim.again = min(now + PAUSE + int(self._random() * PAUSE), claim.agree_by)
            self._rpc.timer.wake_by(claim.again)
        else:
            self._refuse(claim, UNDECIDED)

    # ---- results ----------------------------------------------------------------------------

    def _had(self, claim: Claim) -> None:
        """Handle that the job may have its key: check whether there is room for it."""
        if claim.bounded:
            if claim.question is not None:
                self._rpc.close(claim.question)
                claim.question = None
            self._admissions.count(claim, partial(self._add, claim))
        else:
            self._add(claim, NOTHING)

    def _add(self, claim: Claim, elsewhere: Queued) -> None:
        """Add the job, if possible. ``elsewhere``: see ``Admission.admit``."""
        if claim.reply is not None:
            return
        refusal = self._admissions.admits(claim, elsewhere)
        if refusal:
            self._refuse(claim, refusal)
            return
        self._leave_claiming(claim)
        claim.stage = COPYING if claim.waits else AGREED
        self._admissions.add(claim)
        if not claim.waits:
            self._say_added(claim)

    def _leave_claiming(self, claim: Claim) -> None:
        del self.claiming[claim.job.id]
        if claim.question is not None:
            self._rpc.close(claim.question)
        for other in self.claiming.values():
            if other.again and other.key == claim.key:
                other.again = self.machine.now  # it may have waited for this one
                self._rpc.timer.wake_by(other.again)

    def _say_added(self, claim: Claim) -> None:
        """Tell the voters and the producer that the job was added."""
        job = claim.job
        self._uniques.adding.pop(job.id, None)
        message = claim.message(words.SAY_ADDED)
        if not claim.external:
            self._uniques.hold(job, ADDED)
        self._voter.on_notification(message)
        self._uniques.tell(message, claim.voters)

    def _answer(self, claim: Claim, id: bytes) -> None:
        """Reply with the id of the job that has the key."""
        self.repeats += 1
        self._refuse(claim, b"+" + id + b"\r\n")

    def _refuse(self, claim: Claim, reply: bytes) -> None:
        """Drop the job, and send ``reply``."""
        self._leave_claiming(claim)
        self._withdraw(claim, [])
        self._uniques.adding.pop(claim.job.id, None)
        self._admissions.refuse(claim, reply)

    def _withdraw(self, claim: Claim, more: list[bytes]) -> None:
        """Tell the voters, and ``more``, that the job does not want the key and never had it."""
        message = claim.message(words.WITHDRAW)
        self._uniques.tell(message, claim.voters + [id for id in more if id not in claim.voters])
        self._voter.on_notification(message)

    def forget_client(self, client: Client) -> None:
        """Give up the claims of ``client``, which has disconnected."""
        for claim in list(self.claiming.values()):
            if claim.client is client:
                self._refuse(claim, b"")

    # ---- after the copies ---------------------------------------------------------------------

    def confirm(self, claim: Claim) -> None:
        claim.instead = b""
        self._ask_voters(claim, claim.stage == CONFIRMING, self._judge_confirmed)

    def _judge_confirmed(self, claim: Claim, question: Question) -> None:
        if claim.question is not question or claim.reply is not None:
            return
        votes = read_votes(question)
        granted = [id for id, vote in votes.items() if vote.id == claim.job.id]
        needed = len(claim.voters) // 2 + 1
        lost = len(votes) - len(granted) > len(claim.voters) - needed
        given_up = b"" in [vote.id for vote in votes.values()]
        rivals = [vote.id for vote in votes.values() if vote.id != claim.job.id and _is_added(vote)]
        if given_up or (lost and not claim.anyway):
            self._rpc.close(question)
            self._replication.cancel(claim, UNDECIDED)
        elif claim.anyway and rivals and len(granted) < needed:
            # Nobody answered in time at first, but now it is known which job has the key.
            self._rpc.close(question)
            self.repeats += 1
            self._replication.cancel(claim, b"+" + rivals[0] + b"\r\n")
        elif claim.stage == CONFIRMING and (
            len(granted) >= needed or (claim.anyway and (question.over or lost))
        ):
            claim.stage = AGREED
            self._rpc.close(question)
            self._say_added(claim)
            self.replicated(claim.job)

    def take_back(self, claim: Claim) -> None:
        job = claim.job
        claim.stage = AGREED
        if claim.question is not None:
            self._rpc.close(claim.question)
        others = [id for id in job.delivered or () if id != self._store.replicas.own]
        self._uniques.adding[job.id] = None
        self._uniques.refuse(job.id)
        ended = partial(self._taken_back, claim, others)
        question = self._rpc.call(
            CLAIM,
            claim.message(words.CANCEL).pack(),
            others,
            ANSWER_TIME,
            ended,
            self._notices.fields,
        )
        if question.over:
            ended(question)

    def _taken_back(self, claim: Claim, others: list[bytes], question: Question) -> None:
        if question.over:
            self._uniques.adding.pop(claim.job.id, None)
            votes = read_votes(question)
            none = (words.NOTHING, words.REFUSED)
            kept = [id for id in others if id not in votes or votes[id].status not in none]
            if not kept:
                self._withdraw(claim, others)

    # ---- time -------------------------------------------------------------------------------

    def next_due(self) -> int:
        """Return when to go on with a claim, in ms; 0: not before an answer comes."""
        return min([claim.again for claim in self.claiming.values() if claim.again], default=0)

    def go_on(self, now: int) -> None:
        """Repeat the claims whose pause is over."""
        for claim in list(self.claiming.values()):
            if claim.again and claim.again <= now and claim.reply is None:
                claim.again = 0
                rival, claim.rival = claim.rival, None
                if now >= claim.agree_by:
                    self._refuse(claim, UNDECIDED)
                elif rival is not None:
                    self._withdraw(claim, [])  # a voter may not have heard it
                    self._conflicts.look_at(claim, rival)
                else:
                    self._claim(claim)

    def flush(self) -> None:
        """Give up all claims, before all jobs are forgotten."""
        for claim in list(self.claiming.values()):
            self._refuse(claim, _FLUSHED)


def _is_added(vote: Vote) -> bool:
    """Whether another job has the key, according to ``vote``, and is alive or keeps it."""
    return vote.state == ADDED and (vote.lasts or vote.status == words.HELD)
