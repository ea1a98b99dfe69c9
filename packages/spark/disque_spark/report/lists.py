"""The lists of the report: queues, the worst jobs, workers, schedules, nodes, and changes."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from disque_spark.audit.clients import DID, SCHEDULE
from disque_spark.report.compare import Change, of_queue, slowed
from disque_spark.report.compare import findings as changed_findings
from disque_spark.report.compare import totals as changed_totals
from disque_spark.report.found import job
from disque_spark.report.markup import (
    NONE,
    SHORT,
    Numbers,
    name,
    pair,
    percentage,
    queue_name,
    table,
    time,
)
from disque_spark.report.remarkable import remarkable
from disque_trio import humanize
from disque_trio.eventlog.schema import ACKED, ADDED, DELIVERED, NACKED, WORKING

_MOST_CLIENTS = 20
_MOST_QUEUES = 500  # queues in the page; the JSON has more
_UNITS = {"poison": "NACKs", "retries": "RETRY", "skew": "ms", "tolerance": "ms"}
_UNITS |= {"settled": "s", "patience": "s"}
_WORST = {
    "deliveries": "were delivered most often",
    "nacks_said": "were handed back most often",
    "wait_ms": "waited longest",
    "processing_ms": "were processed longest",
}
_GAUGES = {"delivered": "delivered", "acked": "ACKs", "retry": "retries", "nack": "NACKs"}
_GAUGES |= {"expired": "expired", "exported": "given to others"}


def queues(numbers: Numbers) -> str:
    """A table with a row for each queue."""
    known: Sequence[Mapping[str, Any]] = numbers["queues"]
    if not known:
        return NONE
    names = set(remarkable(known, _MOST_QUEUES))
    shown = [row for row in known if row["queue"] in names]
    rows = []
    for row in shown:
        deliveries = row["deliveries"] or 0
        rows.append(
            [
                queue_name(numbers, row["queue"]),
                humanize.count(row["jobs"]) + _grown(of_queue(numbers, row, "jobs")),
                pair(row, "wait") + _grown(of_queue(numbers, row, "wait_p99")),
                pair(row, "processing") + _grown(of_queue(numbers, row, "processing_p99")),
                percentage(row["retries"], deliveries),
                percentage(row["nacks"], deliveries),
                humanize.count(row["most_in_a_second"] or 0),
                humanize.count(row["most_depth"] or 0),
                humanize.count(row["last_depth"] or 0),
                humanize.count(row.get("found") or 0),
            ]
        )
    heads = ["queue", "#jobs", "#wait p50 / p99", "#processing p50 / p99", "#retries", "#NACKs"]
    heads += ["#most in a second", "#most depth", "#depth at the end", "#jobs with findings"]
    every = numbers.get("queues_in_all", len(rows))
    more = (
        f"<p class=hint>{humanize.count(every - len(rows))} of {humanize.count(every)} queues are"
        " not shown: they are not among the busiest, deepest, slowest or most troubled. The filter"
        " finds only what is on this page; the JSON has more.</p>"
    )
    return table(heads, rows) + (more if every > len(rows) else "")


def worst(numbers: Numbers) -> str:
    """The jobs that stand out."""
    text = ""
    for order, title in _WORST.items():
        found = numbers.get("worst", {}).get(order, ())
        rows = [
            [
                job(numbers, row["id"]),
                queue_name(numbers, row["queue"]),
                humanize.count(row["deliveries"]),
                humanize.count(row["nacks_said"]),
                *(
                    "-" if row[took] is None else humanize.duration(row[took] / 1000)
                    for took in ("wait_ms", "processing_ms")
                ),
                escape(row["ended"] or "not ended"),
            ]
            for row in found
        ]
        heads = ["job", "queue", "#deliveries", "#NACKs", "#wait", "#processing", "end"]
        if rows:
            text += f"<h3>Jobs that {title}</h3>{table(heads, rows)}"
    return text or NONE


def clients(numbers: Numbers) -> str:
    """The clients that handed back the most jobs, or left the most undone."""
    known = [
        (client, dict(zip(DID, counts, strict=False)))
        for client, counts in numbers.get("clients", {}).items()
        if not client.startswith(SCHEDULE)
    ]
    workers = [(client, did) for client, did in known if did[DELIVERED] or did[ACKED]]
    workers.sort(key=lambda one: (-one[1][NACKED], -_undone(one[1]), -one[1][DELIVERED], one[0]))
    rows = [
        [
            name(client),
            humanize.count(did[DELIVERED]),
            humanize.count(did[ACKED]),
            humanize.count(did[NACKED]),
            percentage(did[NACKED], did[DELIVERED]),
            humanize.count(did[WORKING]),
            humanize.count(_undone(did)),
        ]
        for client, did in workers[:_MOST_CLIENTS]
    ]
    if not rows:
        return NONE
    heads = ["client", "#deliveries", "#ACKs", "#NACKs", "#share", "#WORKING", "#neither"]
    more = len(workers) - len(rows)
    text = table(heads, rows)
    return text + (f"<p class=hint>And {humanize.count(more)} more.</p>" if more > 0 else "")


def _undone(did: Mapping[str, int]) -> int:
    """Deliveries that the client itself neither acknowledged nor handed back."""
    return max(did[DELIVERED] - did[ACKED] - did[NACKED], 0)


def schedules(numbers: Numbers) -> str:
    """The jobs that CRON has added."""
    rows = []
    for client, (*counts, first, last) in sorted(numbers.get("clients", {}).items()):
        if client.startswith(SCHEDULE):
            added = dict(zip(DID, counts, strict=True))[ADDED]
            every = humanize.duration((last - first) / 1000 / (added - 1)) if added > 1 else "-"
            schedule = name(client.removeprefix(SCHEDULE))
            times = [time(first), time(last), every]
            rows.append([schedule, humanize.count(added), *times])
    if not rows:
        return ""
    return (
        "<h3>Schedules</h3><p class=hint>Jobs added by schedules (CRON). They are judged like all"
        " jobs. A tick that added no job leaves no line in the log, so compare the number of jobs"
        " with the one you expect.</p>"
        + table(["schedule", "#jobs added", "first", "last", "#on average every"], rows)
    )


def nodes(numbers: Numbers) -> str:
    """What happened on each node, and the rules of the findings."""
    rows = [
        [
            f"<code title='{escape(row['node'])}'>{escape(row['node'][:SHORT])}</code>",
            escape(numbers.get("addresses", {}).get(row["node"], "")),
            *[humanize.count(row.get(gauge, 0)) for gauge in _GAUGES],
            "no log here" if row["node"] not in numbers["nodes"] else "",
        ]
        for row in numbers.get("by_node", ())
    ]
    heads = ["node", "address", *[f"#{title}" for title in _GAUGES.values()], ""]
    rules = ", ".join(
        f"{name} {value} {_UNITS.get(name, '')}".strip()
        for name, value in numbers["settings"].items()
    )
    return table(heads, rows, hits=False) + (
        f"<p class=hint>Rules of the findings: {escape(rules)}.</p>"
    )


def comparison(numbers: Numbers) -> str:
    """The changes since an earlier report."""
    before = numbers.get("before")
    if before is None:
        return ""
    text = (
        "<h2 id=before>Compared with before</h2><p class=hint>The earlier report covers"
        f" {time(before['first'])} to {time(before['last'])}.</p>"
    )
    for title, changes in (
        ("jobs", changed_totals(numbers)),
        ("findings", changed_findings(numbers)),
    ):
        rows = [
            [escape(change.name.replace("_", " ")), *_cells(change)]
            for change in changes
            if change.before is not None or change.now is not None
        ]
        if rows:
            text += table([title, "#before", "#now", "#difference"], rows, hits=False)
    slower = [
        [queue_name(numbers, queue), change.name.replace("_", " "), *_cells(change)]
        for queue, change in slowed(numbers)
    ]
    if slower:
        text += "<h3>Queues that have become slower</h3>"
        text += table(["queue", "", "#before", "#now", "#difference"], slower)
    new = [row["queue"] for row in numbers["queues"] if str(row["queue"]) not in before["queues"]]
    if new:
        some = ", ".join(f"<bdi>{name(queue)}</bdi>" for queue in new[:20])
        more = f" and {humanize.count(len(new) - 20)} more" if len(new) > 20 else ""
        text += f"<p class=hint>Queues that the earlier report did not have: {some}{more}.</p>"
    return text


def _cells(change: Change) -> list[str]:
    return [_value(change, change.before), _value(change, change.now), _difference(change)]


def _value(change: Change, value: float | None) -> str:
    if value is None:
        return "-"
    return humanize.duration(value / 1000) if change.is_time else humanize.count(value)


def _difference(change: Change) -> str:
    """A difference, such as +3 (+50%)."""
    difference = change.difference
    if difference is None:
        return "-"
    if not difference:
        return "0"
    sign = "+" if difference > 0 else "\u2212"
    share = f" ({sign}{abs(difference) / change.before:.0%})" if change.before else ""
    text = f"{sign}{_value(change, abs(difference))}{share}"
    if not change.is_bad:
        return text
    return f"<span class={'up' if difference > 0 else 'down'}>{text}</span>"


def _grown(change: Change | None) -> str:
    """The change of a number of a queue, if there is any."""
    if change is None or not change.difference:
        return ""
    return f"<br>{_difference(change)}"
