"""The plots over time: what they show, and the data from which the page's script draws them.

Why no library? One as small as uPlot is four times as long as what draws these, and draws on a
canvas: it has no text for screen readers, no keys, and no lines that differ in more than colour.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from disque_spark.audit.manifest import DAY
from disque_spark.audit.queue_minutes import PERCENTILES
from disque_spark.report.markup import NONE, Numbers, step_name
from disque_spark.report.series import RATES
from disque_trio import humanize

_EMPTY = "<svg></svg><p class=legend></p><p class=readout aria-live=polite></p></figure>"


class Plot(NamedTuple):
    """A plot over time.

    Attributes:
        kind: what the values are: ``rates`` (counts in steps), ``times`` (ms), or ``depth``.
        columns, names: the columns of the lines, in the steps of a queue, and their names.
        source: the numbers of all queues together.
    """

    id: str
    kind: str
    title: str
    hint: str
    columns: Sequence[str]
    names: Sequence[str]
    source: str

    def markup(self) -> str:
        """Its place in the page."""
        title = self.title[0].upper() + self.title[1:]
        return f"<h3>{title}</h3><p class=hint>{self.hint}</p><figure id=plot-{self.id}>{_EMPTY}"

    def data(self) -> dict[str, Any]:
        """What the script needs to know."""
        kind = {"log": self.kind == "times", "unit": "/s" if self.kind == "rates" else ""}
        known = self._asdict() | kind
        del known["hint"]
        return known


def plots(numbers: Numbers) -> list[Plot]:
    """The plots over time. There is none of trouble that never was."""
    if not numbers["rates"]:
        return []
    step = "the same " + step_name(numbers["step"])
    trouble = any(any(row[1 + RATES.index("retries") :]) for row in numbers["rates"])
    shown, every = len(numbers["depth"]), numbers["queues_in_all"]
    some = f"; the {shown} deepest of {humanize.count(every)} queues" if shown < every else ""
    found = [
        _of_rates("rates", "throughput", "Jobs a second.", ("added", "delivered", "acked")),
        _of_rates(
            "trouble",
            "retries, NACKs and expired jobs",
            "A second: jobs that were queued again because nobody acknowledged them in time, or"
            " because workers handed them back; and jobs that expired.",
            ("retries", "nacked", "expired"),
        ),
        _of_times(
            "wait",
            f"From being queued to being delivered, for jobs first delivered in {step}. Half of"
            " them waited less than p50, one in a hundred longer than p99. The axis is"
            " logarithmic.",
        ),
        _of_times(
            "processing",
            f"From delivery to acknowledgement, for jobs acknowledged in {step}.",
        ),
        Plot(
            "depth",
            "depth",
            "depth",
            f"The most jobs in {step}, in the queues of all nodes together{some}.",
            ("depth",),
            ("depth",),
            "depth",
        ),
    ]
    return [plot for plot in found if plot.id != "trouble" or trouble]


def _of_rates(id: str, title: str, hint: str, columns: Sequence[str]) -> Plot:
    names = {"acked": "acknowledged", "nacked": "NACKs"}
    return Plot(
        id, "rates", title, hint, columns, [names.get(one, one) for one in columns], "rates"
    )


def _of_times(id: str, hint: str) -> Plot:
    columns = [f"{id}_p{percent}" for percent in PERCENTILES]
    return Plot(id, "times", id, hint, columns, [f"p{percent}" for percent in PERCENTILES], id)


def over_time(numbers: Numbers, drawn: Sequence[Plot]) -> str:
    """The part of the page with the plots."""
    if not drawn:
        return NONE
    kept = len(numbers["series"]["queues"])
    every = numbers["queues_in_all"]
    some = f" {kept} of {humanize.count(every)} queues have them." if kept < every else ""
    fine = numbers["peaks"]["windows"]
    seconds = (
        f" Around the busiest moments ({len(fine)}), rates are second by second." if fine else ""
    )
    buttons = {
        "in": "zoom in",
        "out": "zoom out",
        "earlier": "earlier",
        "later": "later",
        "busiest": "busiest moment",
        "whole": "whole period",
    }
    zooms = "".join(
        f"<button type=button data-zoom={act}>{text}</button>" for act, text in buttons.items()
    )
    return (
        "<noscript><p class=warn>The plots need JavaScript. Everything else is here without it."
        "</p></noscript><p class=hint>Drag across a plot to zoom, or use the buttons, or the keys"
        " +, -, 0, &lt; and &gt;. Point at a plot, or use the arrow keys, to see values. To see the"
        f" plots of a single queue, choose it above, or in a table.{some}{seconds}</p>"
        f"<div class=zooms role=group aria-label='the period that the plots show'>{zooms}"
        f"<span id=period aria-live=polite></span></div>{''.join(plot.markup() for plot in drawn)}"
        "<h3>Who was busy when</h3><p class=hint>Deliveries of the busiest queues: the stronger the"
        f" colour, the more.</p><figure id=plot-busy>{_EMPTY}"
    )


def data(numbers: Numbers, drawn: Sequence[Plot]) -> dict[str, Any]:
    """The data of the plots. Times are numbers of steps since ``origin`` (ms)."""
    step, origin = numbers["step"], numbers["first"] // DAY * DAY - DAY

    def placed(rows: Sequence[Sequence[Any]], step: int = step) -> list[list[Any]]:
        return [[(at - origin) // step, *values] for at, *values in rows]

    peaks: Mapping[str, Any] = numbers["peaks"]
    series: Mapping[str, Any] = numbers["series"]
    queues = series["queues"].items()
    return {
        "origin": origin,
        "first": numbers["first"],
        "last": numbers["last"],
        "step": step,
        "plots": [plot.data() for plot in drawn],
        **{name: placed(numbers[name]) for name in ("rates", "wait", "processing")},
        "depth": [[queue, placed(rows)] for queue, rows in numbers["depth"].items()],
        "peaks": {**peaks, "rates": placed(peaks["rates"], peaks["step"])},
        "series": {
            **series,
            "queues": [[queue, placed(rows, series["step"])] for queue, rows in queues],
        },
    }


def deliveries(numbers: Numbers) -> str:
    """How many jobs were delivered how often, in a sentence."""
    words = {"0": "never delivered", "1": "once", "2": "twice"}
    parts = [
        f"{words.get(times, times + ' times')}: {humanize.count(jobs)}"
        for times, jobs in numbers["deliveries"]
    ]
    return f"<p class=hint>Jobs by number of deliveries: {', '.join(parts)}.</p>" if parts else ""
