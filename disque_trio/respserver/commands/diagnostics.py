"""SLOWLOG, LATENCY, MONITOR and DEBUG: diagnostic commands."""

from disque_trio.resp.reply import OK, Text, Value, encode, integer
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX, parse_integer
from disque_trio.respserver.host import NO_DEBUG
from disque_trio.respserver.machine import Machine


def slowlog(node: Machine, client: Client, args: list[bytes]) -> None:
    """SLOWLOG and its subcommands."""
    word = args[1].lower()
    log = node.slowlog
    if word == b"reset" and len(args) == 2:
        log.entries.clear()
        client.out.append(OK)
    elif word == b"len" and len(args) == 2:
        client.out.append(integer(len(log.entries)))
    elif word == b"get" and len(args) <= 3:
        count = parse_integer(args[2]) if len(args) == 3 else 10
        if count < 0:
            count = len(log.entries)
        answer: list[Value] = []
        for entry in list(log.entries)[:count]:
            words: list[Value] = list(entry.args)
            answer.append([entry.id, entry.time, entry.duration, words])
        client.out.append(encode(answer, client.resp))
    else:
        raise CommandError(
            "ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN."
        )


def latency(node: Machine, client: Client, args: list[bytes]) -> None:
    """LATENCY and its subcommands."""
    word = args[1].lower()
    monitor = node.latency
    answer: Value
    if word == b"history" and len(args) == 3:
        answer = [[time, ms] for time, ms in monitor.events.get(args[2], [])]
    elif word == b"latest" and len(args) == 2:
        answer = [
            [event, samples[-1][0], samples[-1][1], monitor.worst[event]]
            for event, samples in monitor.events.items()
        ]
    elif word == b"graph" and len(args) == 3:
        if args[2] not in monitor.events:
            name = args[2].decode("utf-8", "replace")
            raise CommandError(f"ERR No samples available for event '{name}'")
        samples = monitor.events[args[2]]
        answer = Text(_graph(args[2], samples, monitor.worst[args[2]], node.now).encode())
    elif word == b"doctor" and len(args) == 2:
        answer = Text(_doctor(node).encode())
    elif word == b"reset":
        answer = monitor.reset(args[2:])
    else:
        raise CommandError(SYNTAX)
    client.out.append(encode(answer, client.resp))


def _graph(event: bytes, samples: list[tuple[int, int]], worst: int, now: int) -> str:
    """The samples as bars of text, oldest on the left, with their ages below."""
    high = max(ms for _, ms in samples)
    low = min(ms for _, ms in samples)
    lines = [
        f"{event.decode('utf-8', 'replace')} - high {high} ms, low {low} ms "
        f"(all time high {worst} ms)",
        "-" * 80,
    ]
    shown = samples[-80:]
    for row in range(4, 0, -1):
        bars = ["#" if ms * 4 >= high * row else " " for _, ms in shown]
        lines.append("".join(bars).rstrip())
    lines.append("_" * len(shown))
    ages = [_age(now // 1000 - time) for time, _ in shown]
    lines.extend(
        "".join(age[row] if row < len(age) else " " for age in ages).rstrip()
        for row in range(max(len(age) for age in ages))
    )
    return "\n".join(lines) + "\n"


def _age(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"


def _doctor(node: Machine) -> str:
    """The text of LATENCY DOCTOR, for people."""
    monitor = node.latency
    if monitor.threshold == 0:
        return (
            "The latency monitor is off. CONFIG SET latency-monitor-threshold <milliseconds> "
            "turns it on.\n"
        )
    if not monitor.events:
        return f"Nothing took {monitor.threshold} ms or more since the monitor was reset.\n"
    lines = [f"Events that took {monitor.threshold} ms or more:"]
    for event, samples in monitor.events.items():
        times = [ms for _, ms in samples]
        lines.append(
            f"- {event.decode('utf-8', 'replace')}: {len(times)} samples, "
            f"average {sum(times) // len(times)} ms, worst {monitor.worst[event]} ms, "
            f"last at {samples[-1][0]}."
        )
    lines.append("SLOWLOG GET shows the slow commands and their arguments.")
    return "\n".join(lines) + "\n"


def monitor(node: Machine, client: Client, args: list[bytes]) -> None:
    """MONITOR: from now on, send a line for every command that the node serves."""
    if not client.monitor:
        client.monitor = True
        node.monitors.append(client)
    client.out.append(OK)


def debug(node: Machine, client: Client, args: list[bytes]) -> None:
    """DEBUG and its subcommands."""
    if not node.host.may_debug(client):
        raise CommandError(NO_DEBUG)
    word = args[1].lower()
    count = len(args)
    if word == b"flushall" and count == 2:
        node.flush()
        client.out.append(OK)
    elif word == b"sleep" and count == 3:
        try:
            seconds = float(args[2])
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= 3600:
            raise CommandError("ERR value is not a valid float")
        node.host.sleep(seconds)
        client.out.append(OK)
    elif word == b"error" and count == 3:
        raise CommandError(args[2].decode("utf-8", "surrogateescape"))
    elif word in (b"segfault", b"oom", b"assert") and count == 2:
        node.host.crash(False, 0)
    elif word in (b"restart", b"crash-and-recover") and count <= 3:
        delay = parse_integer(args[2]) if count == 3 else 0
        node.host.crash(True, max(delay, 0))
    else:
        name = args[1].decode("utf-8", "replace")
        raise CommandError(
            f"ERR Unknown DEBUG subcommand or wrong number of arguments for '{name}'"
        )
