"""Asks nodes, maybe including this one, about the key of a claim, and collects their votes."""

from collections.abc import Callable
from functools import partial
from typing import Final

from disque_trio.node.core.jobs import key_messages as words
from disque_trio.node.core.jobs.key_messages import KeyMessage, Vote, read_vote
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.rpc.questions import CLAIM, Question
from disque_trio.node.core.unique.claim import CLAIMING, Claim
from disque_trio.node.core.unique.votes import Votes

ANSWER_TIME: Final = 500  # ms that a node has to answer
ASKED_AGAIN: Final = 100  # ms after which it is asked once more


class Ballots:
    """Asks nodes about keys.

    Args:
        votes: this node's own.
    """

    def __init__(self, core: Core, votes: Votes) -> None:
        self._store = core.store
        self._votes = votes
        self._questions = core.questions
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
                self._votes.claim(message)
                if message.op == words.CLAIM
                else self._votes.look(message)
            )
        left = claim.agree_by - self._store.machine.now if claim.stage == CLAIMING else ANSWER_TIME
        timeout = max(min(ANSWER_TIME, left), 1)
        others = [id for id in nodes if id != own]
        heard = partial(judge, claim)
        question = self._questions.ask(
            CLAIM, message.pack(), others, timeout, heard, self._notices.fields, ASKED_AGAIN
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
