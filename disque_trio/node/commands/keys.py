"""QKEYS and QDELKEY: the keys of ADDJOB UNIQUE that this node knows."""

from heapq import heappush, heapreplace
from typing import Final

from disque_trio.node.commands.arguments import require_extensions
from disque_trio.node.core.jobs.uniques import Entry
from disque_trio.node.core.node import Node
from disque_trio.node.core.unique.key_drops import MOST, MOST_BYTES
from disque_trio.protocol.bus import MAX_NAME_IN_FIELDS
from disque_trio.protocol.keyrecord import MAX_KEY
from disque_trio.resp.reply import Value, encode
from disque_trio.respserver.batches import Reading
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX, parse_integer, wrong_arity

QUEUES: Final = 1_000  # to list
DEFAULT_COUNT: Final = 100
MAX_COUNT: Final = 1_000
LOOKS: Final = 2_000  # keys of all queues to look at in a step; compiled, about a millisecond


def qkeys(node: Node, client: Client, args: list[bytes]) -> None:
    """QKEYS: the queues with the most keys, or the keys of one."""
    uniques = node.store.uniques
    if len(args) == 1:
        node.batches.read(_QueueReading(node, client, args))
        return
    cursor, count = _place(args)
    found: list[Entry] = []
    looks = 0
    while True:
        cursor, entries = uniques.entries.scan(cursor, DEFAULT_COUNT)
        looks += len(entries)
        found += [one for one in entries if one.queue == args[1] and one.until > node.now]
        if not cursor or len(found) >= count or looks >= LOOKS:
            break
    total = uniques.by_queue.get(args[1], 0)
    listed: list[Value] = [[one.key, one.id, one.until, int(one.lasts)] for one in found]
    client.out.append(encode([b"%d" % cursor, total, listed], client.resp))


class _QueueReading(Reading[bytes]):
    """The reply of QKEYS without a queue."""

    __slots__ = ("_counts", "_most", "_seen")

    def __init__(self, node: Node, client: Client, args: list[bytes]) -> None:
        self._counts = node.store.uniques.by_queue
        super().__init__(client, node.command_of(args), iter(list(self._counts)))
        # A heap of those with the most keys: how many, the negative number in their order, name.
        self._most: list[tuple[int, int, bytes]] = []
        self._seen = 0

    def takes(self, item: bytes) -> bool:
        """Keep ``item`` if it is one of those with the most keys; ``head`` tells which are."""
        count = self._counts.get(item, 0)
        self._seen += 1
        if not count:
            pass  # the last one has gone meanwhile
        elif len(self._most) < QUEUES:
            heappush(self._most, (count, -self._seen, item))
        elif count > self._most[0][0]:
            heapreplace(self._most, (count, -self._seen, item))
        return False

    def head(self, count: int) -> bytes:
        self._most.sort(reverse=True)
        self._found += [name for _, _, name in self._most]
        return super().head(len(self._found))

    def entry(self, item: bytes) -> bytes:
        return encode([item, self._counts.get(item, 0)])


def _place(args: list[bytes]) -> tuple[int, int]:
    """The cursor, and about how many keys to return."""
    cursor = 0
    at = 2
    if len(args) > at and args[at].isdigit():
        # More digits than a cursor can have stand for a place beyond the end.
        cursor = int(args[at]) if len(args[at]) < 20 else 1 << 64
        at += 1
    if len(args) == at:
        return cursor, DEFAULT_COUNT
    if len(args) != at + 2 or args[at].lower() != b"count":
        raise CommandError(SYNTAX)
    count = parse_integer(args[at + 1])
    if count < 1:
        raise CommandError("ERR COUNT must be a number greater than zero")
    return cursor, min(count, MAX_COUNT)


def qdelkey(node: Node, client: Client, args: list[bytes]) -> None:
    """QDELKEY: frees keys whose jobs have ended, on all nodes; returns how many."""
    keys = args[2:]
    if not keys:
        raise wrong_arity("qdelkey")
    if len(keys) > MOST or sum([len(key) for key in keys]) > MOST_BYTES:
        raise CommandError(f"ERR more than {MOST} keys, or {MOST_BYTES} bytes of them")
    if not all(0 < len(key) <= MAX_KEY for key in keys):
        raise CommandError(f"ERR a key has 1 to {MAX_KEY} bytes")
    if len(args[1]) > MAX_NAME_IN_FIELDS:
        raise CommandError(f"ERR the name of the queue has more than {MAX_NAME_IN_FIELDS} bytes")
    require_extensions(node)
    node.key_drops.begin(client, args[1], keys)
