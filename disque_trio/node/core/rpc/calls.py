"""Calls to other nodes, and their answers.

Only nodes that announce extensions are asked (QUESTION) and answer (ANSWER). A node that cannot be
reached, or does not answer in time, is silent: whoever asks decides what that means. A question
that may come twice can be repeated to those that have not answered: a packet may get lost with its
connection.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.rpc.timer import Timer
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketError, PacketWriter
from disque_trio.protocol.fields import Field, FieldsError, pack_number, unpack_number
from disque_trio.respserver.machine import Machine

# Kinds of questions.
OUTCOME: Final = 1  # how did this job end?
CLAIM: Final = 3  # may this job have this key?
LENGTH: Final = 4  # how many jobs has this queue?
REDRIVE: Final = 7  # send dead letters back
PURGE: Final = 8  # end the jobs of a queue
LIMIT: Final = 9  # who uses this limited queue?
MOVE: Final = 10  # move the jobs of a queue to another one
STOPS: Final = 12  # the asking node stops; is there anything on its way to it?
KEYS: Final = 13  # which jobs have these keys?
REPLACE: Final = 22  # give this job the contents of that one (only for nodes that replace jobs)
CLOCK: Final = 23  # what time is it?
GROUP_LIMITS: Final = 21  # who uses these limited groups? (only for nodes that limit groups)
# News, which have no answer.
ENDED: Final = 5  # what became of this job
UPDATED: Final = 6  # this change of a job is known here
WISH: Final = 11  # clients here wait for jobs of queues that match these patterns
LEFT: Final = 14  # these jobs are no longer in a queue here (only for nodes that have such news)
LOST: Final = 16  # these jobs were lost here: the file was damaged
STAYS: Final = 18  # these lots of jobs are still in queues here (only for nodes that keep lots)
UNSURE: Final = 20  # what the asking node said of these lots is not what is known here (likewise)

_TICKET: Final = 1  # type of the field with number and kind; other fields have higher types

Handler: TypeAlias = Callable[[bytes, list[Field]], list[Field] | None]


class Question:
    """A question to other nodes.

    Attributes:
        waiting: ids of the nodes that have not answered.
        answers: the fields that each of the others sent.
        deadline: when it is over in any case, in ms since the epoch.
        packet: the question, if it is to be repeated.
        due: when to repeat it or end it, in ms since the epoch. gap: ms until the next time.
        over: nothing more will come.
    """

    def __init__(
        self,
        number: int,
        nodes: list[bytes],
        deadline: int,
        on_answer: "Callable[[Question], None]",
    ) -> None:
        self.number = number
        self.waiting = nodes
        self.answers: dict[bytes, list[Field]] = {}
        self.deadline = deadline
        self.packet = b""
        self.due = deadline
        self.gap = 0
        self.over = False
        self.on_answer = on_answer


class Rpc:
    """The open questions of one node, and its answers to those of others.

    Args:
        machine: provides the time.
        peers: the rest of the cluster.
        packets: makes this node's packets.

    Attributes:
        handlers: by kind: takes the asking node and its fields, returns the answer; None: no
            answer.
        open: the questions by number.
        timer: when these, and what is built on them, have something to do.
        asked: while a handler runs: the number of its question, for ``answer``; 0: no answer is
            wanted.
    """

    def __init__(self, machine: Machine, peers: Peers, packets: PacketWriter) -> None:
        self.handlers: dict[int, Handler] = {}
        self.open: dict[int, Question] = {}
        self.timer = Timer()
        self._machine = machine
        self._peers = peers
        self._packets = packets
        self._number = 0
        self.asked = 0

    def call(
        self,
        kind: int,
        fields: list[Field],
        nodes: list[bytes],
        timeout: int,
        on_answer: Callable[[Question], None],
        behind: list[tuple[bytes, bytes]] | None = None,
        again: int = 0,
    ) -> Question:
        """Ask ``nodes``. ``on_answer`` is called after each answer, and when the question is over:
        all have answered, or ``timeout`` ms have passed. If no node can be asked, it is over when
        this returns, and ``on_answer`` is not called.

        Args:
            behind: append the packets to it instead of sending them (see ``Notices.fields``).
            again: ms after which to repeat it to nodes that have not answered, twice as long each
                time; 0: never.
        """
        peers = self._peers
        reached = [id for id in nodes if peers.understands(id) and peers.linked(id)]
        self._number += 1
        question = Question(self._number, reached, self._machine.now + timeout, on_answer)
        if not reached:
            question.over = True
            return question
        self.open[question.number] = question
        ticket = _ticket(question.number, kind)
        packet = self._packets.fields(bus.QUESTION, [ticket, *fields])
        if again:
            question.packet = packet
            question.gap = again
            question.due = min(self._machine.now + again, question.deadline)
        self.timer.wake_by(question.due)
        for id in reached:
            if behind is None:
                peers.send(id, packet)
            else:
                behind.append((id, packet))
        return question

    def notification(self, kind: int, fields: list[Field]) -> bytes:
        """The packet that tells a node ``fields`` and asks for no answer."""
        return self._packets.fields(bus.QUESTION, untracked(kind, fields))

    def close(self, question: Question) -> None:
        """Stop waiting for answers."""
        question.over = True
        self.open.pop(question.number, None)

    def next_due(self) -> int:
        """Return when to repeat or end a question, in ms; 0: none is open."""
        return min([question.due for question in self.open.values()], default=0)

    def end_due(self, now: int) -> None:
        """End the questions whose time is over, and repeat others."""
        for question in list(self.open.values()):
            if question.deadline <= now:
                self.close(question)
                question.on_answer(question)
            elif question.due <= now:
                for id in question.waiting:
                    # What waits in a connection need not be queued behind itself.
                    if not self._peers.behind(id):
                        self._peers.send(id, question.packet)
                question.gap *= 2
                question.due = min(now + question.gap, question.deadline)

    def flush(self) -> None:
        """Forget all questions."""
        self.open.clear()

    # ---- from other nodes -------------------------------------------------------------------

    def on_question(self, sender: bytes, fields: list[Field]) -> None:
        """Handle QUESTION. Raises ``PacketError``."""
        number, kind = _read_ticket(fields)
        handler = self.handlers.get(kind)
        if handler is None:
            return
        self.asked = number
        try:
            answer = handler(sender, fields[1:])
        except FieldsError as problem:
            raise PacketError(f"malformed question: {problem}") from problem
        if answer is not None and number:
            self._peers.send(sender, self.answer(number, kind, answer))

    def answer(self, number: int, kind: int, fields: list[Field]) -> bytes:
        """The packet that answers the question ``number``, which its handler did not answer."""
        return self._packets.fields(bus.ANSWER, [_ticket(number, kind), *fields])

    def on_answer(self, sender: bytes, fields: list[Field]) -> None:
        """Handle ANSWER. Raises ``PacketError``."""
        number, _ = _read_ticket(fields)
        question = self.open.get(number)
        if question is None or sender not in question.waiting:
            return
        question.waiting = [id for id in question.waiting if id != sender]
        question.answers[sender] = fields[1:]
        if not question.waiting:
            self.close(question)
        try:
            question.on_answer(question)
        except FieldsError as problem:
            raise PacketError(f"malformed answer: {problem}") from problem


def untracked(kind: int, fields: list[Field]) -> list[Field]:
    """The fields of a question that has no answer: news for a node."""
    return [_ticket(0, kind), *fields]


def _ticket(number: int, kind: int) -> Field:
    """The first field; ``number`` is 0 if no answer is wanted."""
    return _TICKET, pack_number(number) + pack_number(kind)


def _read_ticket(fields: list[Field]) -> tuple[int, int]:
    """The number of a question and its kind. Raises ``PacketError``."""
    if not fields or fields[0][0] != _TICKET or len(fields[0][1]) != 16:
        raise PacketError("a question without a ticket")
    return unpack_number(fields[0][1][:8]), unpack_number(fields[0][1][8:])
