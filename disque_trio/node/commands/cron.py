"""CRON: schedules."""

from functools import partial
from typing import Final

from disque_trio.node.commands.add_options import AddOptions
from disque_trio.node.commands.addjob import addjob
from disque_trio.node.commands.arguments import check_topic, require_extensions
from disque_trio.node.core.node import Node
from disque_trio.node.core.shared.bindings import TOPIC
from disque_trio.node.core.shared.cron_times import times_of
from disque_trio.node.core.shared.makers import maker_of
from disque_trio.node.core.shared.schedule_words import describe, read_schedule
from disque_trio.node.core.shared.schedules import PAUSED, Schedule
from disque_trio.node.core.shared.versions import Entry, SharedError
from disque_trio.node.core.ticks import Plan
from disque_trio.resp.reply import Value, encode, integer, null_array
from disque_trio.respserver.batches import Listing
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX, wrong_arity

_AFTER_NEXT: Final = 4  # ticks after the next one that GET tells
_TIMEOUT: Final = b"5000"  # ms that the ADDJOB of RUN waits for copies


def cron(node: Node, client: Client, args: list[bytes]) -> None:
    """CRON and its subcommands."""
    word = args[1].lower()
    if word == b"list":
        if len(args) != 2:
            raise wrong_arity("cron list")
        entries = node.ticks.schedules.entries
        found = [entries[name] for name in sorted(entries) if entries[name].value is not None]
        command = node.command_of(args)
        node.batches.read(Listing(client, command, found, partial(_listed, node)))
        return
    if word not in (b"set", b"get", b"del", b"pause", b"resume", b"run"):
        raise CommandError(SYNTAX)
    if (word == b"set" and len(args) < 6) or (word != b"set" and len(args) != 3):
        raise wrong_arity(f"cron {word.decode()}")
    try:
        if word == b"set":
            _set(node, client, args[2], args[3:])
        elif word == b"del":
            if not node.ticks.sharing.delete(client, args[2]):
                client.out.append(integer(0))
        else:
            _about_one(node, client, word, args[2])
    except SharedError as problem:
        raise CommandError(f"ERR {problem}") from problem


def _set(node: Node, client: Client, name: bytes, words: list[bytes]) -> None:
    require_extensions(node)
    schedule = read_schedule(name, words)
    times = times_of(schedule.spec, schedule.zone)
    options = AddOptions(_addjob(schedule))
    if schedule.queue.startswith(TOPIC):
        check_topic(schedule.queue[1:])
    if options.key or options.at >= 0:
        raise CommandError("ERR UNIQUE and AT are not for schedules: each tick adds one job")
    if options.trailer is not None and options.trailer.letter is not None:
        raise CommandError("ERR LETTER is not for schedules")
    if options.retry == 0 and options.repl != 1:
        raise CommandError("ERR RETRY 0 (at-most-once delivery) needs REPLICATE 1")
    if options.delay and 0 < options.ttl * 1000 <= options.delay:
        raise CommandError("ERR DELAY is greater than TTL: no job would ever be delivered")
    if not times.next(node.now):
        raise CommandError("ERR these times never occur")
    old = node.ticks.schedules.named(name)
    if old is not None and old.flags & PAUSED:
        schedule = schedule.paused(True)
    schedule.user = maker_of(client)
    node.budgets.admit_schedule(client.user, schedule.queue, old.queue if old else None)
    node.ticks.sharing.set(client, name, schedule, node.now)


def _about_one(node: Node, client: Client, word: bytes, name: bytes) -> None:
    """GET, PAUSE, RESUME or RUN."""
    entry = node.ticks.schedules.entries.get(name)
    schedule = None if entry is None else entry.value
    if entry is None or schedule is None:
        if word != b"get":
            raise CommandError("ERR there is no schedule with this name")
        client.out.append(null_array(client.resp))
    elif word == b"get":
        fields = _describe(node, entry, schedule)
        fields[b"after-next"] = _after_next(schedule, fields[b"next"])
        client.out.append(encode(fields, client.resp))
    elif word == b"run":
        addjob(node, client, _addjob(schedule))
    else:
        # What was not added while it was paused was not missed.
        node.ticks.sharing.set(client, name, schedule.paused(word == b"pause"), node.now)


def _addjob(schedule: Schedule) -> list[bytes]:
    """The ADDJOB for a job outside the schedule's times."""
    return [b"ADDJOB", schedule.queue, schedule.body, _TIMEOUT, *schedule.options]


def _describe(node: Node, entry: Entry[Schedule], schedule: Schedule) -> dict[bytes, Value]:
    plan = node.ticks.plan_of(entry)
    if plan is None:  # it was just set, or is paused
        plan = Plan(entry, schedule)
    problem = node.ticks.makers.problem(schedule) or plan.problem
    runs = node.ticks.schedules.runs.get(entry.name, [])
    return describe(schedule, entry.reached, plan.tick, problem, runs)


def _after_next(schedule: Schedule, first: Value) -> Value:
    """The ticks after the next one, ``first``, as far as they are shown (ms)."""
    found: list[Value] = []
    try:
        times = times_of(schedule.spec, schedule.zone)
    except SharedError:
        return found
    tick = first if isinstance(first, int) else 0
    while tick and len(found) < _AFTER_NEXT:
        tick = times.next(tick)
        if tick:
            found.append(tick)
    return found


def _listed(node: Node, entry: Entry[Schedule]) -> Value:
    """What LIST says of a schedule: all but its job."""
    assert entry.value is not None
    fields = _describe(node, entry, entry.value)
    del fields[b"job"]
    return fields
