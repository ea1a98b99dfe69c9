"""The commands of okq, bananaq's predecessor, for one group.

Producers choose the ids of events. Events exist for a fixed time.
"""

from disque_bananaq.commands import events
from disque_bananaq.commands.arguments import DEFAULT_HOLD, check_number, parse_hold
from disque_bananaq.core.broker import Broker, ask
from disque_bananaq.core.replies import DONE, OWN_EVENT
from disque_bananaq.core.requests import Add, Get, Last, Next, from_now
from disque_trio.resp.reply import OK
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands import connection
from disque_trio.respserver.commands.arguments import SYNTAX


def qlpush(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QLPUSH queue id contents [NOBLOCK]."""
    _push(broker, client, args, False)


def qrpush(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QRPUSH queue id contents [NOBLOCK]: the event is the next one that the group gets."""
    _push(broker, client, args, True)


def _push(broker: Broker, client: Client, args: list[bytes], front: bool) -> None:
    expire = from_now(broker.okq_expire)
    add = Add(args[1], args[3], expire, broker.okq_group, args[2], front)
    events.ask_to_add(broker, client, add, args, DONE)


def qrpop(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QRPOP queue [EX seconds]."""
    hold = DEFAULT_HOLD
    if len(args) > 2:
        if len(args) != 4 or args[2].lower() != b"ex":
            raise CommandError(SYNTAX)
        hold = parse_hold(args[3])
    ask(broker, client, Get(args[1], broker.okq_group, hold), OWN_EVENT)


def qlpeek(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QLPEEK queue: look at the newest event."""
    ask(broker, client, Last(args[1]), OWN_EVENT)


def qrpeek(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QRPEEK queue: look at the event that QRPOP would take."""
    ask(broker, client, Next(args[1], broker.okq_group), OWN_EVENT)


def qregister(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QREGISTER [queue ...]: the connection is a consumer of these queues, and of no others."""
    check_number(args[1:])
    broker.consumers.register(client, broker.okq_group, args[1:])
    client.out.append(OK)


def reset(broker: Broker, client: Client, args: list[bytes]) -> None:
    """RESET: as if newly connected, so the connection is a consumer of nothing."""
    broker.consumers.unregister(client)
    connection.reset(broker, client, args)
