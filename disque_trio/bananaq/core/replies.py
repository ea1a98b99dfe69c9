"""What clients are told of an operation that is done."""

from typing import Final

from disque_trio.bananaq.core.ops import Event, Op, QueueStatus
from disque_trio.core.client import Client, Pending
from disque_trio.protocol.reply import OK, Value, bulk, encode, error, integer, null

# The forms of replies.
ID: Final = 1  # the id of an event that was added
DONE: Final = 2  # OK
EVENT: Final = 3  # id and contents, or null
OWN_EVENT: Final = 4  # the same with the id that the producer chose (okq)
COUNT: Final = 5  # a number
STATUS: Final = 6  # nested arrays
INFO: Final = 7  # lines for people


class Ask(Pending):
    """What a client asked a store for.

    Attributes:
        form: of the reply.
    """

    __slots__ = ("form",)

    def __init__(self, client: Client, form: int) -> None:
        super().__init__(client, None)
        self.form = form


def render(op: Op, form: int, resp: int) -> bytes:
    """The reply to ``op``, which is done, for a client that speaks version ``resp``."""
    if op.error:
        return error(op.error)
    if form in (EVENT, OWN_EVENT):
        event = op.event
        return null(resp) if event is None else event_reply(event, form)
    if form == COUNT:
        return integer(op.count)
    if op.conflict:
        return error(b"ERR duplicate event " + op.own_id)
    if form == ID:
        return bulk(op.id)
    if form == STATUS:
        return encode([_queue(queue) for queue in op.status])
    if form == INFO:
        lines: list[Value] = list(_lines(op.status))
        return encode(lines)
    return OK


def event_reply(event: Event, form: int) -> bytes:
    """Id and contents."""
    id = event.own_id if form == OWN_EVENT and event.own_id else event.id
    body = event.body
    return b"*2\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(id), id, len(body), body)


def _queue(queue: QueueStatus) -> Value:
    groups: list[Value] = []
    for status in queue.groups:
        counts: list[Value] = [
            b"total", status.total,
            b"inprogress", status.inprogress,
            b"redo", status.redo,
            b"done", status.done,
            b"available", status.available,
            b"consumers", status.consumers,
        ]  # fmt: skip
        groups.append(status.group)
        groups.append(counts)
    return [queue.queue, groups]


def _lines(queues: list[QueueStatus]) -> list[bytes]:
    """A line for each queue and group, in columns. A queue without groups has a line, too."""
    rows: list[list[bytes]] = []
    for queue in queues:
        if not queue.groups:
            rows.append([queue.queue, b"-", b"total:%d" % queue.total])
        for status in queue.groups:
            rows.append(  # noqa: PERF401 (compiled, a loop is as good)
                [
                    queue.queue,
                    status.group,
                    b"total:%d" % status.total,
                    b"inprogress:%d" % status.inprogress,
                    b"redo:%d" % status.redo,
                    b"done:%d" % status.done,
                    b"available:%d" % status.available,
                    b"consumers:%d" % status.consumers,
                ]
            )
    widths: list[int] = []
    for row in rows:
        for i in range(len(row)):
            if i == len(widths):
                widths.append(0)
            widths[i] = max(widths[i], len(row[i]))
    lines: list[bytes] = []
    for row in rows:
        padded = [row[i].ljust(widths[i]) for i in range(len(row))]
        lines.append(b"  ".join(padded).rstrip())
    return lines
