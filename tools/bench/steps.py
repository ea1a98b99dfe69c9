"""The cost of each step of a command, measured in this process.

Each step of a turn is run separately for many clients, so that the clock is read rarely.

- recv, parse, send: as the engine calls them;
- dispatch: an empty command with the same arguments;
- encode: building the reply again, and joining it with the others;
- core: the rest of the state machine's time for the command;
- AOF: the state machine's extra time to log records, and writing them, without a sync;
- whole turn: as the engine runs it, with the file. It takes longer than the sum of the steps: it
  includes the turn's own work, and the steps are not batched.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from disque_bananaq.core.embedded import EmbeddedStore
from disque_bananaq.core.replies import COUNT, EVENT, ID, render
from disque_bananaq.core.requests import Add, Get, from_now
from disque_bananaq.core.results import Result
from disque_trio.form import form
from disque_trio.node.core.node import Node
from disque_trio.node.core.queues.entries import job_entry
from disque_trio.node.core.queues.queue import Queue
from disque_trio.resp.reply import integer
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import Command
from disque_trio.respserver.io.connection import READ_SIZE
from disque_trio.respserver.machine import Machine
from tools.bench.cli import option, table
from tools.bench.inprocess import (
    BODY,
    ENDS,
    EVENT_COMMANDS,
    JOB_COMMANDS,
    QUEUE,
    START,
    Desk,
    id_in,
    make_broker,
    make_node,
    request,
    requests_of,
)

CLIENTS = 50
STEPS = ("recv", "parse", "dispatch", "core", "encode", "AOF", "send")
_NOTHING = b"nothing"
PINNED = False


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure."""

    rounds: int = option(200, "how often everything is measured", quick=2)


class Row(NamedTuple):
    """The cost of a command: ns for each of STEPS, and for a whole turn."""

    command: str
    pipeline: int
    steps: dict[str, float]
    turn: float


class _Raw(NamedTuple):
    """The measured ns of one command in one round."""

    recv: float
    parse: float
    command: float
    persist: float
    settle: float
    join: float
    send: float


class _Round(NamedTuple):
    """One measurement of a command in each of the ways."""

    plain: _Raw
    noting: _Raw
    nothing: float
    encode: float
    turn: float


def _do_nothing(machine: Machine, client: Client, args: list[bytes]) -> None:
    """An empty command, to measure dispatch alone."""


_MORE = [Command(_NOTHING.decode(), -1, "fast", _do_nothing, "", "", "server")]


def _life(desks: Sequence[Desk], commands: Sequence[str], pipeline: int) -> dict[str, _Round]:
    """Measure the ``commands`` of a whole life once.

    Args:
        desks: three desks of the same server: without a file, with a file, and with a file in whole
            turns.
    """
    plain_desk, noting_desk, whole_desk = desks
    count = CLIENTS * pipeline
    found: dict[str, _Round] = {}
    taken: list[list[bytes]] = [[], [], []]
    for command in commands:
        requests = [_by_client(requests_of(command, count, ids), pipeline) for ids in taken]
        plain = _take_steps(plain_desk, requests[0])
        nothing = _dispatch(plain_desk, requests[0])
        noting = _take_steps(noting_desk, requests[1])
        turn = _take_turn(whole_desk, requests[2])
        replies = [desk.replies() for desk in desks]
        if any(len(each) != count or None in each for each in replies):
            raise RuntimeError(f"{command} got a wrong reply")
        if command not in ENDS:
            taken = [[id_in(reply) for reply in each] for each in replies]
        encode = _encode(command, plain_desk.machine, taken[0])
        found[command] = _Round(plain, noting, nothing, encode, turn)
    return found


def _by_client(requests: list[list[bytes]], pipeline: int) -> list[list[list[bytes]]]:
    return [requests[i : i + pipeline] for i in range(0, len(requests), pipeline)]


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
        desk.engine.file.turn()
    times.append(clock())
    machine.commit()
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
    return taken / sum(map(len, requests))


def _encode(command: str, machine: Machine, handles: list[bytes]) -> float:
    """The time to build a reply of ``command``, in ns."""
    count = CLIENTS * 16
    clock = time.perf_counter_ns
    if isinstance(machine, Node) and command in ("ADDJOB", "GETJOB"):
        jobs = [job for id in handles if (job := machine.store.jobs.get(id)) is not None]
        queue: Queue = machine.queues.by_name[QUEUE]
        count = len(jobs)
        started = clock()
        if command == "ADDJOB":
            for job in jobs:
                b"+" + job.id + b"\r\n"
        else:
            for job in jobs:
                b"*1\r\n" + job_entry(job, queue)
        return (clock() - started) / count
    if command == "ACKJOB":
        started = clock()
        for _ in range(count):
            integer(1)
        return (clock() - started) / count
    result, form_of_reply = _answered(command)
    client = Client(1)
    started = clock()
    for _ in range(count):
        render(result, form_of_reply, client)
    return (clock() - started) / count


def _answered(command: str) -> tuple[Result, int]:
    """The result of a request to bananaq's store, and the form of its reply."""
    store = EmbeddedStore()
    added = store.run(Add(QUEUE, BODY, from_now(1_000_000_000)), START)
    if command == "QADD":
        return added, ID
    taken = store.run(Get(QUEUE, b"group", from_now(30_000_000)), START)
    return (taken, EVENT) if command == "QGET" else (taken, COUNT)


def _row(command: str, pipeline: int, rounds: list[_Round]) -> Row:
    """The medians of all rounds."""

    plain, noting = (
        _Raw(*(median(times) for times in zip(*raws, strict=True)))
        for raws in ([r.plain for r in rounds], [r.noting for r in rounds])
    )
    nothing = median(r.nothing for r in rounds)
    encode = median(r.encode for r in rounds)
    steps = {
        "recv": plain.recv,
        "parse": plain.parse,
        "dispatch": nothing + plain.settle,
        "core": max(plain.command - nothing - encode, 0.0),
        "encode": encode + plain.join,
        "AOF": max(noting.command - plain.command, 0.0) + noting.persist,
        "send": plain.send,
    }
    return Row(command, pipeline, steps, median(r.turn for r in rounds))


def measure(rounds: int, pipelines: tuple[int, ...] = (1, 16)) -> list[Row]:
    """The cost of each command."""
    rows = []
    kinds: tuple[tuple[Callable[[], Machine], Sequence[str]], ...]
    # They provide the clock with which commands are timed.
    kinds = (
        (partial(make_node, more=_MORE, clock=time.perf_counter_ns), JOB_COMMANDS),
        (partial(make_broker, more=_MORE, clock=time.perf_counter_ns), EVENT_COMMANDS),
    )
    warm_up = rounds // 4 + 1
    for pipeline in pipelines:
        for make, commands in kinds:
            with ExitStack() as stack:
                files = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in range(2)]
                desks = [
                    stack.enter_context(closing(Desk(make(), CLIENTS, file)))
                    for file in (None, *files)
                ]
                lives = [_life(desks, commands, pipeline) for _ in range(warm_up + rounds)]
            rows += [
                _row(command, pipeline, [life[command] for life in lives[warm_up:]])
                for command in commands
            ]
    return rows


def steps_table(rows: list[Row]) -> str:
    """The rows in Markdown, µs."""
    lines = []
    for row in rows:
        figures = [*(row.steps[step] for step in STEPS), sum(row.steps.values()), row.turn]
        cells = (f"{figure / 1000:.2f}" for figure in figures)
        lines.append([row.command, str(row.pipeline), *cells])
    return table(["command", "pipelined", *STEPS, "sum", "whole turn"], lines)


def run(plan: Plan) -> int:
    """Measure and print the table; returns the exit status."""
    gc.disable()
    print(f"{form()}, µs a command:\n")
    print(steps_table(measure(plan.rounds)))
    return 0
