"""Runs REDRIVE on all nodes: dead letters are where they became such.

Letters are sent back a slice at a time, first here, then on one node after the other that can be
reached. Clients are served in between.
"""

from collections import deque
from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.dead_letters import DeadLetters
from disque_trio.node.core.questions import REDRIVE, Question, Questions
from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    number_of,
    pack_number,
    pack_texts,
    unpack_number,
    unpack_texts,
)
from disque_trio.resp.reply import integer
from disque_trio.respserver.client import Client, Pending
from disque_trio.respserver.machine import Machine

SLICE: Final = 100  # letters
PATIENCE: Final = 5_000  # ms for a node to do a slice

# Types of fields.
_QUEUES: Final = 2  # from and to, and the ids
_MOST: Final = 3
_SENT: Final = 4


class Redrive(Pending):
    """The pending reply of a REDRIVE.

    Attributes:
        queue: of the dead letters. to: where they go, empty: where each came from.
        left: how many may still go. ids: those that are to go, none: any.
        sent: how many went. nodes: ids of the other nodes that have not been asked.
    """

    __slots__ = ("ids", "left", "nodes", "queue", "sent", "to")

    def __init__(
        self,
        client: Client,
        queue: bytes,
        to: bytes,
        left: int,
        ids: list[bytes],
        nodes: list[bytes],
    ) -> None:
        super().__init__(client, None)
        self.queue = queue
        self.to = to
        self.left = left
        self.ids = ids
        self.sent = 0
        self.nodes = nodes

    def most(self) -> int:
        """How many go next."""
        return min(self.left, SLICE)


class Redrives:
    """The REDRIVEs of one node that are under way.

    Args:
        machine: hands the replies out.
        dead_letters: does the work on this node.
        questions: ask other nodes to do theirs.
        peers: the rest of the cluster.

    Attributes:
        waiting: those that have work to do on this node; the first one is next.
    """

    def __init__(
        self, machine: Machine, dead_letters: DeadLetters, questions: Questions, peers: Peers
    ) -> None:
        self.waiting: deque[Redrive] = deque()
        self._asked: dict[int, Redrive] = {}  # by the number of the question
        self._machine = machine
        self._dead_letters = dead_letters
        self._questions = questions
        self._peers = peers
        questions.answerers[REDRIVE] = self._answer

    def begin(self, client: Client, queue: bytes, to: bytes, most: int, ids: list[bytes]) -> None:
        """Send up to ``most`` letters of ``queue`` back (see ``DeadLetters.redrive``); ``client``
        gets how many went."""
        redrive = Redrive(client, queue, to, most, ids, list(self._peers.reachable))
        client.line_up(redrive)
        self._wait(redrive)

    def do_slice(self) -> None:
        """Do a slice of the first one that waits, if one does."""
        if not self.waiting:
            return
        redrive = self.waiting.popleft()
        most = redrive.most()
        sent = self._dead_letters.redrive(redrive.queue, redrive.to, most, redrive.ids)
        self._note_sent(redrive, sent)
        if sent == most and redrive.left:
            self._wait(redrive)
        else:
            self._ask_next(redrive)

    def _wait(self, redrive: Redrive) -> None:
        """Do a slice of ``redrive`` when those before it have had theirs."""
        self.waiting.append(redrive)
        self._questions.agenda.call(self._machine.now)

    def _note_sent(self, redrive: Redrive, sent: int) -> None:
        redrive.sent += sent
        redrive.left -= sent

    def _ask_next(self, redrive: Redrive) -> None:
        """Ask the next node for its share, or answer if there is none."""
        while redrive.left and redrive.nodes:
            if self._ask(redrive, redrive.nodes[0]):
                return
            redrive.nodes.pop(0)
        redrive.reply = integer(redrive.sent)
        self._machine.answered.append(redrive)

    def _ask(self, redrive: Redrive, node: bytes) -> bool:
        """Ask ``node`` for the next slice. Returns False if it cannot be asked."""
        fields: list[Field] = [
            (_QUEUES, pack_texts([redrive.queue, redrive.to, *redrive.ids])),
            (_MOST, pack_number(redrive.most())),
        ]
        question = self._questions.ask(REDRIVE, fields, [node], PATIENCE, self._heard)
        if question.over:
            return False
        self._asked[question.number] = redrive
        return True

    def _heard(self, question: Question) -> None:
        """A node has done a slice, or did not answer."""
        redrive = self._asked.pop(question.number, None)
        if redrive is None:
            return
        most = redrive.most()
        sent = 0
        for fields in question.answers.values():
            sent = min(number_of(fields, _SENT), most)
        self._note_sent(redrive, sent)
        if sent < most:
            redrive.nodes.pop(0)
        self._ask_next(redrive)

    def _answer(self, sender: bytes, fields: list[Field]) -> list[Field] | None:
        """Do a slice for another node. Raises FieldsError."""
        texts: list[bytes] = []
        most = 0
        for type, value in fields:
            if type == _QUEUES:
                texts = unpack_texts(value)
            elif type == _MOST:
                most = min(unpack_number(value), SLICE)
        if len(texts) < 2:
            raise FieldsError("a REDRIVE without queues")
        if self._machine.write_problem:
            return [(_SENT, pack_number(0))]
        sent = self._dead_letters.redrive(texts[0], texts[1], most, texts[2:])
        return [(_SENT, pack_number(sent))]

    def flush(self) -> None:
        """All letters are forgotten: answer what went until now."""
        for redrive in [*self.waiting, *self._asked.values()]:
            redrive.reply = integer(redrive.sent)
            self._machine.answered.append(redrive)
        self.waiting.clear()
        self._asked.clear()
