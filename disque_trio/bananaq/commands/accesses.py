"""Declares which queues a request is about, command by command (see ``respserver.access``).

Rights do not depend on groups: a user who may take from a queue may do so for any group.
"""

from disque_trio.bananaq.commands.events import read_status
from disque_trio.bananaq.core.broker import Broker
from disque_trio.respserver.access import ADD, EVERY, KNOW, PATTERN, TAKE, Access


def adds(broker: Broker, args: list[bytes]) -> list[Access]:
    """Commands that add an event to the queue named by their first argument."""
    return [(args[1], ADD)]


def takes(broker: Broker, args: list[bytes]) -> list[Access]:
    """Commands that read or remove events of the queue named by their first argument."""
    return [(args[1], TAKE)]


def takes_of_all(broker: Broker, args: list[bytes]) -> list[Access]:
    """QREGISTER: become a consumer of all queues it names."""
    return [(name, TAKE) for name in args[1:]]


def qnotify(broker: Broker, args: list[bytes]) -> list[Access]:
    """QNOTIFY: a client that waits is a consumer, too. Without names, QREGISTER gave the queues."""
    return [(name, TAKE) for name in args[3:]]


def status(broker: Broker, args: list[bytes]) -> list[Access]:
    """QSTATUS and QINFO: the queues they name, or all queues."""
    return [(name, KNOW) for name in read_status(args).queues] or [(EVERY, KNOW | PATTERN)]
