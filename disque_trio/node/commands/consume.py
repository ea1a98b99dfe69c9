"""CONSUME and CREDIT: jobs as push messages."""

from typing import Final

from disque_trio.node.commands.arguments import MAX_QUEUES, check_patterns
from disque_trio.node.core.delivery.consumers import AT_ONCE, MAX_CREDIT, NEVER, SOON
from disque_trio.node.core.delivery.patterns import but_dead
from disque_trio.node.core.node import LEAVING, Node
from disque_trio.node.core.queues.entries import WITH_COUNTERS, WITH_HEADERS
from disque_trio.resp.ints import parse_int
from disque_trio.resp.reply import OK, integer
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX

LOSSES: Final = {b"requeue": AT_ONCE, b"soon": SOON, b"retry": NEVER}


def consume(node: Node, client: Client, args: list[bytes]) -> None:
    """CONSUME; STOP returns how many of the jobs are not acknowledged."""
    words = node.read(args)
    if not words.has("CREDIT"):
        client.out.append(integer(node.consumers.stop(client)))
        return
    names, loss = words.all("queue"), words.text("ONLOSS").lower() or b"requeue"
    if loss not in LOSSES:
        raise CommandError(SYNTAX)
    if len(names) > MAX_QUEUES:
        raise CommandError(f"ERR a client may consume at most {MAX_QUEUES} queues")
    patterns: list[bytes] = []
    if words.has("PATTERN"):
        patterns = [but_dead(name) for name in names] if words.has("NODEAD") else names
        check_patterns(node, names, patterns)
    elif words.has("NODEAD"):
        raise CommandError("ERR NODEAD needs PATTERN")
    if client.resp != 3:
        raise CommandError("ERR CONSUME pushes jobs, which needs RESP3: send HELLO 3 first")
    if node.peers.leaving:
        client.out.append(LEAVING)
        return
    client.out.append(OK)
    details = WITH_COUNTERS if words.has("WITHCOUNTERS") else 0
    if words.has("WITHHEADERS"):
        details |= WITH_HEADERS
    limit = words.number("CREDIT", 0)
    cancels = words.has("WITHCANCELS")
    node.consumers.consume(client, names, patterns, limit, details, LOSSES[loss], cancels)


def credit(node: Node, client: Client, args: list[bytes]) -> None:
    """CREDIT n: set how many unacknowledged jobs the client may have."""
    if not node.consumers.set_credit(client, _credit(args[1], 0)):
        raise CommandError("ERR this connection does not CONSUME")
    client.out.append(OK)


def _credit(text: bytes, least: int = 1) -> int:
    value = parse_int(text)
    if value is None or not least <= value <= MAX_CREDIT:
        raise CommandError(f"ERR CREDIT must be a number from {least} to {MAX_CREDIT}")
    return value


CONSUME: Final = {"CREDIT": _credit}
