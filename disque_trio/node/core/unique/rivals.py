"""Finds out what became of the job that has the key that a claim wants."""

from collections.abc import Callable
from functools import partial
from typing import Final

from disque_trio.node.core.jobs import key_messages as words
from disque_trio.node.core.jobs.job import is_maker
from disque_trio.node.core.jobs.key_messages import Vote
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.rpc.questions import Question
from disque_trio.node.core.unique.ballots import Ballots, read_votes
from disque_trio.node.core.unique.claim import CLAIMING, Claim
from disque_trio.node.core.unique.votes import Votes
from disque_trio.protocol.keyrecord import ADDED, PENDING

# What became of it.
WAIT: Final = 1  # a node is about to add it
LIVES: Final = 2  # it was added: its id is the answer
GONE: Final = 3  # it has ended, or was never added
LOST: Final = 4  # only its node could know more; unless others confirm it, it was not added
UNKNOWN: Final = 5


class Rivals:
    """Asks the nodes about the jobs that have keys.

    Args:
        votes: this node's own.
        ballots: asks nodes.
        verdict: called with what became of the job that a vote named.
    """

    def __init__(
        self,
        core: Core,
        votes: Votes,
        ballots: Ballots,
        verdict: Callable[[Claim, Vote, int], None],
    ) -> None:
        self._store = core.store
        self._uniques = core.store.uniques
        self._votes = votes
        self._ballots = ballots
        self._questions = core.questions
        self._peers = core.peers
        self._verdict = verdict

    def look_at(self, claim: Claim, rival: Vote) -> None:
        """Ask all nodes about the job that has the key."""
        everyone = [self._store.replicas.own, *self._peers.everyone()]
        judge = partial(self._judge_rival, rival)
        self._ballots.ask(claim, claim.message(words.ASK, rival.id), everyone, judge)

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
            self._questions.close(question)
            self._verdict(claim, rival, WAIT)
        elif state == ADDED and (held or lasts):
            self._verdict(claim, rival, LIVES)
        elif question.over and claim.hears_too_late(self._store.machine.now):
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
            self._votes.cancel(message)
        self._verdict(claim, rival, UNKNOWN)

    def _adopt(self, claim: Claim, rival: Vote, holders: list[bytes]) -> None:
        """Make the voters and the holders confirm the job that has the key, once it has its copies:
        the node that began to add it may be gone."""
        if not self._votes.is_complete(rival.id):
            self._verdict(claim, rival, UNKNOWN)
            return
        said = claim.message(words.WITHDRAW)  # its own votes could be in the way
        self._uniques.tell(said, claim.voters)
        self._votes.hear(said)
        message = claim.message(words.CLAIM, rival.id)
        message.final = True
        message.instead = rival.id
        message.lasts = rival.lasts
        message.left = rival.left
        nodes = claim.voters + [id for id in holders if id not in claim.voters]
        self._ballots.ask(claim, message, nodes, partial(self._judge_adopted, rival, nodes))

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
            said = claim.message(words.SAY_ADDED, rival.id)
            self._uniques.tell(said, nodes)
            self._votes.hear(said)
            self._verdict(claim, rival, LIVES)
        elif question.over:
            self._verdict(claim, rival, UNKNOWN)
