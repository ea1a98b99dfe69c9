"""The findings as tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from tools.bench.latency.histogram import Histogram
from tools.bench.latency.situations import HALF, LEVELS, Finding
from tools.bench.report import table

AIM_P99 = 0.002
AIM_PAUSE = 0.020


def latency_table(found: Sequence[Finding]) -> str:
    """A row for each finding: times of a cycle, the longest pause, and what the generator's own
    part in it is."""
    titles = ["situation", "load, of the peak rate", "cycles/s", "p50 / p99 / p999 / worst ms"]
    titles += ["CPU", "longest pause, the node's own ms", "longest pause ms (not the node's)"]
    titles += ["generator late p50 / p99 ms"]
    rows = []
    for one in found:
        measured = one.measured
        load, watched = measured.load, measured.watched
        longest = watched.longest
        row = [_name(one), f"{one.load:.0%} of {one.peak:,.0f}", f"{load.rate:,.0f}"]
        row += [
            _times(load.cycles),
            f"{measured.cpu / load.seconds:.0%}",
            _bold(watched.longest_own * 1000, 1),
        ]
        row += [
            f"{watched.short * 1000:.1f} (0.0)"
            if longest is None
            else f"{longest.length * 1000:.1f} ({longest.foreign * 1000:.1f})"
        ]
        row += [_late(load.late)]
        rows.append(row)
    return table(titles, rows)


def aims_table(found: Sequence[Finding]) -> str:
    """Whether the aims are met: a row for each finding at half load."""
    titles = ["aim", "without a file", "everysec", "always", *_others(found)]
    by_name = {one.situation: one for one in found if one.load == HALF}
    names = [*LEVELS, *_others(found)]
    p99, pause = ["p99 below 2 ms at half load"], ["no pause of the node over 20 ms"]
    for name in names:
        one = by_name.get(name)
        if one is None:
            p99.append("not measured")
            pause.append("not measured")
            continue
        value = one.measured.load.cycles.percentile(0.99)
        worst = max(
            other.measured.watched.longest_own for other in found if other.situation == name
        )
        p99.append(_verdict(value, AIM_P99))
        pause.append(_verdict(worst, AIM_PAUSE))
    return table(titles, [p99, pause])


def disk_line(syncs: Histogram) -> str:
    """What a sync takes on this disk."""
    p50, p99, worst = (syncs.percentile(part) * 1000 for part in (0.5, 0.99, 1.0))
    return (
        f"A sync of 4 KiB on this disk, with nothing else to do: p50 {p50:.2f}, p99 {p99:.2f},"
        f" worst {worst:.2f} ms. With `always` a cycle waits for two of them."
    )


def _others(found: Sequence[Finding]) -> list[str]:
    names = dict.fromkeys(one.situation for one in found)
    return [name for name in names if name not in LEVELS]


def _name(one: Finding) -> str:
    return f"{one.situation}: {one.note}" if one.note else one.situation


def _verdict(seconds: float, aim: float) -> str:
    return f"{seconds * 1000:.1f} ms" + (": missed" if seconds > aim else "")


def _times(found: Histogram) -> str:
    values = [found.percentile(part) * 1000 for part in (0.5, 0.99, 0.999, 1.0)]
    texts = [f"{value:.2f}" for value in values]
    texts[1] = f"**{texts[1]}**"
    return " / ".join(texts)


def _late(found: Histogram) -> str:
    if not found.total:
        return "-"
    return " / ".join(f"{found.percentile(part) * 1000:.2f}" for part in (0.5, 0.99))


def _bold(value: float, digits: int) -> str:
    return f"**{value:.{digits}f}**"
