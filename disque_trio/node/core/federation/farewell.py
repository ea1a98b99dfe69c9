"""Ends the exchange of jobs with other nodes before this node stops.

A job that is delivered at most once exists in one place. So if it is given to a node that stops
before it has read the packet, it is lost. Therefore a node that is about to stop asks for no more
jobs, tells the others (STOPS), and goes on reading. They give it nothing more, and answer once
everything that they have for it is on its way before the answer. A C node, or one of an older
release, does not answer. It only gives what it was asked for, so its packets are here in a moment.
Nor does a node that still loads its jobs, and gives nothing.

It also tells the others at once what its clients have: if it does not come back, they would take
that for queued.
"""

from typing import Final

from disque_trio.node.core.federation.federation import Federation
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.rpc.calls import STOPS, Question
from disque_trio.protocol.fields import Field

PATIENCE: Final = 500  # ms to wait for answers
MOMENT: Final = 100  # ms in which what was asked of a C node arrives; others show that they serve


class Farewell:
    """What one node does for nodes that are about to stop, and before it stops itself.

    Args:
        federation: gets jobs from other nodes, and knows what gives them.
    """

    def __init__(self, core: Core, federation: Federation) -> None:
        self._machine = core.machine
        self._federation = federation
        self._exports = federation.exports
        self._places = core.store.replicas.places
        self._rpc = core.rpc
        self._notices = core.notices
        self._peers = core.peers
        self._question: Question | None = None
        self._begun = 0  # in ms
        self._quiet_at = 0  # when C nodes have nothing more for this one, in ms
        core.rpc.handlers[STOPS] = self._on_stops

    def begin(self, now: int) -> None:
        """Exchange no more jobs with other nodes, and tell them so: this node is about to stop."""
        self._machine.now = self._begun = now
        self._exports.stopping = True
        self._places.hurry(now)
        peers = self._peers
        linked = [id for id in peers.everyone() if peers.linked(id)]
        if not all(map(peers.understands, linked)):
            self._quiet_at = now + MOMENT
        self._question = self._rpc.call(STOPS, [], linked, PATIENCE, _nobody)

    def is_over(self, now: int) -> bool:
        """Whether no more jobs are on their way to this node at ``now`` (ms), or it has waited for
        long enough."""
        question = self._question
        if question is None or now >= question.deadline:
            return True
        if now < self._quiet_at:
            return False
        expected = self._peers.linked if now < self._begun + MOMENT else self._peers.answers
        return question.over or not any(map(expected, question.waiting))

    def _on_stops(self, sender: bytes, fields: list[Field]) -> list[Field]:
        """Handle that the node ``sender`` is about to stop."""
        self._exports.stops(sender)
        self._notices.send()  # before the answer
        return []


def _nobody(question: Question) -> None:
    """``is_over`` looks at the answers."""
