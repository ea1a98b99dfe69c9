"""Renders the report as one HTML page that loads nothing from elsewhere."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from disque_trio.spark.audit.rules import (
    AFTER_ACK,
    EXPIRED,
    EXPIRED_UNACKED,
    HELD,
    LOG_END,
    LOG_GAP,
    LOG_MISSING,
    NEVER_ACKED,
    NEVER_DELIVERED,
    NOT_REQUEUED,
    UNSEEN_ACK,
    WITH_WORKER,
)
from disque_trio.spark.report.plots import (
    Line,
    bar_plot,
    duration,
    heat_map,
    line_plot,
    moment,
    number,
    shortened,
)

Numbers = Mapping[str, Any]  # what report.make_report gives

_MINUTE = 60_000
_HOUR = 3_600_000
_UNITS = {"settled": "s", "poison": "NACKs", "retries": "RETRY", "skew": "ms", "tolerance": "ms"}
_MEANING = {
    "never-delivered": "The producer was told that the job is added, and nobody ever got it.",
    "not-requeued": "A worker got it and did not acknowledge it, and no node put it into a queue"
    " again when its RETRY was over.",
    "never-acknowledged": "Workers got it, again and again or long ago, and none acknowledged it.",
    "lost-with-worker": "It was to be delivered at most once (RETRY 0), and who got it did not"
    " acknowledge it, or not to a node that has it.",
    "expired-unacknowledged": "Somebody got it, and the time to live was over before it was"
    " acknowledged.",
    "acknowledged-unseen": "Somebody acknowledged it, and no node says that it delivered it.",
    "delivered-after-ack": "A worker got it although it had been acknowledged.",
    "delivered-twice": "More than one delivery, for the reason that is given.",
    "expired-undelivered": "The time to live was over before anybody got it.",
    "poison": "Workers refuse it again and again.",
    "dead": "It ended as a dead letter, which has an id of its own, for the reason that is given.",
    "letter-waiting": "It is a dead letter, and nobody has taken it yet.",
    "clock-skew": "The clocks of two nodes are apart: times of the one cannot be compared with"
    " those of the other.",
}
_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;color:#222;background:#fff;margin:0 auto;max-width:800px;
padding:24px 20px 60px}
h1{font-size:24px;margin:0 0 2px}h2{font-size:17px;margin:34px 0 6px;border-bottom:1px solid #ddd}
p.sub,p.hint{color:#666;margin:2px 0 10px;font-size:13px}p.none{color:#888}
.tiles{display:flex;flex-wrap:wrap;gap:10px;margin:16px 0}
.tile{border:1px solid #ddd;border-radius:6px;padding:8px 14px;min-width:104px}
.tile b{display:block;font-size:20px}.tile span{color:#666;font-size:12px}
.verdict{padding:10px 14px;border-radius:6px;margin:14px 0;background:#e8f4ea}
.verdict.bad{background:#fbeaea}.warn{padding:8px 14px;border-radius:6px;background:#fff4dd}
table{border-collapse:collapse;width:100%;font-size:12.5px;margin:6px 0}
th{text-align:left;color:#555;border-bottom:1px solid #bbb}
td,th{padding:3px 8px 3px 0;vertical-align:top}td{border-bottom:1px solid #eee}
td:first-child{overflow-wrap:anywhere}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
code{font-size:11.5px}td.t{white-space:nowrap}td.w{overflow-wrap:anywhere}
svg{width:100%;height:auto;display:block}svg text{font-size:11px;fill:#555}
.rule{stroke:#e3e3e3}.legend{font-size:12.5px;margin:2px 0 0 64px}
.legend span{margin-right:16px}.legend i{display:inline-block;width:12px;height:3px;
margin:0 6px 4px 0}summary{cursor:pointer;margin:8px 0}
"""


def page(numbers: Numbers) -> str:
    """The page."""
    title = "Disque audit"
    if numbers["events"]:
        title += f", {_period(numbers['first'], numbers['last'])} UTC"
    step = "the same " + _duration_word(numbers["step"])
    count = len(numbers["queues"])
    some = _of(len(numbers["depth"]), count)
    most = _of(len(numbers["hours"]["queues"]), count)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(title)}</h1>",
        _summary(numbers),
        _findings(numbers),
        "<h2>Waiting</h2><p class=hint>From the first queue to the first worker, of the jobs that"
        f" were first delivered in {step}. Half of them waited less than p50, one of a hundred"
        " longer than p99. The axis is logarithmic.</p>",
        _percentiles(numbers, "wait", "wait over time"),
        f"<h2>Processing</h2><p class=hint>From the delivery to the acknowledge, of the jobs that"
        f" were acknowledged in {step}. The axis is logarithmic.</p>",
        _percentiles(numbers, "processing", "processing over time"),
        f"<h2>Depth</h2><p class=hint>Jobs in the queues of all nodes together{some}.</p>",
        _depth(numbers),
        "<h2>Deliveries per job</h2><p class=hint>How many jobs were delivered how often. The bars"
        " grow with the logarithm.</p>",
        bar_plot([(_times(str(name)), count) for name, count in numbers["deliveries"]], "jobs"),
        f"<h2>Deliveries by queue and hour</h2><p class=hint>The darker the more{most}.</p>",
        _hours(numbers["hours"]),
        "<h2>Queues</h2><p class=hint>Retries and NACKs are shares of the deliveries; beside them"
        " is how many there were within a second, at most.</p>",
        _queues(numbers["queues"]),
        _nodes(numbers),
        "</html>\n",
    ]
    return "\n".join(parts)


def _summary(numbers: Numbers) -> str:
    jobs = numbers["jobs"]
    count = jobs["jobs"]
    sub = (
        f"{number(numbers['events'])} events of {len(numbers['nodes'])} nodes in"
        f" {number(numbers['segments'])} segments"
    )
    text = f"<p class=sub>{sub}. All times are UTC.</p>"
    if numbers["dropped"]:
        text += (
            f"<p class=warn>{number(numbers['dropped'])} events are missing: the logs say that"
            " they dropped them. Findings may be due to that.</p>"
        )
    if numbers["unknown"]:
        text += f"<p class=warn>{number(numbers['unknown'])} events are of unknown kinds.</p>"
    for node in numbers["missing_nodes"]:
        text += (
            f"<p class=warn>Node <code>{escape(node)}</code> is named in the logs and has no log"
            " here: what happened there is not known.</p>"
        )
    for name, lines in numbers["missing_segments"].items():
        some = f"{number(lines)} lines of segment" if lines >= 0 else "Segment"
        are = "are" if lines >= 0 else "is"
        text += (
            f"<p class=warn>{some} <code>{escape(name)}</code> {are} missing: what happened"
            " meanwhile is not known.</p>"
        )
    text += _verdicts(numbers)
    tiles = [("jobs", number(count))]
    if count:
        tiles += [
            ("delivered", number(jobs["delivered"])),
            ("acknowledged", number(jobs["acked"])),
            ("not ended", number(jobs["open"])),
            ("delivered again", number(jobs["delivered_again"])),
            ("expired", number(jobs["expired"])),
            *[(how, number(jobs[how])) for how in ("dead", "cancelled") if jobs.get(how)],
            ("wait p50 / p99", _pair(jobs, "wait")),
            ("processing p50 / p99", _pair(jobs, "processing")),
        ]
    cells = [f"<div class=tile><b>{value}</b><span>{name}</span></div>" for name, value in tiles]
    return f"{text}<div class=tiles>{''.join(cells)}</div>"


_VERDICTS = {
    NEVER_DELIVERED: "were confirmed and never delivered",
    NOT_REQUEUED: "were delivered, not acknowledged, and not queued again",
    NEVER_ACKED: "were delivered and never acknowledged",
    WITH_WORKER: "were delivered, once, as requested, and never acknowledged",
    EXPIRED: "expired before anybody got them",
    EXPIRED_UNACKED: "expired before anybody acknowledged them",
    UNSEEN_ACK: "were acknowledged without having been delivered",
    AFTER_ACK: "were delivered although they had been acknowledged",
}
_UNSURE = (LOG_GAP, LOG_END, LOG_MISSING)


def _verdicts(numbers: Numbers) -> str:
    """Whether something was lost, in plain words."""
    text = ""
    unclear = held = sure = 0
    for kind, what in _VERDICTS.items():
        reasons = numbers["reasons"][kind]
        # A file that has a job that was delivered does not say that it is queued again.
        waiting = reasons.get(HELD, 0) if kind == NEVER_DELIVERED else 0
        unsure = sum(reasons.get(why, 0) for why in _UNSURE)
        lost = sum(reasons.values()) - waiting - unsure
        held += waiting
        unclear += unsure
        sure += lost
        if lost:
            text += f"<p class='verdict bad'><b>{number(lost)} jobs {what}.</b></p>"
    if unclear:
        text += (
            f"<p class=warn><b>Of {number(unclear)} jobs the logs do not say whether they were"
            " delivered and done:</b> lines of a node that had them are missing, or not there"
            " yet.</p>"
        )
    if held:
        text += (
            f"<p class=warn>{number(held)} jobs wait for their first delivery: nodes have them in"
            " their files.</p>"
        )
    if not numbers["jobs"]["jobs"]:
        return text + "<p class=warn>The logs have no jobs.</p>"
    partial = numbers["missing_nodes"] or numbers["missing_segments"]
    if not (sure or unclear or held or partial):
        text = (
            "<p class=verdict><b>No job was lost:</b> all that were confirmed were delivered and"
            f" acknowledged, ended before, or are still young.</p>{text}"
        )
    return text


def _pair(row: Mapping[str, Any], name: str) -> str:
    """The percentiles 50 and 99 of a time."""
    low, high = row[f"{name}_p50"], row[f"{name}_p99"]
    return "-" if low is None else f"{duration(low)} / {duration(high)}"


def _reasons(numbers: Numbers, kind: str) -> str:
    """As ``3 retry, 1 nack``."""
    counts = sorted(numbers["reasons"][kind].items())
    return ", ".join(f"{number(count)} {reason}" for reason, count in counts if reason)


def _findings(numbers: Numbers) -> str:
    counts = numbers["findings"]
    text = "<h2>Findings</h2>"
    if not any(counts.values()):
        return text + "<p>None.</p>"
    rows = [
        [escape(kind), number(count), escape(_reasons(numbers, kind)), escape(_MEANING[kind])]
        for kind, count in counts.items()
        if count
    ]
    text += _table(["kind", "#count", "reasons", "what it means"], rows)
    for kind, count in counts.items():
        shown = [found for found in numbers["findings_shown"] if found["kind"] == kind]
        if not shown:
            continue
        some = f"the first {len(shown)} of {number(count)}" if count > len(shown) else number(count)
        opened = " open" if count <= 5 else ""
        text += f"<details{opened}><summary>{escape(kind)}: {some}</summary>"
        text += _found(shown) + "</details>"
    return text


def _found(shown: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            "" if found["time"] is None else moment(found["time"]),
            _name(found["queue"] or ""),
            f"<code>{escape(found['job'] or '')}</code>",
            escape(found["reason"] or ""),
            escape(found["detail"]),
            escape(", ".join(node[:8] for node in found["nodes"])),
        ]
        for found in shown
    ]
    heads = ["time", "queue", "job", "reason", "detail", "nodes"]
    cut = [[*row[:2], row[2].replace("<code></code>", ""), *row[3:]] for row in rows]
    filled = [place for place in range(len(heads)) if any(row[place] for row in cut)]
    return _table(
        [heads[place] for place in filled], [[row[place] for place in filled] for row in cut]
    )


def _percentiles(numbers: Numbers, name: str, title: str) -> str:
    points, step = numbers[name], numbers["step"]
    lines = []
    for place, share in enumerate(("p50", "p95", "p99"), 1):
        line: list[tuple[int, float | None]] = []
        for point in points:
            if line and point[0] - line[-1][0] > 3 * step:
                line.append((point[0] - step, None))
            line.append((point[0], max(point[place], 1)))
        lines.append(Line(share, line))
    return line_plot(lines, title, log=True, times=True, span=_span(numbers))


def _depth(numbers: Numbers) -> str:
    lines = []
    step = max(numbers["step"], _MINUTE)
    for queue, points in numbers["depth"].items():
        line: list[tuple[int, float | None]] = []
        for begin, depth in points:
            at = min(begin + step, numbers["last"])  # it is the depth at the end of it
            if not line:
                line.append((max(begin, numbers["first"]), 0))
            elif begin > line[-1][0]:  # it stays as it is until something happens
                line.append((begin, line[-1][1]))
            line.append((at, depth))
        if line and numbers["last"] > line[-1][0]:
            line.append((numbers["last"], line[-1][1]))
        lines.append(Line(queue or "?", line))
    return line_plot(lines, "depth over time", span=_span(numbers))


def _span(numbers: Numbers) -> tuple[int, int]:
    return numbers["first"], numbers["last"]


def _hours(hours: Mapping[str, Any]) -> str:
    cells = {(queue, at): count for queue, at, count in hours["delivered"]}
    columns = list(range(hours["first"], hours["last"] + 1, _HOUR)) if cells else []
    return heat_map(hours["queues"], columns, cells, "deliveries by queue and hour")


def _queues(queues: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for row in queues[:200]:
        deliveries = row["deliveries"] or 0
        rows.append(
            [
                _name(row["queue"]),
                number(row["jobs"]),
                _pair(row, "wait"),
                _pair(row, "processing"),
                _percentage(row["retries"], deliveries),
                _percentage(row["nacks"], deliveries),
                number(row["most_in_a_second"] or 0),
                number(row["most_depth"] or 0),
                number(row["last_depth"] or 0),
            ]
        )
    heads = ["queue", "#jobs", "#wait p50 / p99", "#processing p50 / p99"]
    heads += ["#retries", "#NACKs", "#most in a second", "#most depth", "#depth at the end"]
    if not rows:
        return "<p class=none>None.</p>"
    some = f"<p class=hint>The first {len(rows)} of {len(queues)}.</p>"
    return _table(heads, rows) + (some if len(queues) > len(rows) else "")


def _period(first: int, last: int) -> str:
    """From when to when, as short as it is clear."""
    time = "%H:%M" if last - first >= 600_000 else "%H:%M:%S"
    same = moment(first, "%F") == moment(last, "%F")
    return f"{moment(first, '%F ' + time)} to {moment(last, time if same else '%F ' + time)}"


def _name(queue: str | None) -> str:
    """The name of a queue in a table, as markup."""
    name = "?" if queue is None else queue
    short = shortened(name, 60)
    return escape(name) if name == short else f"<span title='{escape(name)}'>{escape(short)}</span>"


def _of(shown: int, all: int) -> str:
    """What is left out."""
    return f"; the {shown} busiest of {number(all)} queues" if shown < all else ""


def _times(times: str) -> str:
    """How often a job was delivered."""
    return {"0": "never", "1": "once", "2": "twice"}.get(times, f"{times} times")


def _duration_word(ms: int) -> str:
    """A step of time: second, 5 s, minute."""
    return {1000: "second", _MINUTE: "minute", _HOUR: "hour"}.get(ms, duration(ms))


def _percentage(part: int | None, whole: int) -> str:
    return f"{100 * (part or 0) / whole:.2f}%" if whole else "-"


def _nodes(numbers: Numbers) -> str:
    items = "".join(f"<li><code>{escape(node)}</code></li>" for node in numbers["nodes"])
    rules = ", ".join(
        f"{name} {value} {_UNITS.get(name, '')}".strip()
        for name, value in numbers["settings"].items()
    )
    return (
        f"<h2>Nodes</h2><ul>{items}</ul><p class=hint>Rules of the findings: {escape(rules)}.</p>"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; columns whose name begins with # hold numbers. Cells are markup."""
    classes = [" class=n" if head.startswith("#") else "" for head in heads]
    names = [head.removeprefix("#") for head in heads]
    text = "".join(
        f"<th{style}>{escape(name)}</th>" for style, name in zip(classes, names, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{style}>{cell}</td>" for style, cell in zip(classes, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{text}</tr>{body}</table>"
