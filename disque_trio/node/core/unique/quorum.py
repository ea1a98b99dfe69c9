"""Asks nodes, maybe including this one, whether the job of an ADDJOB UNIQUE may have its key,
collects their votes, and finds out what became of another job that has the key.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from disque_trio.node.core.copies.admissions import Admission, Admit
from disque_trio.node.core.jobs import key_messages as words
from disque_trio.node.core.jobs.job import Job, is_maker
from disque_trio.node.core.jobs.key_messages import KeyMessage, Vote, read_vote
from disque_trio.node.core.jobs.uniques import life_of
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.rpc.calls import CLAIM, Question
from disque_trio.node.core.unique.voter import Voter
from disque_trio.protocol.keyrecord import ADDED, PENDING
from disque_trio.protocol.trailer import Trailer
from disque_trio.resp.reply import error
from disque_trio.respserver.client import Client

LONGEST: Final = 5_000  # ms to reach agreement, if the client would wait forever
LOOK_GAP: Final = 1_000  # ms between looks at the votes while copies are made

CLAIMING: Final = 0  # the voters are being asked; only this node knows the job
COPYING: Final = 1  # copies are being made
CONFIRMING: Final = 2  # there are enough copies; the voters are being asked again
AGREED: Final = 3

UNDECIDED: Final = error(
    b"NOUNIQ Too few of the nodes that decide who has this key are reachable, or a job with it may "
    b"be on a node that is not; repeat it later, or add ANYWAY"
)


class Agreement:
    """Interface to the code that seeks agreement on claims (see ``claims``)."""

    def confirm(self, claim: "Claim") -> None:
        """Ask the voters again. Once enough nodes have copies and a majority still has the claim,
        the job is added; if a majority no longer has it, the job is given up."""
        raise NotImplementedError

    def take_back(self, claim: "Claim") -> None:
        """Ask the holders of copies of the job, which was given up, to forget it. The key is free
        only if all do; if not, a client that wants it finds the job, or nothing."""
        raise NotImplementedError


class ClaimOptions:
    """What an ADDJOB UNIQUE says of its key.

    Attributes:
        wait: ASYNC is not given.
        anyway: add the job even without a majority.
        replace: give its contents to the job that has the key, if there is one.
    """

    __slots__ = ("anyway", "replace", "wait")

    def __init__(self, wait: bool, anyway: bool, replace: bool) -> None:
        self.wait = wait
        self.anyway = anyway
        self.replace = replace


class Claim(Admission):
    """The pending reply of an ADDJOB UNIQUE in a cluster.

    Attributes:
        key: of the job.
        lasts: the key is kept for some time, whatever becomes of the job.
        until: when the key is free in any case, in ms since the epoch.
        voters: the nodes that decide.
        stage: CLAIMING to AGREED.
        agree_by: when to give up in the stage CLAIMING, in ms.
        again: when to go on, in ms; 0: when an answer comes.
        look_at: when to ask, while copies are made, whether the voters still have the claim, in
            ms.
        anyway, replace: see ``ClaimOptions``.
        exact: all nodes are asked whether a client has had that, as the key may be free then.
        freed: the job that has had it, and so no longer has the key.
        question: the open one, or the last one.
        waited: another job was about to be added when all nodes were last asked.
        rival: that job, if it goes first.
        instead, any: see ``KeyMessage``.
    """

    def __init__(  # noqa: PLR0913
        self,
        agreement: Agreement,
        now: int,
        client: Client,
        job: Job,
        external: bool,
        timeout: int,
        bounded: bool,
        admit: Admit,
        trailer: Trailer,
        voters: list[bytes],
        options: ClaimOptions,
    ) -> None:
        deadline = now + timeout if timeout else 0
        super().__init__(client, job, options.wait, external, deadline, bounded, admit)
        self.key = trailer.key
        self.lasts = trailer.key_until > 0
        self.until = trailer.key_until or life_of(job)
        self.voters = voters
        self.stage = CLAIMING
        self.agree_by = now + (timeout or LONGEST)
        self.again = 0
        self.look_at = now + LOOK_GAP
        self.anyway = options.anyway
        self.replace = options.replace
        self.exact = trailer.key_state != 0
        self.freed = b""
        self.question: Question | None = None
        self.waited = False
        self.rival: Vote | None = None
        self.instead = b""
        self.any = False
        self._agreement = agreement
        self._queue = job.queue  # a holder may move the job while its claim is open

    def message(self, op: int, id: bytes = b"") -> KeyMessage:
        """A message about its key and its job, or about the job ``id``."""
        return KeyMessage(op, self._queue, self.key, id or self.job.id)

    def is_too_late(self, now: int) -> bool:
        """Whether the nodes that were asked if another job is about to be added have run out of
        time to answer: their silence says nothing."""
        return self.waited and now >= self.agree_by

    def agreed(self) -> bool:
        if self.stage == COPYING:
            self.stage = CONFIRMING
            self._agreement.confirm(self)
            return False  # called again if they agree
        return self.stage == AGREED

    def refusal(self, usual: bytes) -> bytes:
        return UNDECIDED if self.stage == CONFIRMING else usual

    def try_again(self, now: int) -> bool:
        confirming = self.stage == CONFIRMING
        if not confirming and now < self.look_at:
            return False
        self.look_at = now + LOOK_GAP
        if self.question is None or self.question.over:
            self._agreement.confirm(self)
        # If others have passed it over, this has ended it.
        return confirming or self.reply is not None

    def given_up(self) -> bool:
        self._agreement.take_back(self)
        return True


ANSWER_TIME: Final = 500  # ms that a node has to answer
ASKED_AGAIN: Final = 100  # ms after which it is asked once more


class Quorum:
    """Asks nodes about keys.

    Args:
        voter: this node's own.
    """

    def __init__(self, core: Core, voter: Voter) -> None:
        self._store = core.store
        self._voter = voter
        self._rpc = core.rpc
        self._notices = core.notices

    def ask(
        self,
        claim: Claim,
        message: KeyMessage,
        nodes: list[bytes],
        judge: "Callable[[Claim, Question], None]",
    ) -> None:
        """Ask ``nodes``, maybe including this one, and let ``judge`` look at the answers."""
        own = self._store.replicas.own
        vote: Vote | None = None
        if own in nodes:
            vote = (
                self._voter.claim(message)
                if message.op == words.CLAIM
                else self._voter.look(message)
            )
        left = claim.agree_by - self._store.machine.now if claim.stage == CLAIMING else ANSWER_TIME
        timeout = max(min(ANSWER_TIME, left), 1)
        others = [id for id in nodes if id != own]
        on_answer = partial(judge, claim)
        question = self._rpc.call(
            CLAIM, message.pack(), others, timeout, on_answer, self._notices.fields, ASKED_AGAIN
        )
        claim.question = question
        if vote is not None:
            question.answers[own] = vote.pack()
        judge(claim, question)


def read_votes(question: Question) -> dict[bytes, Vote]:
    """The answers that could be parsed, by node."""
    votes: dict[bytes, Vote] = {}
    for id, fields in question.answers.items():
        vote = read_vote(fields)
        if vote is not None:
            votes[id] = vote
    return votes


# What became of it.
WAIT: Final = 1  # a node is about to add it
LIVES: Final = 2  # it was added: its id is the answer
GONE: Final = 3  # it has ended, or was never added
FREED: Final = 6  # it has the key no more: a client has had it
LOST: Final = 4  # only its node could know more; unless others confirm it, it was not added
UNKNOWN: Final = 5


class Conflicts:
    """Asks the nodes about the jobs that have keys.

    Args:
        voter: this node's own.
        quorum: asks nodes.
        verdict: called with what became of the job that a vote named.
    """

    def __init__(
        self,
        core: Core,
        voter: Voter,
        quorum: Quorum,
        verdict: Callable[[Claim, Vote, int], None],
    ) -> None:
        self._store = core.store
        self._uniques = core.store.uniques
        self._voter = voter
        self._quorum = quorum
        self._rpc = core.rpc
        self._peers = core.peers
        self._verdict = verdict

    def look_at(self, claim: Claim, rival: Vote) -> None:
        """Ask all nodes about the job that has the key."""
        everyone = [self._store.replicas.own, *self._peers.everyone()]
        judge = partial(self._judge_rival, rival)
        self._quorum.ask(claim, claim.message(words.ASK, rival.id), everyone, judge)

    def _judge_rival(self, rival: Vote, claim: Claim, question: Question) -> None:
        """Judge what is known of the job ``rival``, which has the key."""
        if claim.question is not question or claim.reply is not None or claim.stage != CLAIMING:
            return
        votes = read_votes(question)
        found = {vote.status for vote in votes.values()}
        state = max([rival.state, *[vote.state for vote in votes.values()]])
        lasts = rival.lasts or True in [vote.lasts for vote in votes.values()]
        held = words.HELD in found
        if words.ADDING in found:
            self._rpc.close(question)
            self._verdict(claim, rival, WAIT)
        elif words.STARTED in found or (claim.exact and words.ENDED in found and not lasts):
            self._rpc.close(question)
            self._verdict(claim, rival, FREED)
        elif state == ADDED and (lasts or (held and (question.over or not claim.exact))):
            self._rpc.close(question)
            self._verdict(claim, rival, LIVES)
        elif question.over and claim.is_too_late(self._store.machine.now):
            self._verdict(claim, rival, UNKNOWN)
        elif question.over:
            members = [self._store.replicas.own, *self._peers.everyone()]
            silent = [id for id in members if id not in votes]
            if lasts and words.ENDED in found:
                self._verdict(claim, rival, LIVES)
            elif held:
                holders = [id for id, vote in votes.items() if vote.status == words.HELD]
                refused = [id for id, vote in votes.items() if vote.status == words.REFUSED]
                if True in [is_maker(id, rival.id) for id in refused]:
                    self._clear_away(claim, rival, holders)
                elif len(holders) + len(silent) < min(int(claim.job.repl), len(members)):
                    self._verdict(claim, rival, UNKNOWN)  # it is alive, or was never added
                else:
                    self._adopt(claim, rival, holders)
            elif words.ENDED in found or not silent:
                self._verdict(claim, rival, GONE)
            elif state == PENDING and False not in [is_maker(id, rival.id) for id in silent]:
                self._verdict(claim, rival, LOST)
            else:
                self._verdict(claim, rival, UNKNOWN)

    def _clear_away(self, claim: Claim, rival: Vote, holders: list[bytes]) -> None:
        """Make ``holders`` forget their copies of a job whose own node could not, but gave it
        up."""
        message = claim.message(words.CANCEL, rival.id)
        self._uniques.tell(message, holders)
        if self._store.replicas.own in holders:
            self._voter.cancel(message)
        self._verdict(claim, rival, UNKNOWN)

    def _adopt(self, claim: Claim, rival: Vote, holders: list[bytes]) -> None:
        """Make the voters and the holders confirm the job that has the key, once it has its copies:
        the node that began to add it may be gone."""
        if not self._voter.is_complete(rival.id):
            self._verdict(claim, rival, UNKNOWN)
            return
        message = claim.message(words.WITHDRAW)  # its own votes could be in the way
        self._uniques.tell(message, claim.voters)
        self._voter.on_notification(message)
        message = claim.message(words.CLAIM, rival.id)
        message.final = True
        message.instead = rival.id
        message.lasts = rival.lasts
        message.left = rival.left
        nodes = claim.voters + [id for id in holders if id not in claim.voters]
        self._quorum.ask(claim, message, nodes, partial(self._judge_adopted, rival, nodes))

    def _judge_adopted(
        self, rival: Vote, nodes: list[bytes], claim: Claim, question: Question
    ) -> None:
        if claim.question is not question or claim.reply is not None or claim.stage != CLAIMING:
            return
        votes = read_votes(question)
        having = [id for id, vote in votes.items() if vote.id == rival.id]
        held = words.HELD in [votes[id].status for id in having]
        agree = len([id for id in having if id in claim.voters])
        if held and agree >= len(claim.voters) // 2 + 1:
            message = claim.message(words.SAY_ADDED, rival.id)
            self._uniques.tell(message, nodes)
            self._voter.on_notification(message)
            self._verdict(claim, rival, LIVES)
        elif question.over:
            self._verdict(claim, rival, UNKNOWN)
