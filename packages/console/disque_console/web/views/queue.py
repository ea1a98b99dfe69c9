"""One queue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from markupsafe import Markup

from disque_console.io.jobs import is_unknown
from disque_console.model.actions import JOB_OPTIONS
from disque_console.model.bindings import Row, merged
from disque_console.model.breakdown import MOST, UNNAMED, WORDS, Breakdown, added_up
from disque_console.model.policy_actions import FIELDS, escape_pattern, fields_of
from disque_console.model.policy_sentence import sentences
from disque_console.web.answers import parted
from disque_console.web.charts import (
    JOBS,
    Line,
    chart,
    range_named,
    times_chart,
)
from disque_console.web.ranges import drawn, shown_range
from disque_console.web.visit import Missing, Shown, Visit
from disque_trio.job_options import Seconds, Whole
from disque_trio.overview.history import (
    SHARES,
    TIMES,
    History,
    Range,
    quantiles,
    times_of,
    together,
)
from disque_trio.overview.names import to_bytes

MODES: Final = {Whole: "numeric", Seconds: "decimal"}
JOB_FIELDS: Final = [
    (name, MODES.get(type(option), "text"), option) for name, option in JOB_OPTIONS.items()
]
RATES: Final = tuple(Line(name, name) for name in ("added", "delivered", "acked"))
TITLES: Final = dict(zip(TIMES, ("Waiting", "Processing"), strict=True))
KEPT: Final = 15.0  # s for which a breakdown, for which nodes visit all jobs, is shown


async def view(visit: Visit) -> Shown:
    """A queue: its counts, charts, policy and actions."""
    name = visit.query("name")
    if not name:
        raise Missing("The address names no queue.")
    if visit.console.looks.at([name], visit.now):
        await visit.console.looks.wait_reported(0.15)
    table = visit.cluster.queues
    policy = visit.cluster.policies.of(name)
    row = table.row(name)
    histories = visit.console.history.histories
    if row is not None:
        histories.look(name, visit.now)
    history = histories.get(name)
    span = range_named(visit.query("range"))
    by = visit.query("by")
    own = escape_pattern(name)
    return Shown(
        {
            "queue": name,
            "row": row,
            "bindings": await _bindings(visit, name),
            "on_nodes": sorted(table.shares(name).items()),
            "policy": policy,
            "sentences": sentences(policy) if policy is not None else [],
            "own": own,
            "is_own": policy is not None and policy.name == own,
            "options": fields_of(policy),
            "job_options": JOB_FIELDS,
            "policy_fields": FIELDS,
            "lines": RATES,
            "span": shown_range(visit, history, span),
            "full": histories.full,
            "room": len(histories),
            "shares": list(SHARES),
            "recent": {name: quantiles(getattr(row, name) if row else ()) for name in TITLES},
            **await drawn(visit, span, partial(_charts, history, span, visit.now), name),
            "by": by if by in WORDS else "",
            "words": WORDS,
            "unnamed": UNNAMED,
            "breakdown": await _breakdown(visit, name, by) if by in WORDS else None,
        }
    )


@dataclass(frozen=True, slots=True)
class Durations:
    """One of the two times of jobs.

    Attributes:
        name: one of ``TIMES``.
        whole: quantiles in s, of the time that charts show. count: of how many jobs.
        chart: of the quantiles.
    """

    name: str
    title: str
    whole: Mapping[str, float | None]
    count: float
    chart: Markup


def _charts(history: History | None, span: Range, now: float) -> dict[str, Any]:
    label = f"Jobs of the queue per second in the last {span.title}"
    queued = [Line("queued", "length")]
    return {
        "throughput": chart(history, span, RATES, now, label),
        "depth": chart(history, span, queued, now, f"Queued jobs in the last {span.title}", JOBS),
        "durations": _durations(history, span, now),
    }


def _durations(history: History | None, span: Range, now: float) -> list[Durations]:
    found = []
    for name, title in TITLES.items():
        steps = [] if history is None else times_of(history.ranges[span.name], name, now)
        counts = together(steps)
        label = f"{title}: the time that half, 95 % and 99 % of the jobs took at most"
        picture = times_chart(history, span, name, now, f"{label}, in the last {span.title}")
        found.append(Durations(name, title, quantiles(counts), sum(counts), picture))
    return found


async def _breakdown(visit: Visit, queue: str, by: str) -> Breakdown:
    """Who has the jobs of the queue."""
    command = ("QTOP", to_bytes(queue), "BY", by, "COUNT", MOST)
    answers = await visit.recently(command, partial(visit.calls.every, *command), KEPT)
    older = [address for address, reply in answers if is_unknown(reply)]
    good, problems = parted(answer for answer in answers if answer[0] not in older)
    return added_up(good, older, problems)


async def _bindings(visit: Visit, name: str) -> Sequence[Row]:
    """The topics whose jobs the queue gets; none from nodes that cannot say, or may not say."""
    if not any(state.number("bindings") for state in visit.cluster.nodes.here()):
        return []
    good, _ = parted(await visit.every("BINDINGS", "QUEUE", to_bytes(name), "FULL"))
    return merged(good)
