"""What each step of a command costs, measured in this process step by step.

The steps of a turn are taken one by one for many clients, so that the clock is read rarely.

- recv, parse, send: as the engine calls them;
- dispatch: a command that does nothing, with the same arguments;
- encode: the reply, put together once more, and joined with the others;
- core: the rest of what the state machine takes for the command;
- AOF: what the state machine takes more when it notes records, and their write, without a sync;
- whole turn: as the engine takes it, with the file. It has more than the sum of the steps: the
  turn's own work, and what the steps cost when they are not done many at a time.

    python -m tools.profiling.steps [--rounds N]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from disque_trio.bananaq.core.embedded import EmbeddedStore
from disque_trio.bananaq.core.ops import ADD, GET, Op
from disque_trio.bananaq.core.replies import COUNT, EVENT, ID, render
from disque_trio.core.client import Client
from disque_trio.core.command import Command
from disque_trio.core.machine import Machine
from disque_trio.core.node import Node, job_entry
from disque_trio.core.queue import Queue
from disque_trio.form import form
from disque_trio.protocol.reply import integer
from disque_trio.server.connection import READ_SIZE
from tools.bench.inprocess import START, Desk, make_broker, make_node, request

BODY = b"x" * 100
CLIENTS = 50
STEPS = ("recv", "parse", "dispatch", "core", "encode", "AOF", "send")
COMMANDS = ("ADDJOB", "GETJOB", "ACKJOB", "QADD", "QGET", "QACK")
_NOTHING = b"nothing"


class Row(NamedTuple):
    """What a command costs: ns for each of STEPS, and for a whole turn."""

    command: str
    pipeline: int
    steps: dict[str, float]
    turn: float


class _Raw(NamedTuple):
    """The ns of one command in one round, as the clock has them."""

    recv: float
    parse: float
    command: float
    persist: float
    settle: float
    join: float
    send: float


class _Round(NamedTuple):
    """One command measured once, in each of the ways."""

    plain: _Raw
    noting: _Raw
    nothing: float
    encode: float
    turn: float


class _Bench:
    """One kind of server three times: without a file, with one, and with one in whole turns."""

    def __init__(self, make: Callable[[], Machine], pipeline: int, directory: Path) -> None:
        self.pipeline = pipeline
        whole = directory / "whole"
        whole.mkdir(parents=True)
        self.plain = _desk(make(), None)
        self.noting = _desk(make(), directory)
        self.whole = _desk(make(), whole)

    def close(self) -> None:
        for desk in (self.plain, self.noting, self.whole):
            desk.close()

    def life(self) -> dict[str, _Round]:
        """Measure the commands of a whole life once."""
        desks = (self.plain, self.noting, self.whole)
        found: dict[str, _Round] = {}
        handles: list[list[bytes]] = [[], [], []]
        banana = not isinstance(self.plain.machine, Node)
        for command in COMMANDS[3:] if banana else COMMANDS[:3]:
            requests = [self._requests(command, ids) for ids in handles]
            plain = _take_steps(self.plain, requests[0])
            nothing = _dispatch(self.plain, requests[0])
            noting = _take_steps(self.noting, requests[1])
            turn = _take_turn(self.whole, requests[2])
            replies = [desk.replies() for desk in desks]
            if any(len(each) != CLIENTS * self.pipeline or None in each for each in replies):
                raise RuntimeError(f"{command} was not answered as it should be")
            if command in ("ADDJOB", "GETJOB"):
                handles = [[_id_of(reply) for reply in each] for each in replies]
            elif command == "QGET":
                handles = [[_word(reply, 0) for reply in each] for each in replies]
            encode = _encode(command, self.plain.machine, handles[0])
            found[command] = _Round(plain, noting, nothing, encode, turn)
        return found

    def _requests(self, command: str, handles: list[bytes]) -> list[list[list[bytes]]]:
        """The requests of each client; ``handles`` are of the jobs or events that were taken."""
        name = command.encode()
        if command == "ACKJOB":
            each = [[name, id] for id in handles]
        elif command == "QACK":
            each = [[name, b"steps", b"group", id] for id in handles]
        else:
            words = {
                "ADDJOB": [name, b"steps", BODY, b"0"],
                "GETJOB": [name, b"NOHANG", b"FROM", b"steps"],
                "QADD": [name, b"steps", b"1000", BODY],
                "QGET": [name, b"steps", b"group"],
            }[command]
            each = [words] * (CLIENTS * self.pipeline)
        return [each[i : i + self.pipeline] for i in range(0, len(each), self.pipeline)]


def _desk(machine: Machine, directory: Path | None) -> Desk:
    """A desk whose machine knows a command that does nothing, and the time."""
    commands = dict(machine.commands)
    commands[_NOTHING] = Command("nothing", -1, "fast", _do_nothing, "", "", "server")
    machine.furnish(commands, machine.host, time.perf_counter_ns)
    return Desk(machine, CLIENTS, None if directory is None else str(directory))


def _do_nothing(machine: Machine, client: Client, args: list[bytes]) -> None:
    """What dispatch alone costs shows where there is nothing to do."""


def _id_of(reply: object) -> bytes:
    if isinstance(reply, list):  # of GETJOB
        return _word(reply[0], 1)
    return _as_bytes(reply)


def _word(reply: object, place: int) -> bytes:
    if not isinstance(reply, list):
        raise TypeError(f"no list: {reply!r}")
    return _as_bytes(reply[place])


def _as_bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"no text: {value!r}")
    return value


def _send(desk: Desk, requests: list[list[list[bytes]]]) -> None:
    for sock, batch in zip(desk.socks, requests, strict=True):
        sock.send(b"".join(request(*words) for words in batch))


def _take_steps(desk: Desk, requests: list[list[list[bytes]]]) -> _Raw:
    """Serve ``requests`` step by step."""
    machine = desk.machine
    connections = desk.connections
    now = machine.now = START
    _send(desk, requests)
    clock = time.perf_counter_ns
    times = [clock()]
    received = [connection.sock.recv(READ_SIZE) for connection in connections]
    times.append(clock())
    parsed = [
        connection.parser.feed(data) for connection, data in zip(connections, received, strict=True)
    ]
    times.append(clock())
    serve = machine.command
    for connection, batch in zip(connections, parsed, strict=True):
        client = connection.client
        for words in batch:
            serve(client, words, now)
    times.append(clock())
    if machine.journal:
        desk.engine.persist()
    times.append(clock())
    machine.settle()
    machine.next_wake()
    times.append(clock())
    replies = []
    for connection in connections:
        out = connection.client.out
        replies.append(b"".join(out))
        out.clear()
    times.append(clock())
    for connection, data in zip(connections, replies, strict=True):
        connection.send(data)
    times.append(clock())
    machine.events.clear()
    count = sum(map(len, parsed))
    return _Raw(*((after - before) / count for before, after in pairwise(times)))


def _dispatch(desk: Desk, requests: list[list[list[bytes]]]) -> float:
    batches = [[[_NOTHING, *words[1:]] for words in batch] for batch in requests]
    serve = desk.machine.command
    started = time.perf_counter_ns()
    for connection, batch in zip(desk.connections, batches, strict=True):
        client = connection.client
        for words in batch:
            serve(client, words, START)
    return (time.perf_counter_ns() - started) / sum(map(len, batches))


def _take_turn(desk: Desk, requests: list[list[list[bytes]]]) -> float:
    _send(desk, requests)
    started = time.perf_counter_ns()
    desk.turn()
    taken = time.perf_counter_ns() - started
    desk.machine.events.clear()
    return taken / sum(map(len, requests))


def _encode(command: str, machine: Machine, handles: list[bytes]) -> float:
    """What it takes to put together a reply of ``command``, ns."""
    count = CLIENTS * 16
    clock = time.perf_counter_ns
    if isinstance(machine, Node) and command in ("ADDJOB", "GETJOB"):
        jobs = [job for id in handles if (job := machine.jobs.get(id)) is not None]
        queue: Queue = machine.queues[b"steps"]
        count = len(jobs)
        started = clock()
        if command == "ADDJOB":
            for job in jobs:
                b"+" + job.id + b"\r\n"
        else:
            for job in jobs:
                b"*1\r\n" + job_entry(job, queue, False)
        return (clock() - started) / count
    if command == "ACKJOB":
        started = clock()
        for _ in range(count):
            integer(1)
        return (clock() - started) / count
    op, form_of_reply = _answered(command)
    started = clock()
    for _ in range(count):
        render(op, form_of_reply, 2)
    return (clock() - started) / count


def _answered(command: str) -> tuple[Op, int]:
    """An operation of bananaq that is done, and the form of its reply."""
    store = EmbeddedStore()
    op = Op(ADD, b"steps")
    op.expire = 1_000_000_000
    op.body = BODY
    store.run(op, START)
    if command == "QADD":
        return op, ID
    taking = Op(GET, b"steps", b"group")
    taking.hold = 30_000_000
    store.run(taking, START)
    return (taking, EVENT) if command == "QGET" else (taking, COUNT)


def _row(command: str, pipeline: int, rounds: list[_Round]) -> Row:
    """The medians of all rounds."""

    def middle(values: list[float]) -> float:
        return statistics.median(values)

    plain = _Raw(*(middle(list(each)) for each in zip(*(r.plain for r in rounds), strict=True)))
    noting = _Raw(*(middle(list(each)) for each in zip(*(r.noting for r in rounds), strict=True)))
    nothing = middle([r.nothing for r in rounds])
    encode = middle([r.encode for r in rounds])
    steps = {
        "recv": plain.recv,
        "parse": plain.parse,
        "dispatch": nothing + plain.settle,
        "core": max(plain.command - nothing - encode, 0.0),
        "encode": encode + plain.join,
        "AOF": max(noting.command - plain.command, 0.0) + noting.persist,
        "send": plain.send,
    }
    return Row(command, pipeline, steps, middle([r.turn for r in rounds]))


def measure(rounds: int, pipelines: tuple[int, ...] = (1, 16)) -> list[Row]:
    """What each command costs."""
    rows = []
    for pipeline in pipelines:
        for make in (make_node, make_broker):
            with tempfile.TemporaryDirectory() as directory:
                bench = _Bench(make, pipeline, Path(directory))
                try:
                    lives = [bench.life() for _ in range(rounds + rounds // 4 + 1)]
                finally:
                    bench.close()
            counted = lives[rounds // 4 + 1 :]  # the first ones only warm up
            rows += [
                _row(command, pipeline, [life[command] for life in counted])
                for command in counted[0]
            ]
    return rows


def table(rows: list[Row]) -> str:
    """The rows in Markdown, µs."""
    titles = ["command", "pipelined", *STEPS, "sum", "whole turn"]
    lines = ["| " + " | ".join(titles) + " |", "| --- |" + " ---: |" * (len(titles) - 1)]
    for row in rows:
        figures = [*(row.steps[step] for step in STEPS), sum(row.steps.values()), row.turn]
        cells = [row.command, str(row.pipeline), *(f"{figure / 1000:.2f}" for figure in figures)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Measure and print the table; returns the exit status."""
    parser = argparse.ArgumentParser(prog="steps", description="What each step of a command costs.")
    parser.add_argument("--rounds", type=int, default=200, help="default: %(default)s")
    options = parser.parse_args(argv)
    gc.disable()
    print(f"{form()}, µs a command:\n")
    print(table(measure(options.rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
