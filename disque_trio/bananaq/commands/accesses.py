"""Which queues a request is about, command by command (see ``respserver.access``). Groups are no
matter of rights: who may take from a queue may do so for any group."""

from disque_trio.bananaq.commands.events import read_status
from disque_trio.bananaq.core.broker import Broker
from disque_trio.respserver.access import ADD, EVERY, KNOW, PATTERN, TAKE, Access


def adds(broker: Broker, args: list[bytes]) -> list[Access]:
    """Commands that add an event to the queue behind their name."""
    return [(args[1], ADD)]


def takes(broker: Broker, args: list[bytes]) -> list[Access]:
    """Commands that read or remove events of the queue behind their name."""
    return [(args[1], TAKE)]


def takes_of_all(broker: Broker, args: list[bytes]) -> list[Access]:
    """QREGISTER: to be a consumer of all that it names."""
    return [(name, TAKE) for name in args[1:]]


def qnotify(broker: Broker, args: list[bytes]) -> list[Access]:
    """QNOTIFY: also to wait is to be a consumer. Where it names no queues QREGISTER did."""
    return [(name, TAKE) for name in args[3:]]


def status(broker: Broker, args: list[bytes]) -> list[Access]:
    """QSTATUS and QINFO: their queues, or all."""
    return [(name, KNOW) for name in read_status(args).queues] or [(EVERY, KNOW | PATTERN)]
