"""CONSUME and CREDIT: jobs as push messages."""

from disque_trio.node.commands.arguments import MAX_QUEUES
from disque_trio.node.core.delivery.consumers import MAX_CREDIT
from disque_trio.node.core.node import LEAVING, Node
from disque_trio.node.core.queues.entries import WITH_COUNTERS, WITH_HEADERS
from disque_trio.resp.ints import parse_int
from disque_trio.resp.reply import OK, integer
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX


class ConsumeOptions:
    """The options of CONSUME.

    Attributes:
        names: of the queues.
        credit: jobs that may be unacknowledged.
        details: what to send besides the jobs.
        loss: ``requeue``, ``retry`` or empty.

    Raises:
        CommandError: they are wrong.
    """

    def __init__(self, args: list[bytes]) -> None:
        end = len(args)
        self.credit = -1
        self.details = 0
        self.loss = b""
        while True:  # from the end, since queues may have the names of options
            last = args[end - 1].lower()
            before = args[end - 2].lower()
            if last == b"withcounters" and not self.details & WITH_COUNTERS:
                self.details |= WITH_COUNTERS
                end -= 1
            elif last == b"withheaders" and not self.details & WITH_HEADERS:
                self.details |= WITH_HEADERS
                end -= 1
            elif before == b"credit" and self.credit < 0:
                self.credit = _credit(args[end - 1], 1)
                end -= 2
            elif before == b"onloss" and not self.loss:
                self.loss = last
                end -= 2
            else:
                break
            if end < 2:
                raise CommandError(SYNTAX)
        self.names = args[1:end]
        if not self.names or self.credit < 0 or self.loss not in (b"", b"requeue", b"retry"):
            raise CommandError(SYNTAX)
        if len(self.names) > MAX_QUEUES:
            raise CommandError(f"ERR a client may consume at most {MAX_QUEUES} queues")


def is_stop(args: list[bytes]) -> bool:
    """Whether it is CONSUME STOP."""
    return len(args) == 2 and args[1].lower() == b"stop"


def consume(node: Node, client: Client, args: list[bytes]) -> None:
    """CONSUME queue [queue ...] CREDIT n [WITHCOUNTERS] [WITHHEADERS] [ONLOSS requeue|retry], or
    CONSUME STOP, which returns how many of the jobs are not acknowledged."""
    if is_stop(args):
        client.out.append(integer(node.consumers.stop(client)))
        return
    options = ConsumeOptions(args)
    if client.resp != 3:
        raise CommandError("ERR CONSUME pushes jobs, which needs RESP3: send HELLO 3 first")
    if node.peers.leaving:
        client.out.append(LEAVING)
        return
    client.out.append(OK)
    node.consumers.consume(
        client, options.names, options.credit, options.details, options.loss != b"retry"
    )


def credit(node: Node, client: Client, args: list[bytes]) -> None:
    """CREDIT n: set how many unacknowledged jobs the client may have."""
    if not node.consumers.set_credit(client, _credit(args[1], 0)):
        raise CommandError("ERR this connection does not CONSUME")
    client.out.append(OK)


def _credit(text: bytes, least: int) -> int:
    value = parse_int(text)
    if value is None or not least <= value <= MAX_CREDIT:
        raise CommandError(f"ERR CREDIT must be a number from {least} to {MAX_CREDIT}")
    return value
