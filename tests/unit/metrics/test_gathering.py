"""One page for several processes."""

import os
import socket
from collections.abc import Iterator

import trio

from disque_trio.metrics.gathering import Gathering, label
from disque_trio.metrics.scrapes import Scrapes
from disque_trio.metrics.sheet import Sheet
from disque_trio.metrics.web import Request, Web

NAMES = {number: f"\0disque-test-{os.getpid()}-{number}".encode() for number in range(4)}


class Source:
    def __init__(self, value: int) -> None:
        self._value = value

    def collect(self, sheet: Sheet) -> Iterator[None]:
        sheet.gauge("jobs", "Jobs.").add(self._value, 'queue="q"')
        yield


def scrapes(number: int) -> Scrapes:
    return Scrapes("disque", [Source(number + 10)], label(number))


def listen(number: int) -> list[trio.SocketListener]:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(NAMES[number])
    sock.listen()
    return [trio.SocketListener(trio.socket.from_stdlib_socket(sock))]


async def test_each_family_has_the_samples_of_all_that_answer() -> None:
    async def broken(stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n\0jobs gauge Jobs.\njobs 1")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Web({"/": scrapes(2).raw_page}).serve, listen(2))
        nursery.start_soon(trio.serve_listeners, broken, listen(3))
        others = {number: NAMES[number] for number in (0, 2, 3)}  # nobody is 0
        reply = await Gathering("disque", scrapes(1), 1, others).page(Request("GET", "/", {}))
        nursery.cancel_scope.cancel()
    lines = b"".join(reply.chunks).decode().splitlines()
    assert lines[:4] == [
        "# HELP jobs Jobs.",
        "# TYPE jobs gauge",
        'jobs{process="1",queue="q"} 11',
        'jobs{process="2",queue="q"} 12',
    ]
    assert sum(line.startswith("# TYPE disque_metrics_scrapes_total") for line in lines) == 1
    assert 'disque_metrics_scrapes_total{process="2"} 1' in lines
    up = [line.removeprefix("disque_process_up") for line in lines[-4:]]
    assert up == [f'{{process="{number}"}} {int(number in (1, 2))}' for number in range(4)]
