"""QSTATUS and QINFO of a store in this process: there may be very many queues and groups, so the
replies are made in slices, during which events come and go."""

from collections.abc import Iterator
from typing import Final

from disque_bananaq.core.broker import Broker
from disque_bananaq.core.replies import info_line, info_rows, status_value, widen
from disque_trio.native import mypyc_attr
from disque_trio.resp.reply import bulk, encode
from disque_trio.respserver.batches import Reading
from disque_trio.respserver.client import Client

_QUEUE: Final = 10  # units of work to count the events of a queue
_GROUP: Final = 10  # and those of a group


@mypyc_attr(native_class=False)
class StatusReading(Reading[bytes]):
    """The reply of QSTATUS about the queues ``names``; ``groups``: as in ``Status``."""

    __slots__ = ("_broker", "_groups")

    def __init__(
        self,
        broker: Broker,
        client: Client,
        args: list[bytes],
        names: list[bytes],
        groups: list[bytes],
    ) -> None:
        super().__init__(client, broker.command_of(args), iter(names))
        self._broker = broker
        self._groups = groups

    def entry(self, item: bytes) -> bytes:
        status = self._broker.status_of(item, self._groups)
        self.spent += _QUEUE + _GROUP * len(status.groups)
        return encode(status_value(status))


@mypyc_attr(native_class=False)
class InfoReading(Reading[list[bytes]]):
    """The reply of QINFO about them."""

    __slots__ = ("_widths",)

    def __init__(
        self,
        broker: Broker,
        client: Client,
        args: list[bytes],
        names: list[bytes],
        groups: list[bytes],
    ) -> None:
        super().__init__(client, broker.command_of(args), _rows(broker, names, groups))
        self._widths: list[int] = []

    def takes(self, item: list[bytes]) -> bool:
        self.spent += _QUEUE + _GROUP
        widen(self._widths, item)
        return True

    def entry(self, item: list[bytes]) -> bytes:
        self.spent += _GROUP
        return bulk(info_line(item, self._widths))


def _rows(broker: Broker, names: list[bytes], groups: list[bytes]) -> Iterator[list[bytes]]:
    """The rows of QINFO, one after the other."""
    for name in names:
        yield from info_rows(broker.status_of(name, groups))
