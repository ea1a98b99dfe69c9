"""One page for all processes of a server: the one that is scraped asks the others.

Each process answers the others at a unix socket with an abstract name. It tells its own metrics,
family by family; whoever asked puts those of all processes under one head each. One that does not
answer in time is left out, and ``disque_process_up`` says so.
"""

import socket
from collections.abc import Mapping
from http import HTTPStatus

import trio

from disque_trio.metrics.scrapes import Collection, Scrapes
from disque_trio.metrics.sheet import Family, Sheet, pairs, read_raw

_PATIENCE = 3.0  # s; Prometheus waits for 10
_READ = 1 << 16  # bytes at a time


def label(number: int) -> str:
    """The label of process ``number``."""
    return pairs({"process": str(number)})


class Gathering(Scrapes):
    """Answers the scrapes of a server with several processes.

    Args:
        prefix: the prefix of the metric that says which processes answer.
        own: the metrics of this process, which has this ``number``.
        others: the names of the sockets of the others, by number.
    """

    def __init__(self, prefix: str, own: Scrapes, number: int, others: Mapping[int, bytes]) -> None:
        super().__init__(prefix, [])
        self._own = own
        self._number = number
        self._others = others

    async def _collect(self) -> Collection:
        began = trio.current_time()
        found: dict[int, list[Family]] = {}
        async with trio.open_nursery() as nursery:
            for number, name in self._others.items():
                nursery.start_soon(self._ask, number, name, found)
            found[self._number] = await self._own.families()
        sheet = Sheet()
        by_name: dict[str, Family] = {}
        for number in sorted(found):
            for family in found[number]:
                one = by_name.get(family.name)
                if one is None:
                    one = by_name[family.name] = Family(family.name, family.kind, family.text)
                    sheet.families.append(one)
                one.add_blocks(family.blocks())
            await trio.lowlevel.checkpoint()
        up = sheet.gauge(
            f"{self._prefix}_process_up",
            "Whether the process of the node answers (1) or not (0).",
        )
        for number in sorted({self._number, *self._others}):
            up.add(int(number in found), label(number))
        # Each process has counted its own cost.
        return Collection(sheet, 0.0, began, trio.current_time())

    async def _ask(self, number: int, name: bytes, found: dict[int, list[Family]]) -> None:
        """Ask the process that listens at ``name``, and put what it tells into ``found``."""
        try:
            with trio.move_on_after(_PATIENCE):
                found[number] = read_raw(await _fetch(name))
        except (OSError, trio.BrokenResourceError, ValueError):
            pass  # it has ended, or starts


async def _fetch(name: bytes) -> bytes:
    """The page that another process serves at the socket with this abstract ``name``. Raises
    ``OSError``, ``BrokenResourceError`` and ``ValueError``."""
    with trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        await sock.connect(name)
        stream = trio.SocketStream(sock)
        await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
        parts: list[bytes] = []
        while data := await stream.receive_some(_READ):
            parts.append(data)
    head, _, body = b"".join(parts).partition(b"\r\n\r\n")
    if head.split()[1:2] != [b"%d" % HTTPStatus.OK]:
        raise ValueError("it has not answered")
    return body
