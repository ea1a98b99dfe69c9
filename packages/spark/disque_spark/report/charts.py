"""The plots of the report, and their lines for all queues together."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from disque_spark.report.markup import NONE, Numbers, step_name
from disque_spark.report.plots import Line, line_plot
from disque_spark.report.series import RATES
from disque_trio import humanize

# Columns of the rates, and the names of their lines.
_RATES = {"added": "added", "delivered": "delivered", "acked": "acknowledged"}
_TROUBLE = {"retries": "retries", "nacked": "NACKs", "expired": "expired"}
TROUBLE = "trouble"
Points = list[tuple[int, float | None]]


class Plot(NamedTuple):
    """A plot over time.

    Attributes:
        columns: the column of each line, in the steps of a single queue.
        held: each value holds until the next one.
    """

    id: str
    title: str
    hint: str
    lines: list[Line]
    columns: Sequence[str] = ()
    log: bool = False
    times: bool = False
    held: bool = False
    unit: str = ""

    def markup(self, span: tuple[int, int]) -> str:
        """The plot as SVG; ``NONE`` instead of a plot of trouble that never was."""
        values = [value for line in self.lines for _, value in line.points]
        if self.id == TROUBLE and not any(values):
            return NONE
        return line_plot(
            self.lines, self.title, log=self.log, times=self.times, span=span, id=self.id
        )

    def data(self, span: tuple[int, int]) -> dict[str, Any]:
        """The data from which the page's script draws it."""
        names = self.columns or [line.name for line in self.lines]
        lines = [
            {"name": line.name, "column": column, "points": [list(at) for at in line.points]}
            for column, line in zip(names, self.lines, strict=True)
        ]
        settings = {"log": self.log, "times": self.times, "held": self.held, "unit": self.unit}
        return {"id": self.id, "title": self.title, "lines": lines, "span": span, **settings}


def plots(numbers: Numbers) -> list[Plot]:
    """All plots over time."""
    step = "the same " + step_name(numbers["step"])
    return [
        Plot(
            "rates",
            "throughput over time",
            f"Jobs a second, in {step}.",
            _rates(numbers, _RATES),
            list(_RATES),
            unit="/s",
        ),
        Plot(
            TROUBLE,
            "retries, NACKs and expired jobs over time",
            "Retries and NACKs a second: jobs that were queued again because nobody acknowledged"
            " them in time, or because workers handed them back. And jobs that expired.",
            _rates(numbers, _TROUBLE),
            list(_TROUBLE),
            unit="/s",
        ),
        Plot(
            "wait",
            "wait over time",
            "From being queued to being delivered, for jobs first delivered in"
            f" {step}. Half of them waited less than p50, one in a hundred longer than p99. The"
            " axis is logarithmic.",
            _percentiles(numbers, "wait"),
            log=True,
            times=True,
        ),
        Plot(
            "processing",
            "processing over time",
            f"From delivery to acknowledgement, for jobs acknowledged in {step}."
            " The axis is logarithmic.",
            _percentiles(numbers, "processing"),
            log=True,
            times=True,
        ),
        Plot(
            "depth",
            "depth over time",
            f"The most jobs in {step}, in the queues of all nodes together"
            f"{_of(len(numbers['depth']), numbers.get('queues_in_all', len(numbers['queues'])))}."
            " Lines at 0 are drawn one above the other.",
            _depth(numbers),
            held=True,
        ),
    ]


def span_of(numbers: Numbers) -> tuple[int, int]:
    """The period that plots show, ms."""
    return numbers["first"], numbers["last"]


def _of(shown: int, every: int) -> str:
    """Says how many queues are left out, if any."""
    return f"; the {shown} deepest of {humanize.count(every)} queues" if shown < every else ""


def _rates(numbers: Numbers, names: Mapping[str, str]) -> list[Line]:
    step = numbers["step"]
    lines = []
    for column, name in names.items():
        place = RATES.index(column) + 1
        points: Points = []
        for row in numbers["rates"]:
            points += _nothing_since(points, row[0], step)
            points.append((row[0], row[place] * 1000 / step))
        lines.append(Line(name, points))
    return lines


def _nothing_since(points: Points, at: int, step: int) -> Iterator[tuple[int, float | None]]:
    """Points at 0 for steps in which nothing happened, as far as a line needs them."""
    if not points:
        return
    last = points[-1][0]
    if at - last > step:
        yield last + step, 0
    if at - last > 2 * step:
        yield at - step, 0


def _percentiles(numbers: Numbers, name: str) -> list[Line]:
    points, step = numbers[name], numbers["step"]
    lines = []
    for place, share in enumerate(("p50", "p95", "p99"), 1):
        line: Points = []
        for point in points:
            if line and point[0] - line[-1][0] > 3 * step:
                line.append((point[0] - step, None))
            line.append((point[0], max(point[place], 1)))
        lines.append(Line(share, line))
    return lines


def _depth(numbers: Numbers) -> list[Line]:
    lines = []
    step = numbers["step"]
    for queue, points in numbers["depth"].items():
        line: Points = []
        for begin, depth in points:
            at = min(begin + step, numbers["last"])  # the time within the step is unknown
            if not line:
                line.append((max(begin, numbers["first"]), 0))
            elif begin > line[-1][0]:  # the depth stays until something happens
                line.append((begin, line[-1][1]))
            line.append((at, depth))
        if line and numbers["last"] > line[-1][0]:
            line.append((numbers["last"], line[-1][1]))
        lines.append(Line(queue or "?", line))
    return lines
