"""The commands of bananaq: QADD, QGET, QACK, QWORKING, QNOTIFY, QFLUSH, QSTATUS, QINFO."""

from disque_bananaq.commands.arguments import (
    DEFAULT_HOLD,
    MAX_NAMES,
    check_id,
    check_number,
    parse_hold,
    parse_time,
    parse_wait,
)
from disque_bananaq.commands.status import InfoReading, StatusReading
from disque_bananaq.core.broker import Broker, ask
from disque_bananaq.core.replies import COUNT, DONE, EVENT, ID, INFO, STATUS
from disque_bananaq.core.requests import Ack, Add, Flush, Get, Redo, Status, Working
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX, wrong_arity


def qadd(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QADD queue expire contents [NOBLOCK]."""
    ask_to_add(broker, client, Add(args[1], args[3], parse_time(args[2])), args, ID)


def ask_to_add(
    broker: Broker, client: Client, add: Add, args: list[bytes], reply_format: int
) -> None:
    """Have the store add an event, in the background if the fifth of ``args`` is NOBLOCK."""
    if len(args) == 4:
        ask(broker, client, add, reply_format)
    elif len(args) == 5 and args[4].lower() == b"noblock":
        broker.add_in_background(client, add)
    else:
        raise CommandError(SYNTAX)


def qget(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QGET queue group [EX seconds | DEADLINE seconds] [BLOCK seconds]."""
    hold = DEFAULT_HOLD
    wait = 0
    seen_hold = seen_wait = False
    for i in range(3, len(args), 2):
        word = args[i].lower()
        if i + 1 == len(args):
            raise CommandError(SYNTAX)
        if word in (b"ex", b"deadline") and not seen_hold:
            hold = parse_hold(args[i + 1])
            seen_hold = True
        elif word == b"block" and not seen_wait:
            wait = parse_wait(args[i + 1])
            seen_wait = True
        else:
            raise CommandError(SYNTAX)
    get = Get(args[1], args[2], hold)
    if wait:
        broker.poller.wait_for_event(client, get, wait)
    else:
        ask(broker, client, get, EVENT)


def qack(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QACK queue group id [REDO]; okq: QACK queue id [REDO]."""
    count = len(args)
    redo = count > 3 and len(args[-1]) == 4 and args[-1].lower() == b"redo"
    queue = args[1]
    id = b""
    own_id: bytes | None = None
    if (count == 3 or (count == 4 and redo)) and broker.okq:
        group = broker.okq_group
        own_id = args[2]
    elif count == 4 or (count == 5 and redo):
        group = args[2]
        id = check_id(args[3])
        redo = count == 5
    else:
        raise wrong_arity("qack") if count < 5 else CommandError(SYNTAX)
    if redo:
        ask(broker, client, Redo(queue, group, id, own_id), COUNT)
    else:
        ask(broker, client, Ack(queue, group, id, own_id), COUNT)


def qworking(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QWORKING queue group id [EX seconds]: the consumer has the event for that long from now."""
    id = check_id(args[3])
    hold = DEFAULT_HOLD
    if len(args) > 4:
        if len(args) != 6 or args[4].lower() not in (b"ex", b"deadline"):
            raise CommandError(SYNTAX)
        hold = parse_hold(args[5])
    ask(broker, client, Working(args[1], args[2], hold, id), COUNT)


def qnotify(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QNOTIFY group timeout [queue ...]; okq: QNOTIFY timeout."""
    if len(args) == 2:
        if not broker.okq:
            raise wrong_arity("qnotify")
        group, timeout = broker.okq_group, args[1]
        queues = broker.consumers.registered(client)
    else:
        group, timeout, queues = args[1], args[2], args[3:]
    check_number(queues)
    broker.poller.wait_for_news(client, group, queues, parse_wait(timeout))


def qflush(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QFLUSH queue."""
    ask(broker, client, Flush(args[1]), DONE)


def qstatus(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QSTATUS [queue ...] [GROUPS group ...]."""
    _tell_status(broker, client, args, STATUS, StatusReading)


def qinfo(broker: Broker, client: Client, args: list[bytes]) -> None:
    """QINFO [queue ...] [GROUPS group ...]: the same as readable text."""
    _tell_status(broker, client, args, INFO, InfoReading)


def _tell_status(
    broker: Broker,
    client: Client,
    args: list[bytes],
    reply_format: int,
    reading: type[StatusReading] | type[InfoReading],
) -> None:
    """Reply in ``reply_format``; by ``reading``, if the store can be asked piece by piece."""
    status = read_status(args)
    names = broker.queues_of(status)
    if names is None:
        ask(broker, client, status, reply_format)
    else:
        broker.batches.read(reading(broker, client, args, names, status.groups))


def read_status(args: list[bytes]) -> Status:
    """Read the arguments of QSTATUS or QINFO."""
    end = next((i for i in range(1, len(args)) if args[i].lower() == b"groups"), len(args))
    groups = list(dict.fromkeys(args[end + 1 :]))
    if len(groups) > MAX_NAMES:
        raise CommandError(f"ERR at most {MAX_NAMES} groups may be given")
    return Status(list(dict.fromkeys(args[1:end])), groups)
