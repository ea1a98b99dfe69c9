"""CONSUME and CREDIT: jobs as push messages."""

from typing import Final

from disque_trio.node.core.consumers import MAX_CREDIT
from disque_trio.node.core.entries import WITH_COUNTERS, WITH_HEADERS
from disque_trio.node.core.node import LEAVING, Node
from disque_trio.resp.ints import parse_int
from disque_trio.resp.reply import OK, integer
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX

MAX_QUEUES: Final = 1_000  # of a client


def consume(node: Node, client: Client, args: list[bytes]) -> None:
    """CONSUME queue [queue ...] CREDIT n [WITHCOUNTERS] [WITHHEADERS] [ONLOSS requeue|retry], or
    CONSUME STOP, which answers how many of the jobs are not acknowledged."""
    if len(args) == 2 and args[1].lower() == b"stop":
        client.out.append(integer(node.consumers.stop(client)))
        return
    end = len(args)
    credit = -1
    details = 0
    loss = b""
    while True:  # from the end, for queues may be called as the options
        last = args[end - 1].lower()
        before = args[end - 2].lower()
        if last == b"withcounters" and not details & WITH_COUNTERS:
            details |= WITH_COUNTERS
            end -= 1
        elif last == b"withheaders" and not details & WITH_HEADERS:
            details |= WITH_HEADERS
            end -= 1
        elif before == b"credit" and credit < 0:
            credit = _credit(args[end - 1], 1)
            end -= 2
        elif before == b"onloss" and not loss:
            loss = last
            end -= 2
        else:
            break
        if end < 2:
            raise CommandError(SYNTAX)
    names = args[1:end]
    if not names or credit < 0 or loss not in (b"", b"requeue", b"retry"):
        raise CommandError(SYNTAX)
    if len(names) > MAX_QUEUES:
        raise CommandError(f"ERR a client may consume {MAX_QUEUES} queues")
    if client.resp != 3:
        raise CommandError("ERR CONSUME pushes jobs, which needs RESP3: send HELLO 3 first")
    if node.peers.leaving:
        client.out.append(LEAVING)
        return
    client.out.append(OK)
    node.consumers.consume(client, names, credit, details, loss != b"retry")


def credit(node: Node, client: Client, args: list[bytes]) -> None:
    """CREDIT n: how many jobs the client may have that are not acknowledged."""
    if not node.consumers.set_credit(client, _credit(args[1], 0)):
        raise CommandError("ERR this connection does not CONSUME")
    client.out.append(OK)


def _credit(text: bytes, least: int) -> int:
    value = parse_int(text)
    if value is None or not least <= value <= MAX_CREDIT:
        raise CommandError(f"ERR CREDIT must be a number from {least} to {MAX_CREDIT}")
    return value
