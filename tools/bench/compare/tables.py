"""What the rounds found, as tables in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tools.bench.compare.rounds import Result
from tools.bench.compare.subjects import Level, Subject
from tools.bench.report import BUSY, table

LEVEL_TITLES: Mapping[Level, str] = {
    "none": "none",
    "everysec": "every second",
    "always": "every write",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A server's rounds in one setting, as medians. Ratios are those of the first server of the
    setting to this one, within a round each, with their range."""

    subject: Subject
    level: Level
    pipeline: int
    rate: float
    limited: bool
    """The generator was what limited the rate."""
    cpu_us: float
    p50: float
    p99: float
    rate_ratio: tuple[float, float, float]
    cpu_ratio: tuple[float, float, float]

    @property
    def label(self) -> str:
        """The server's name, with how its promise differs."""
        differs = self.subject.differs(self.level)
        return f"{self.subject.title} ({differs})" if differs else self.subject.title


def figures(results: Sequence[Result], subjects: Sequence[Subject]) -> list[Figure]:
    """One figure for each setting and server, in the order in which they were measured."""
    by_key = {subject.key: subject for subject in subjects}
    cells: dict[tuple[Level, int], dict[str, list[Result]]] = {}
    for result in results:
        cell = cells.setdefault((result.level, result.pipeline), {})
        cell.setdefault(result.subject, []).append(result)
    found = []
    for (level, pipeline), cell in cells.items():
        first = next(iter(cell.values()))
        for key, mine in cell.items():
            busy = median(result.own_cpu / result.seconds for result in mine)
            found.append(
                Figure(
                    subject=by_key[key],
                    level=level,
                    pipeline=pipeline,
                    rate=median(result.rate for result in mine),
                    limited=busy >= BUSY,
                    cpu_us=median(result.cpu_us for result in mine),
                    p50=median(result.p50 for result in mine),
                    p99=median(result.p99 for result in mine),
                    rate_ratio=_ratio(first, mine, lambda result: result.rate),
                    cpu_ratio=_ratio(first, mine, lambda result: result.cpu_us),
                )
            )
    return found


def _ratio(
    first: Sequence[Result], mine: Sequence[Result], value: Callable[[Result], float]
) -> tuple[float, float, float]:
    """The median, the least and the greatest of the rounds' ratios."""
    ratios = [value(a) / value(b) for a, b in zip(first, mine, strict=True)]
    return median(ratios), min(ratios), max(ratios)


def ratio_table(found: Sequence[Figure]) -> str:
    """One row for each server in each setting."""
    titles = ["synced", "pipelined", "server", "jobs/s", "rate ratio", "(range)"]
    titles += ["CPU µs a job", "CPU ratio", "(range)", "p50 / p99 ms"]
    rows = [
        [
            LEVEL_TITLES[figure.level],
            str(figure.pipeline),
            figure.label,
            rate_text(figure),
            *_cells(figure.rate_ratio),
            f"{figure.cpu_us:.1f}",
            *_cells(figure.cpu_ratio),
            f"{figure.p50 * 1000:.2f} / {figure.p99 * 1000:.2f}",
        ]
        for figure in found
    ]
    return table(titles, rows)


def rate_text(figure: Figure) -> str:
    """The rate, with a + if the generator was at its limit."""
    return f"{figure.rate:,.0f}{'+' if figure.limited else ''}"


def _cells(ratio: tuple[float, float, float]) -> tuple[str, str]:
    middle, least, greatest = ratio
    return f"**{middle:.2f}**", f"{least:.2f}-{greatest:.2f}"
