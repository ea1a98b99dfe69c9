"""The commands of okq, bananaq's predecessor, over one group.

Events have ids that their producers choose. They exist for a fixed time.
"""

from disque_trio.bananaq.commands.arguments import DEFAULT_HOLD, parse_hold
from disque_trio.bananaq.core import ops
from disque_trio.bananaq.core.broker import Broker
from disque_trio.bananaq.core.ops import Op
from disque_trio.bananaq.core.replies import DONE, OWN_EVENT
from disque_trio.commands import connection
from disque_trio.commands.parse import SYNTAX
from disque_trio.core.client import Client
from disque_trio.core.command import CommandError
from disque_trio.protocol.reply import OK


def qlpush(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QLPUSH queue id contents [NOBLOCK]."""
    _push(broker, client, args, False)


def qrpush(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QRPUSH queue id contents [NOBLOCK]: the group gets it next."""
    _push(broker, client, args, True)


def _push(broker: Broker, client: Client, args: list[bytes], front: bool) -> None:
    op = Op(ops.ADD, args[1], broker.okq_group)
    op.own_id = args[2]
    op.by_own_id = True
    op.body = args[3]
    op.expire = broker.okq_expire
    op.front = front
    if len(args) > 4:
        if len(args) > 5 or args[4].lower() != b"noblock":
            raise CommandError(SYNTAX)
        broker.ask_in_background(client, op)
    else:
        broker.ask(client, op, DONE)


def qrpop(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QRPOP queue [EX seconds]."""
    op = Op(ops.GET, args[1], broker.okq_group)
    op.hold = DEFAULT_HOLD
    if len(args) > 2:
        if len(args) != 4 or args[2].lower() != b"ex":
            raise CommandError(SYNTAX)
        op.hold, op.hold_until = parse_hold(args[3])
    broker.ask(client, op, OWN_EVENT)


def qlpeek(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QLPEEK queue: the newest event."""
    broker.ask(client, Op(ops.LAST, args[1], broker.okq_group), OWN_EVENT)


def qrpeek(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QRPEEK queue: the event that QRPOP would give."""
    broker.ask(client, Op(ops.NEXT, args[1], broker.okq_group), OWN_EVENT)


def qregister(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QREGISTER [queue ...]: the connection is a consumer of these queues, and of no others."""
    broker.register(client, args[1:])
    client.out.append(OK)


def reset(broker: Broker, client: Client, args: list[bytes]) -> None:
    """RESET: as if newly connected, so it is a consumer of nothing."""
    broker.register(client, [])
    connection.reset(broker, client, args)
