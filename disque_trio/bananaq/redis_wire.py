"""Operations on one queue as arguments of the script, and its answers as their results.

Owns the codes. Operations of the same kind that follow each other are one run: its code, how many
there are, then their fields. For each run there is one answer: a list with one for each operation,
the text of an error for all of them, or `LATER`.
"""

import re
from typing import Final

from disque_trio.bananaq.core.ops import (
    ACK,
    ADD,
    FLUSH,
    GET,
    LAST,
    NEXT,
    REDO,
    STATUS,
    WORKING,
    Event,
    GroupStatus,
    Op,
    QueueStatus,
)
from disque_trio.bananaq.redis_keys import KeyNames

# What the store does of its own, with the names of consumers in ``groups``.
ENTER: Final = 101
LEAVE: Final = 102

LATER: Final = -1  # not done, since the answers have become too large: ask again
MOST_IN_RUN: Final = 256  # Lua unpacks a few thousand values at most

Argument = bytes | str | int


_CODES: Final = {
    ADD: b"A",
    GET: b"G",
    ACK: b"K",
    WORKING: b"W",
    REDO: b"R",
    NEXT: b"N",
    LAST: b"L",
    FLUSH: b"F",
    STATUS: b"S",
    ENTER: b"E",
    LEAVE: b"X",
}

# What Redis adds to the errors of a script.
_WHERE: Final = re.compile(r" script: [0-9a-f]{40}, on @user_script:\d+\.$")


def _time(value: int, absolute: bool) -> bytes:
    return b"@%d" % value if absolute else b"%d" % value


def _owns(op: Op) -> bool:
    return op.by_own_id or op.own_id != b""


def _hold(op: Op) -> bytes:
    return b"@%d" % op.hold_until if op.hold_until else b"%d" % op.hold


def _delivery(id: bytes) -> tuple[bytes, bytes]:
    """The id of the event in Redis and the number of the delivery."""
    parts = id.split(b"_")
    if len(parts) == 3 and parts[2] != b"1":
        return b"_".join(parts[:2]), parts[2]
    return id, b"1"


class Batch:
    """Operations on one queue that go to Redis in one call, and how they stand in it.

    Attributes:
        queue: its name. ops: in order. arguments: of the script. groups: those that are concerned,
            as they stand in keys.
    """

    __slots__ = ("_runs", "arguments", "groups", "ops", "queue")

    def __init__(self, queue: bytes, ops: list[Op], names: KeyNames) -> None:
        self.queue = queue
        self.ops = ops
        self.groups: set[bytes] = set()
        self._runs: list[list[Op]] = []
        self.arguments: list[Argument] = [b""]
        self._encode(names)

    def _encode(self, names: KeyNames) -> None:
        out = self.arguments
        ops = self.ops
        at = 0
        codes = b""
        while at < len(ops):
            op = ops[at]
            kind = op.kind
            end = at + 1
            if kind == ADD and not _owns(op):
                while end < len(ops) and ops[end].kind == ADD and not _owns(ops[end]):
                    end += 1
                out += (b"A", b"%d" % (end - at), b"%d" % (2 * (end - at)))
                for op in ops[at:end]:
                    out += (_time(op.expire, op.absolute), op.body)
            elif kind == GET:
                hold = _hold(op)
                while (
                    end < len(ops)
                    and ops[end].kind == GET
                    and ops[end].group == op.group
                    and _hold(ops[end]) == hold
                ):
                    end += 1
                group = names.encode(op.group)
                self.groups.add(group)
                out += (b"G", b"%d" % (end - at), b"2", group, hold)
            elif kind == ACK and not _owns(op):
                while (
                    end < len(ops)
                    and ops[end].kind == ACK
                    and not _owns(ops[end])
                    and ops[end].group == op.group
                ):
                    end += 1
                count = end - at
                group = names.encode(op.group)
                self.groups.add(group)
                out += (b"K", b"%d" % count, b"%d" % (1 + 2 * count), group)
                for op in ops[at:end]:
                    out += _delivery(op.id)
            else:
                self._single(op, names)
            code = _CODES[kind].lower() if _owns(op) else _CODES[kind]
            if code not in codes:
                codes += code
            self._runs.append(ops[at:end])
            at = end
        # Which of its parts the script needs.
        out[0] = codes

    def _single(self, op: Op, names: KeyNames) -> None:
        kind = op.kind
        group = names.encode(op.group)
        out = self.arguments
        if kind not in (LAST, FLUSH, STATUS, ENTER, LEAVE):
            self.groups.add(group)
        if kind == ADD:
            front = b"1" if op.front else b"0"
            out += (b"a", b"1", b"5", _time(op.expire, op.absolute), op.body, op.own_id, group)
            out.append(front)
        elif kind == ACK:
            out += (b"k", b"1", b"2", group, op.own_id)
        elif kind == WORKING and _owns(op):
            out += (b"w", b"1", b"3", group, _hold(op), op.own_id)
        elif kind == WORKING:
            out += (b"W", b"1", b"4", group, _hold(op), *_delivery(op.id))
        elif kind == REDO and _owns(op):
            out += (b"r", b"1", b"2", group, op.own_id)
        elif kind == REDO:
            out += (b"R", b"1", b"3", group, *_delivery(op.id))
        elif kind == NEXT:
            out += (b"N", b"1", b"1", group)
        elif kind == LAST:
            out += (b"L", b"1", b"0")
        elif kind == FLUSH:
            out += (b"F", b"1", b"0")
        elif kind in (STATUS, ENTER, LEAVE):
            count = b"%d" % len(op.groups)
            groups = map(names.encode, op.groups) if kind == STATUS else op.groups
            out += (_CODES[kind], count, count, *groups)
        else:
            raise ValueError(f"no such operation: {kind}")

    def decode(self, answers: object, names: KeyNames) -> list[Op]:
        """Take the results; the operations that were not done and have to be asked for again."""
        if not isinstance(answers, list) or len(answers) != len(self._runs):
            raise ValueError(f"not an answer of the script: {answers!r:.200}")
        again: list[Op] = []
        for run, answer in zip(self._runs, answers, strict=True):
            if answer == LATER:
                again += run
            elif isinstance(answer, list):
                for op, result in zip(run, answer, strict=True):
                    if result == LATER:
                        again.append(op)
                    else:
                        _take(op, result, names)
            else:
                text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
                for op in run:
                    op.error = server_side(text)
        return again


def server_side(text: str) -> str:
    """The text of an error reply for what went wrong with Redis."""
    return "ERR server-side error: " + " ".join(_WHERE.sub("", text).split())


def _take(op: Op, result: object, names: KeyNames) -> None:
    kind = op.kind
    if kind == ADD:
        if isinstance(result, bytes):
            op.id = result
        else:
            op.conflict = True
    elif kind in (GET, NEXT, LAST):
        if isinstance(result, list) and len(result) == 2:
            op.due, now = result
            op.left = max(op.due - now, 0)
        elif isinstance(result, list):
            id, own_id, body = result
            op.event = Event(id, own_id, body)
    elif kind in (ACK, WORKING, REDO):
        assert isinstance(result, int)
        op.count = result
    elif kind == STATUS:
        op.status = [_status(op, result, names)]


def _status(op: Op, result: object, names: KeyNames) -> QueueStatus:
    assert isinstance(result, list)
    total: int = result[0]
    groups = []
    for name, inprogress, redo, available, consumers in result[1:]:
        inprogress = min(inprogress, total)
        redo = min(redo, total - inprogress)
        available = min(available, total - inprogress - redo)
        groups.append(
            GroupStatus(names.decode(name), total, inprogress, redo, available, consumers)
        )
    if not op.groups:
        groups.sort(key=lambda status: status.group)
    return QueueStatus(op.queue, total, groups)
