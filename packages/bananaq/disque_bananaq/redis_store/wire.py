"""Encodes requests about one queue as arguments of the script, and decodes its answers into
results.

Owns the codes. Consecutive requests of the same kind are one run: its code, their number, then
their fields. For each run there is one answer: a list with one answer for each request, the text of
an error for all of them, or ``LATER``.
"""

import re
from typing import Final

from disque_bananaq.core.requests import (
    Ack,
    Add,
    DeliveryRequest,
    Flush,
    Get,
    Last,
    Next,
    QueueRequest,
    Redo,
    Time,
    Working,
)
from disque_bananaq.core.results import Event, GroupStatus, QueueStatus, Result
from disque_bananaq.redis_store.keys import KeyNames
from disque_trio.notation.addresses import Address


class StatusOf(QueueRequest):
    """The part of a ``Status`` about one queue."""

    __slots__ = ("groups",)

    def __init__(self, queue: bytes, groups: list[bytes]) -> None:
        self.queue = queue
        self.groups = groups


class Enter(QueueRequest):
    """A sign of life of consumers.

    Attributes:
        members: the consumers, as written in the key of consumers.
    """

    __slots__ = ("members",)

    def __init__(self, queue: bytes, members: list[bytes]) -> None:
        self.queue = queue
        self.members = members


class Leave(QueueRequest):
    """Clients that are no longer consumers; ``members`` as in ``Enter``."""

    __slots__ = ("members",)

    def __init__(self, queue: bytes, members: list[bytes]) -> None:
        self.queue = queue
        self.members = members


LATER: Final = -1  # not executed, since the answers became too large: ask again
MOST_IN_RUN: Final = 256  # Lua unpacks at most a few thousand values

Argument = bytes | str | int
Answer = tuple[QueueRequest, Result]


# What Redis adds to the errors of a script.
_WHERE: Final = re.compile(r" script: [0-9a-f]{40}, on @user_script:\d+\.$")


def _time(time: Time) -> bytes:
    us, absolute = time
    return b"@%d" % us if absolute else b"%d" % us


def _delivery(id: bytes) -> tuple[bytes, bytes]:
    """Return the event's id in Redis and the number of the delivery."""
    parts = id.split(b"_")
    if len(parts) == 3 and parts[2] != b"1":
        return b"_".join(parts[:2]), parts[2]
    return id, b"1"


class Call:
    """Requests about one queue that go to Redis in one call, with their positions in it.

    Attributes:
        queue: the name of the queue.
        requests: the requests, in order.
        arguments: the arguments of the script.
        groups: the groups concerned, as written in keys.
        node: the node to which the call was last sent, or could not be sent.
    """

    __slots__ = ("_runs", "arguments", "groups", "node", "queue", "requests")

    def __init__(
        self, queue: bytes, requests: list[QueueRequest], names: KeyNames, node: Address
    ) -> None:
        self.queue = queue
        self.node = node
        self.requests = requests
        self.groups: set[bytes] = set()
        self._runs: list[list[QueueRequest]] = []
        self.arguments: list[Argument] = [b""]
        self._encode(names)

    def _encode(self, names: KeyNames) -> None:
        out = self.arguments
        requests = self.requests
        at = 0
        codes = b""
        while at < len(requests):
            begin = len(out)
            end = self._encode_run(requests, at, names)
            code = out[begin]
            assert isinstance(code, bytes)
            if code not in codes:
                codes += code
            self._runs.append(requests[at:end])
            at = end
        # Tell the script which of its parts it needs.
        out[0] = codes

    def _encode_run(self, requests: list[QueueRequest], at: int, names: KeyNames) -> int:
        """Encode the request ``at`` and those after it that belong to the same run. Return where
        the next run begins."""
        request = requests[at]
        if isinstance(request, Add) and request.own_id is None:
            return self._adds(requests, at)
        if isinstance(request, Get):
            return self._gets(requests, at, request, names)
        if isinstance(request, Ack) and request.own_id is None:
            return self._acks(requests, at, request.group, names)
        if isinstance(request, Add):
            self._add_own(request, names)
        elif isinstance(request, DeliveryRequest):
            self._about_delivery(request, names)
        else:
            self._single(request, names)
        return at + 1

    def _adds(self, requests: list[QueueRequest], at: int) -> int:
        out = self.arguments
        head = len(out)
        out += (b"A", b"", b"")
        end = at
        while end < len(requests):
            add = requests[end]
            if not isinstance(add, Add) or add.own_id is not None:
                break
            out += (_time(add.expire), add.body)
            end += 1
        out[head + 1] = b"%d" % (end - at)
        out[head + 2] = b"%d" % (2 * (end - at))
        return end

    def _gets(self, requests: list[QueueRequest], at: int, first: Get, names: KeyNames) -> int:
        hold = _time(first.hold)
        end = at + 1
        while end < len(requests):
            get = requests[end]
            if not isinstance(get, Get) or get.group != first.group or _time(get.hold) != hold:
                break
            end += 1
        self.arguments += (b"G", b"%d" % (end - at), b"2", self._group(first.group, names), hold)
        return end

    def _acks(self, requests: list[QueueRequest], at: int, group: bytes, names: KeyNames) -> int:
        out = self.arguments
        head = len(out)
        out += (b"K", b"", b"", self._group(group, names))
        end = at
        while end < len(requests):
            ack = requests[end]
            if not isinstance(ack, Ack) or ack.own_id is not None or ack.group != group:
                break
            out += _delivery(ack.id)
            end += 1
        out[head + 1] = b"%d" % (end - at)
        out[head + 2] = b"%d" % (1 + 2 * (end - at))
        return end

    def _add_own(self, add: Add, names: KeyNames) -> None:
        assert add.own_id is not None
        group = self._group(add.group, names)
        front = b"1" if add.front else b"0"
        expire = _time(add.expire)
        self.arguments += (b"a", b"1", b"5", expire, add.body, add.own_id, group, front)

    def _about_delivery(self, request: DeliveryRequest, names: KeyNames) -> None:
        group = self._group(request.group, names)
        own_id = request.own_id
        about = _delivery(request.id) if own_id is None else (own_id,)
        if isinstance(request, Working):
            code = b"W" if own_id is None else b"w"
            hold = _time(request.hold)
            self.arguments += (code, b"1", b"%d" % (2 + len(about)), group, hold, *about)
            return
        code = b"k"
        if isinstance(request, Redo):
            code = b"R" if own_id is None else b"r"
        self.arguments += (code, b"1", b"%d" % (1 + len(about)), group, *about)

    def _single(self, request: QueueRequest, names: KeyNames) -> None:
        """Encode a request that is a run of its own."""
        out = self.arguments
        if isinstance(request, Next):
            out += (b"N", b"1", b"1", self._group(request.group, names))
        elif isinstance(request, Last):
            out += (b"L", b"1", b"0")
        elif isinstance(request, Flush):
            out += (b"F", b"1", b"0")
        elif isinstance(request, StatusOf):
            count = b"%d" % len(request.groups)
            out += (b"S", count, count, *map(names.encode, request.groups))
        elif isinstance(request, (Enter, Leave)):
            count = b"%d" % len(request.members)
            code = b"E" if isinstance(request, Enter) else b"X"
            out += (code, count, count, *request.members)
        else:
            raise ValueError(f"no such request: {request!r}")

    def _group(self, name: bytes, names: KeyNames) -> bytes:
        group = names.encode(name)
        self.groups.add(group)
        return group

    def decode(self, answers: object, names: KeyNames) -> tuple[list[Answer], list[QueueRequest]]:
        """Return the requests with their results, and those to be repeated since they were not
        executed.

        Raises:
            ValueError: this is not an answer of the script.
        """
        if not isinstance(answers, list) or len(answers) != len(self._runs):
            raise ValueError(f"not an answer of the script: {answers!r:.200}")
        done: list[Answer] = []
        again: list[QueueRequest] = []
        for run, answer in zip(self._runs, answers, strict=True):
            if answer == LATER:
                again += run
            elif isinstance(answer, list):
                for request, value in zip(run, answer, strict=True):
                    if value == LATER:
                        again.append(request)
                    else:
                        done.append((request, _result(request, value, names)))
            else:
                text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
                failure = Result(error=server_side(text))
                for request in run:
                    done.append((request, failure))  # noqa: PERF401 (compiled)
        return done, again


def server_side(text: str) -> str:
    """Return the text of an error reply about a problem with Redis."""
    return "ERR server-side error: " + " ".join(_WHERE.sub("", text).split())


def _result(request: QueueRequest, value: object, names: KeyNames) -> Result:
    """Return the result of ``request``, given its answer from the script."""
    if isinstance(request, Add):
        return Result(value) if isinstance(value, bytes) else Result(duplicate=request.own_id)
    if isinstance(request, (Get, Next, Last)):
        if isinstance(value, list) and len(value) == 2:
            due, now = value
            return Result(due=due, left=max(due - now, 0))
        if isinstance(value, list):
            id, own_id, body = value
            return Result(event=Event(id, own_id, body))
    elif isinstance(request, DeliveryRequest):
        assert isinstance(value, int)
        return Result(count=value)
    elif isinstance(request, StatusOf):
        return Result(queues=[_status(request, value, names)])
    return Result()


def _status(request: StatusOf, value: object, names: KeyNames) -> QueueStatus:
    assert isinstance(value, list)
    total: int = value[0]
    groups = []
    for name, inprogress, redo, available, consumers in value[1:]:
        inprogress = min(inprogress, total)
        redo = min(redo, total - inprogress)
        available = min(available, total - inprogress - redo)
        groups.append(
            GroupStatus(names.decode(name), total, inprogress, redo, available, consumers)
        )
    if not request.groups:
        groups.sort(key=lambda status: status.group)
    return QueueStatus(request.queue, total, groups)
