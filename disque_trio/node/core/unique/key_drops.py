"""QDELKEY: frees keys of ADDJOB UNIQUE whose jobs have ended, on all nodes.

The keys are kept by those who vote on them, and by nodes that have, or had, the job. All nodes are
asked which job has a key, and whether they hold it. If all voters have answered, and nobody holds
the job, those who know the key are told that it does not want it. So a key never becomes free while
its job is known to be alive, and does not come back from a voter that was away.
"""

from functools import partial
from typing import Final

from disque_trio.node.core.jobs.key_messages import ADDING, HELD, WITHDRAW, KeyMessage
from disque_trio.node.core.jobs.waits import REMOVED
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.rpc.calls import KEYS, Question
from disque_trio.node.core.unique.voter import Voter
from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    pack_number,
    pack_texts,
    unpack_number,
    unpack_texts,
)
from disque_trio.protocol.keyrecord import is_plain_id
from disque_trio.resp.reply import error, integer
from disque_trio.respserver.client import Client, Pending

MOST: Final = 1_000  # keys in a command
MOST_BYTES: Final = 1 << 18  # of these keys
PATIENCE: Final = 2_000  # ms for the nodes to answer

_TEXTS: Final = 2  # type of the field with queue and keys, or with the answers

_SILENT: Final = error(
    b"NOUNIQ nodes that vote on the keys did not answer, or are of an earlier release: nothing was "
    b"changed, try again later"
)


class Known:
    """What is known of a key.

    Attributes:
        jobs: those that have it, by id, each with the nodes that say so.
        alive: a node holds one of them.
    """

    def __init__(self) -> None:
        self.jobs: dict[bytes, list[bytes]] = {}
        self.alive = False

    def note(self, node: bytes, id: bytes, status: int) -> None:
        """Note that ``node`` knows the key as that of the job ``id``, whose state is ``status``."""
        if id:
            self.jobs.setdefault(id, []).append(node)
            self.alive = self.alive or status in (HELD, ADDING)


class KeyDrops:
    """The QDELKEYs of one node."""

    def __init__(self, core: Core, voter: Voter) -> None:
        self._machine = core.machine
        self._uniques = core.store.uniques
        self._voter = voter
        self._rpc = core.rpc
        self._peers = core.peers
        self._waiting: dict[int, Pending] = {}  # by the number of the question
        core.rpc.handlers[KEYS] = self._answer

    def begin(self, client: Client, queue: bytes, keys: list[bytes]) -> None:
        """Free ``keys`` of ``queue``; ``client`` gets the number of those that jobs had which have
        ended."""
        keys = list(dict.fromkeys(keys))
        reply = Pending(client, None)
        client.line_up(reply)
        fields = [(_TEXTS, pack_texts([queue, *keys]))]
        others = self._peers.everyone()
        on_answer = partial(self._on_answer, queue, keys)
        question = self._rpc.call(KEYS, fields, others, PATIENCE, on_answer)
        self._waiting[question.number] = reply
        if question.over:
            self._on_answer(queue, keys, question)

    def _answer(self, sender: bytes, fields: list[Field]) -> list[Field]:
        """Say what this node knows of keys. Raises ``FieldsError``."""
        texts = unpack_texts(fields[0][1]) if fields and fields[0][0] == _TEXTS else []
        if not 1 <= len(texts) <= MOST + 1:
            raise FieldsError("a QDELKEY without a queue, or with too many keys")
        answers: list[bytes] = []
        for key in texts[1:]:
            entry = self._uniques.find(texts[0], key)
            id = b"" if entry is None else entry.id
            answers.append(pack_number(self._voter.status(id) if id else 0) + id)
        return [(_TEXTS, pack_texts(answers))]

    def _on_answer(self, queue: bytes, keys: list[bytes], question: Question) -> None:
        """Go on once all nodes have answered, or did not."""
        if not question.over:
            return
        reply = self._waiting.pop(question.number, None)
        if reply is None:
            return
        own = self._answer(b"", [(_TEXTS, pack_texts([queue, *keys]))])
        answers = {self._uniques.own: _read(own, len(keys))}
        for id, fields in question.answers.items():
            if texts := _read(fields, len(keys)):
                answers[id] = texts
        if self._have_answered(answers, queue, keys):
            reply.reply = integer(self._drop(queue, keys, answers))
            reply.journaled = self._machine.journaling
        else:
            reply.reply = _SILENT
        self._machine.answered.append(reply)

    def _have_answered(
        self, answers: dict[bytes, list[bytes]], queue: bytes, keys: list[bytes]
    ) -> bool:
        """Whether all who vote on ``keys`` have answered."""
        if all(id in answers for id in self._peers.everyone()):
            return True
        return all(id in answers for key in keys for id in self._uniques.voters(queue, key))

    def _drop(self, queue: bytes, keys: list[bytes], answers: dict[bytes, list[bytes]]) -> int:
        """Free those of ``keys`` that no living job has, by the ``answers`` of the nodes. Return
        how many."""
        dropped = 0
        for number, key in enumerate(keys):
            known = Known()
            for node, texts in answers.items():
                known.note(node, texts[number][8:], unpack_number(texts[number][:8]))
            if known.alive or not known.jobs:
                continue
            dropped += 1
            for id, nodes in known.jobs.items():
                message = KeyMessage(WITHDRAW, queue, key, id)
                self._uniques.tell(message, nodes)
                self._voter.on_notification(message)
        return dropped

    def flush(self) -> None:
        """Reply to all who wait: everything has been forgotten."""
        for reply in self._waiting.values():
            reply.reply = REMOVED
            self._machine.answered.append(reply)
        self._waiting.clear()


def _read(fields: list[Field], count: int) -> list[bytes]:
    """The ``count`` texts of an answer; none if it cannot be read, which counts as no answer."""
    try:
        texts = unpack_texts(fields[0][1]) if fields and fields[0][0] == _TEXTS else []
    except FieldsError:
        return []
    fine = all(len(text) == 8 or (len(text) == 48 and is_plain_id(text[8:])) for text in texts)
    return texts if fine and len(texts) == count else []
