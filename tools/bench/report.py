"""What was measured as tables in Markdown, and the place of those tables in the documentation."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TypeVar

from disque_trio.version import VERSION
from tools.bench.measure import Sample
from tools.bench.scenarios import Rest

BUSY = 0.9
"""From this share of a core on, the generator is what limits a rate."""
STEPS = ("add", "take", "ack", "cycle")
K = TypeVar("K")


class DocsError(Exception):
    """The documentation has no place for the table."""


def machine() -> dict[str, str]:
    """Names what the figures depend on: date, versions, machine."""
    redis = subprocess.run(("redis-server", "--version"), capture_output=True, text=True)
    found = re.search(r"v=(\S+)", redis.stdout)
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "disque-trio": VERSION,
        "redis-server": found[1] if found else "?",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "cpu": f"{os.cpu_count()} x {_cpu_model()}",
    }


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def heading(arguments: Sequence[str], facts: Mapping[str, str], module: str = "tools.bench") -> str:
    """The lines above a table: the command that made it and what it ran on."""
    command = shlex.join(("python", "-m", module, *arguments))
    known = ", ".join(f"{name} {value}" for name, value in facts.items())
    return f"Made by `{command}`.\n{known}."


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; the first column is text, the others are figures."""
    lines = ["| " + " | ".join(titles) + " |", "| --- |" + " ---: |" * (len(titles) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def matrix_table(samples: Sequence[Sample]) -> str:
    """One row for each step, pipeline depth and number of clients. Samples are of two servers,
    the first of them is the dividend of the ratios."""
    first, second = dict.fromkeys(sample.server for sample in samples)
    cells = _grouped(
        samples, lambda s: (STEPS.index(s.step), s.setting.pipeline, s.setting.clients)
    )
    titles = ["command", "pipelined", "clients", "CPU ratio", "(range)"]
    titles += [f"{name} CPU s/100k" for name in (first, second)]
    titles += ["rate ratio", *(f"{name} rate/s" for name in (first, second))]
    titles += [f"{name} p50 / p99 / p999 ms" for name in (first, second)]
    rows = []
    for (_, pipeline, clients), cell in sorted(cells.items()):
        a = [sample for sample in cell if sample.server == first]
        b = [sample for sample in cell if sample.server == second]
        ratio, span = _cpu_ratio(a, b)
        command = " / ".join(dict.fromkeys(sample.command for sample in cell))
        row = [command, str(pipeline), str(clients), f"**{ratio}**", span]
        row += [_cpu(a), _cpu(b)]
        row += [f"{median(x.rate / y.rate for x, y in zip(a, b, strict=True)):.2f}"]
        row += [_rate(a), _rate(b), _latency(a), _latency(b)]
        rows.append(row)
    return table(titles, rows)


def level_table(samples: Sequence[Sample], level: Callable[[Sample], int], what: str) -> str:
    """One row for each server, step and pipeline depth: what a command costs at the lowest
    level (so many jobs held, or idle connections), and that cost's growth at the others."""
    levels = sorted({level(sample) for sample in samples})
    lowest, highest = levels[0], levels[-1]
    titles = ["command", "pipelined", f"CPU s/100k, {lowest:,} {what}"]
    titles += [f"CPU ratio, {number:,} {what}" for number in levels[1:]]
    titles += [f"p50 / p999 / worst ms, {number:,} {what}" for number in (lowest, highest)]
    rows = []
    for (server, command, pipeline), row_samples in _grouped(
        samples, lambda s: (s.server, s.command, s.setting.pipeline)
    ).items():
        cells = _grouped(row_samples, level)
        row = [f"{server} {command}", str(pipeline), _cpu(cells[lowest])]
        for number in levels[1:]:
            ratio, span = _cpu_ratio(cells[number], cells[lowest])
            row.append(f"**{ratio}** ({span})")
        row += [_worst(cells[lowest]), _worst(cells[highest])]
        rows.append(row)
    return table(titles, rows)


def rest_table(rests: Sequence[Rest]) -> str:
    """What connections cost that do nothing, in CPU milliseconds in a second."""
    cells: dict[tuple[str, int], list[float]] = {}
    for rest in rests:
        cells.setdefault((rest.server, rest.idle), []).append(rest.cpu)
    rows = [
        [server, f"{idle:,}", f"{median(cpu) * 1000:.1f}"] for (server, idle), cpu in cells.items()
    ]
    return table(["server at rest", "idle connections", "CPU ms/s"], rows)


def replace_section(text: str, name: str, content: str) -> str:
    """The documentation with ``content`` between the two markers of a scenario.

    Raises DocsError when they are not there.
    """
    begin, end = f"<!-- bench {name}: begin -->", f"<!-- bench {name}: end -->"
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise DocsError(f"the markers {begin!r} and {end!r} are missing")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def _grouped(samples: Iterable[Sample], key: Callable[[Sample], K]) -> dict[K, list[Sample]]:
    groups: dict[K, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(key(sample), []).append(sample)
    return groups


def _cpu_ratio(a: Sequence[Sample], b: Sequence[Sample]) -> tuple[str, str]:
    """The median of the rounds' ratios and their range."""
    ratios = [x.cpu_per_100k / y.cpu_per_100k for x, y in zip(a, b, strict=True)]
    return f"{median(ratios):.2f}", f"{min(ratios):.2f}-{max(ratios):.2f}"


def _cpu(samples: Sequence[Sample]) -> str:
    return f"{median(sample.cpu_per_100k for sample in samples):.3f}"


def _rate(samples: Sequence[Sample]) -> str:
    limited = median(sample.own_cpu / sample.seconds for sample in samples) >= BUSY
    return f"{median(sample.rate for sample in samples):,.0f}{'+' if limited else ''}"


def _latency(samples: Sequence[Sample]) -> str:
    return _ms([s.p50 for s in samples], [s.p99 for s in samples], [s.p999 for s in samples])


def _worst(samples: Sequence[Sample]) -> str:
    worst = max(sample.worst for sample in samples)
    return _ms([s.p50 for s in samples], [s.p999 for s in samples], [worst])


def _ms(*seconds: Sequence[float]) -> str:
    return " / ".join(f"{median(values) * 1000:.2f}" for values in seconds)
