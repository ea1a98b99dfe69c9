"""Encodes the results of the store as replies."""

from collections.abc import Sequence
from typing import Final

from disque_bananaq.core.results import Event, QueueStatus, Result
from disque_trio.native import mypyc_attr
from disque_trio.resp.reply import OK, Value, encode, error, integer, null
from disque_trio.respserver.client import Client, Pending

# The formats of replies.
ID: Final = 1  # the id of the added event
DONE: Final = 2  # OK
EVENT: Final = 3  # id and contents, or null
OWN_EVENT: Final = 4  # the same, with the id that the producer chose (okq)
COUNT: Final = 5  # a number
STATUS: Final = 6  # nested arrays
INFO: Final = 7  # readable lines


@mypyc_attr(native_class=False)
class Ask(Pending):
    """The request of a client to a store.

    Attributes:
        reply_format: the format of the reply.
    """

    __slots__ = ("reply_format",)

    def __init__(self, client: Client, reply_format: int) -> None:
        super().__init__(client, None)
        self.reply_format = reply_format


def render(result: Result, reply_format: int, client: Client) -> bytes:
    """Return the reply for ``client``."""
    if result.error:
        return error(result.error)
    if reply_format in (EVENT, OWN_EVENT):
        event = result.event
        return null(client.resp) if event is None else event_reply(event, reply_format)
    if reply_format == COUNT:
        return integer(result.count)
    if result.duplicate is not None:
        return error(b"ERR duplicate event " + result.duplicate)
    if reply_format == ID:
        return b"$%d\r\n%b\r\n" % (len(result.id), result.id)
    if reply_format == STATUS:
        return encode([status_value(queue) for queue in result.queues])
    if reply_format == INFO:
        lines: list[Value] = list(_lines(result.queues))
        return encode(lines)
    return OK


def event_reply(event: Event, reply_format: int) -> bytes:
    """Return a reply of id and contents."""
    id = event.own_id if reply_format == OWN_EVENT and event.own_id else event.id
    body = event.body
    return b"*2\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(id), id, len(body), body)


def status_value(queue: QueueStatus) -> Value:
    """What QSTATUS says about ``queue``."""
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


def _lines(queues: Sequence[QueueStatus]) -> list[bytes]:
    """Format the lines of QINFO about ``queues``, in columns."""
    rows: list[list[bytes]] = []
    for queue in queues:
        rows += info_rows(queue)
    widths: list[int] = []
    for row in rows:
        widen(widths, row)
    return [info_line(row, widths) for row in rows]


def info_rows(queue: QueueStatus) -> list[list[bytes]]:
    """What QINFO says about ``queue``: a row for each group, or one if there are none."""
    if not queue.groups:
        return [[queue.queue, b"-", b"total:%d" % queue.total]]
    return [
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
        for status in queue.groups
    ]


def widen(widths: list[int], row: list[bytes]) -> None:
    """Make the columns of ``widths`` wide enough for ``row``."""
    for i in range(len(row)):
        if i == len(widths):
            widths.append(0)
        widths[i] = max(widths[i], len(row[i]))


def info_line(row: list[bytes], widths: list[int]) -> bytes:
    """The line for ``row``, in columns of these ``widths``."""
    padded = [row[i].ljust(widths[i]) for i in range(len(row))]
    return b"  ".join(padded).rstrip()
