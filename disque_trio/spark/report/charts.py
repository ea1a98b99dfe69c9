"""The plots of the report: which lines they have, of all queues together."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from disque_trio.spark.report.markup import HOUR, NONE, Numbers, step_name
from disque_trio.spark.report.plots import Line, heat_map, line_plot, number
from disque_trio.spark.report.series import RATES

# Column of the rates, and what its line is called.
_RATES = {"added": "added", "delivered": "delivered", "acked": "acknowledged"}
_TROUBLE = {"retries": "retries", "nacked": "NACKs", "expired": "expired"}
TROUBLE = "trouble"
Points = list[tuple[int, float | None]]


class Plot(NamedTuple):
    """A plot over time.

    Attributes:
        columns: of each line, in the steps of one queue.
        held: values hold until the next one.
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
        """As it stands in the page; ``NONE`` instead of events that never were."""
        values = [value for line in self.lines for _, value in line.points]
        if self.id == TROUBLE and not any(values):
            return NONE
        return line_plot(
            self.lines, self.title, log=self.log, times=self.times, span=span, id=self.id
        )

    def data(self, span: tuple[int, int]) -> dict[str, Any]:
        """What the page's script draws it from."""
        names = self.columns or [line.name for line in self.lines]
        lines = [
            {"name": line.name, "column": column, "points": [list(at) for at in line.points]}
            for column, line in zip(names, self.lines, strict=True)
        ]
        settings = {"log": self.log, "times": self.times, "held": self.held, "unit": self.unit}
        return {"id": self.id, "title": self.title, "lines": lines, "span": span, **settings}


def plots(numbers: Numbers) -> list[Plot]:
    """All over time."""
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
            "Retries and NACKs a second: jobs that came back since nobody acknowledged them in"
            " time, or that workers handed back. And jobs whose time was over.",
            _rates(numbers, _TROUBLE),
            list(_TROUBLE),
            unit="/s",
        ),
        Plot(
            "wait",
            "wait over time",
            "From the first queue to the first worker, of the jobs that were first delivered in"
            f" {step}. Half of them waited less than p50, one of a hundred longer than p99. The"
            " axis is logarithmic.",
            _percentiles(numbers, "wait"),
            log=True,
            times=True,
        ),
        Plot(
            "processing",
            "processing over time",
            f"From the delivery to the acknowledge, of the jobs that were acknowledged in {step}."
            " The axis is logarithmic.",
            _percentiles(numbers, "processing"),
            log=True,
            times=True,
        ),
        Plot(
            "depth",
            "depth over time",
            f"Jobs in the queues of all nodes together, the most in {step}"
            f"{_of(len(numbers['depth']), numbers.get('queues_in_all', len(numbers['queues'])))}."
            " Lines at 0 are drawn one above the other.",
            _depth(numbers),
            held=True,
        ),
    ]


def span_of(numbers: Numbers) -> tuple[int, int]:
    """From when to when plots are."""
    return numbers["first"], numbers["last"]


def hours(numbers: Numbers) -> str:
    """How many deliveries there were in each queue and hour."""
    known: Mapping[str, Any] = numbers["hours"]
    cells = {(queue, at): count for queue, at, count in known["delivered"]}
    columns = list(range(known["first"], known["last"] + 1, HOUR)) if cells else []
    return heat_map(known["queues"], columns, cells, "deliveries by queue and hour")


def _of(shown: int, every: int) -> str:
    """What is left out."""
    return f"; the {shown} deepest of {number(every)} queues" if shown < every else ""


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
    """Steps in which nothing happened, as far as a line needs them."""
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
            at = min(begin + step, numbers["last"])  # nobody knows when in the step it was
            if not line:
                line.append((max(begin, numbers["first"]), 0))
            elif begin > line[-1][0]:  # it stays as it is until something happens
                line.append((begin, line[-1][1]))
            line.append((at, depth))
        if line and numbers["last"] > line[-1][0]:
            line.append((numbers["last"], line[-1][1]))
        lines.append(Line(queue or "?", line))
    return lines
