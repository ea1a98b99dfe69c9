"""The commands of bananaq: QADD, QGET, QACK, QWORKING, QNOTIFY, QFLUSH, QSTATUS, QINFO."""

from disque_trio.bananaq.commands.arguments import (
    DEFAULT_HOLD,
    check_id,
    parse_hold,
    parse_time,
    parse_wait,
)
from disque_trio.bananaq.core import ops
from disque_trio.bananaq.core.broker import Broker
from disque_trio.bananaq.core.ops import Op
from disque_trio.bananaq.core.replies import COUNT, DONE, EVENT, ID, INFO, STATUS
from disque_trio.commands.parse import SYNTAX, wrong_arity
from disque_trio.core.client import Client
from disque_trio.core.command import CommandError


def qadd(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QADD queue expire contents [NOBLOCK]."""
    op = Op(ops.ADD, args[1])
    op.expire, op.absolute = parse_time(args[2])
    op.body = args[3]
    if len(args) > 4:
        if len(args) > 5 or args[4].lower() != b"noblock":
            raise CommandError(SYNTAX)
        broker.ask_in_background(client, op)
    else:
        broker.ask(client, op, ID)


def qget(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QGET queue group [EX seconds | DEADLINE seconds] [BLOCK seconds]."""
    hold = DEFAULT_HOLD
    hold_until = 0
    wait = 0
    seen_hold = seen_wait = False
    for i in range(3, len(args), 2):
        word = args[i].lower()
        if i + 1 == len(args):
            raise CommandError(SYNTAX)
        if word in (b"ex", b"deadline") and not seen_hold:
            hold, hold_until = parse_hold(args[i + 1])
            seen_hold = True
        elif word == b"block" and not seen_wait:
            wait = parse_wait(args[i + 1])
            seen_wait = True
        else:
            raise CommandError(SYNTAX)
    if wait:
        broker.wait_for_event(client, args[1], args[2], hold, hold_until, wait)
        return
    op = Op(ops.GET, args[1], args[2])
    op.hold = hold
    op.hold_until = hold_until
    broker.ask(client, op, EVENT)


def qack(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QACK queue group id [REDO]; okq: QACK queue id [REDO]."""
    count = len(args)
    redo = args[-1].lower() == b"redo" and count > 3
    if broker.okq and (count == 3 or (count == 4 and redo)):
        op = Op(ops.REDO if redo else ops.ACK, args[1], broker.okq_group)
        op.own_id = args[2]
        op.by_own_id = True
    elif count == 4 or (count == 5 and redo):
        op = Op(ops.REDO if redo and count == 5 else ops.ACK, args[1], args[2])
        op.id = check_id(args[3])
    else:
        raise wrong_arity("qack") if count < 5 else CommandError(SYNTAX)
    broker.ask(client, op, COUNT)


def qworking(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QWORKING queue group id [EX seconds]: the consumer has the event for so long from now."""
    op = Op(ops.WORKING, args[1], args[2])
    op.id = check_id(args[3])
    op.hold = DEFAULT_HOLD
    if len(args) > 4:
        if len(args) != 6 or args[4].lower() not in (b"ex", b"deadline"):
            raise CommandError(SYNTAX)
        op.hold, op.hold_until = parse_hold(args[5])
    broker.ask(client, op, COUNT)


def qnotify(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QNOTIFY group timeout [queue ...]; okq: QNOTIFY timeout."""
    if len(args) == 2:
        if not broker.okq:
            raise wrong_arity("qnotify")
        wait = parse_wait(args[1])
        broker.wait_for_news(client, broker.okq_group, broker.registered(client), wait)
    else:
        broker.wait_for_news(client, args[1], args[3:], parse_wait(args[2]))


def qflush(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QFLUSH queue."""
    broker.ask(client, Op(ops.FLUSH, args[1]), DONE)


def qstatus(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QSTATUS [queue ...] [GROUPS group ...]."""
    broker.ask(client, _status(args), STATUS)


def qinfo(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QINFO [queue ...] [GROUPS group ...]: the same for people."""
    broker.ask(client, _status(args), INFO)


def _status(args: list[bytes]) -> Op:
    op = Op(ops.STATUS, b"")
    for i in range(1, len(args)):
        if args[i].lower() == b"groups":
            op.groups = list(dict.fromkeys(args[i + 1 :]))
            break
        op.queues.append(args[i])
    op.queues = list(dict.fromkeys(op.queues))
    return op
