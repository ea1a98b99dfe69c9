"""The summary of the report: what was lost, and what could be judged at all."""

from collections.abc import Iterator
from html import escape

from disque_spark.audit.gaps import NO_TIME
from disque_spark.audit.rules import (
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
    SCHEDULE_MISSED,
    UNSEEN_ACK,
    WITH_WORKER,
)
from disque_spark.report.markup import Numbers, node_code, pair, time
from disque_trio.humanize import count, counted, jobs

_VERDICTS = {
    NEVER_DELIVERED: "confirmed but never delivered",
    NOT_REQUEUED: "delivered, not acknowledged, and not queued again",
    NEVER_ACKED: "delivered but never acknowledged",
    WITH_WORKER: "delivered only once, as requested, and never acknowledged",
    EXPIRED: "never delivered before they expired",
    EXPIRED_UNACKED: "delivered but not acknowledged before they expired",
    UNSEEN_ACK: "acknowledged, but no log has their delivery",
    AFTER_ACK: "delivered after an acknowledgement",
}
_UNSURE = (LOG_GAP, LOG_END, LOG_MISSING)
# Numbers of things missing in the logs. With any of them, there may have been other jobs, or other
# outcomes.
_LACKS = (
    *("missing_nodes", "missing_segments", "gone", "silences"),
    *("dropped", "damaged", "unknown"),
)


def summary(numbers: Numbers) -> str:
    """The top of the page."""
    return "".join(_missing(numbers)) + _verdicts(numbers) + _judged(numbers) + _tiles(numbers)


def _missing(numbers: Numbers) -> Iterator[str]:
    """What is missing in the logs."""
    sub = (
        f"{counted(numbers['events'], 'event')} of {counted(len(numbers['nodes']), 'node')} in"
        f" {counted(numbers['segments'], 'segment')}"
    )
    yield f"<p class=sub>{sub}. All times are <span class=zone>UTC</span>.</p>"
    if numbers["dropped"]:
        yield (
            f"<p class=warn>{count(numbers['dropped'])} events are missing: the logs say that they"
            " were dropped. Findings may be due to that.</p>"
        )
    if numbers["unknown"]:
        yield (
            f"<p class=warn>{count(numbers['unknown'])} events are of kinds that this version does"
            " not know: audit the logs again with a newer version.</p>"
        )
    if numbers["damaged"]:
        yield (
            f"<p class=warn>{count(numbers['damaged'])} lines of the logs cannot be read. Findings"
            " may be due to that.</p>"
        )
    for node in numbers["missing_nodes"]:
        yield (
            f"<p class=warn>Node <code>{escape(node)}</code> appears in the logs, but its own log"
            " is missing: what happened there is unknown.</p>"
        )
    for name, lines in numbers["missing_segments"].items():
        some = f"{count(lines)} lines of segment" if lines >= 0 else "Segment"
        are = "are" if lines >= 0 else "is"
        yield (
            f"<p class=warn>{some} <code>{escape(name)}</code> {are} missing: what happened during"
            " that time is unknown.</p>"
        )


def _verdicts(numbers: Numbers) -> str:
    """Whether something was lost, in plain words."""
    bad: list[str] = []
    unclear = held = sure = 0
    for kind, what in _VERDICTS.items():
        reasons = numbers["reasons"][kind]
        # That a file has a job does not mean that the job was queued again after a delivery.
        waiting = reasons.get(HELD, 0) if kind == NEVER_DELIVERED else 0
        unsure = sum(reasons.get(why, 0) for why in _UNSURE)
        lost = sum(reasons.values()) - waiting - unsure
        held += waiting
        unclear += unsure
        sure += lost
        if lost:
            were = "was" if lost == 1 else "were"
            bad.append(f"{jobs(lost)} {were} {what}.")
    missed = sum(numbers["reasons"][SCHEDULE_MISSED].values())
    if missed:
        times = "once" if missed == 1 else f"{count(missed)} times"
        bad.append(f"A schedule was to add a job but did not, {times}.")
    text = ""
    if bad:
        items = "".join(f"<li>{line}</li>" for line in bad)
        text = f"<div class='verdict bad'><ul>{items}</ul></div>"
    if unclear:
        text += (
            f"<p class=warn><b>For {jobs(unclear)}, the logs do not say whether they were delivered"
            " and done:</b> lines of a node that had them are missing, or not there"
            f" yet.{_who_decides(numbers)}</p>"
        )
    if held:
        wait = (
            "waits for its first delivery: a node has it in its"
            if held == 1
            else "wait for their first delivery: nodes have them in their"
        )
        text += f"<p class=warn>{jobs(held)} {wait} files.</p>"
    if not numbers["jobs"]["jobs"]:
        return text + "<p class=warn>The logs have no jobs.</p>"
    if sure or missed or unclear or held:
        return text
    if any(numbers[name] for name in _LACKS):
        return (
            "<p class=warn><b>No loss is known, but the logs are incomplete:</b> all jobs in them"
            " were delivered and acknowledged, ended before that, or are still young. What is"
            f" missing is listed below.</p>{text}"
        )
    return (
        "<p class=verdict><b>No job was lost:</b> all confirmed jobs were delivered and"
        f" acknowledged, ended before that, or are still young.</p>{text}"
    )


def _who_decides(numbers: Numbers) -> str:
    nodes = {
        node for found in numbers["findings_shown"] for node in found.get("would_decide") or ()
    }
    if not nodes:
        return ""
    names = ", ".join(node_code(numbers, node) for node in sorted(nodes))
    return f" The logs of these nodes would decide: {names}."


def _judged(numbers: Numbers) -> str:
    """What was judged, and what was not."""
    totals, rules = numbers["jobs"], numbers["settings"]
    if not totals["jobs"]:
        return ""
    patience = rules.get("patience")
    late = f"{patience} s" if patience else f"{rules.get('retries', '?')} times its RETRY"
    with_logs = counted(len(numbers["nodes"]), "node")
    judged = (
        f"{jobs(totals['jobs'])}, by the logs of {with_logs}: whether each confirmed job was"
        f" delivered, acknowledged (within {late}), queued again after its RETRY time, and not"
        " delivered after its end; and whether each tick of a schedule added its job."
    )
    young = totals.get("young", 0)
    are = "is" if young == 1 else "are"
    unjudged = [
        f"{jobs(young)} that {are} not over and may still be done: younger than"
        f" {rules.get('settled', '?')} s at the end of the log, delayed, or within their RETRY"
        " time;"
        if young
        else "",
        *_silent(numbers),
        "ADDJOBs that were refused, or answered with the id of an existing job (UNIQUE): they leave"
        " no line in the log;",
        "ticks of schedules while all nodes are down: the first node to start logs those missed;",
        "whether workers did the right thing.",
    ]
    items = "".join(f"<li>{text}</li>" for text in unjudged if text)
    return (
        f"<div class=judged><p><b>Judged:</b> {judged}</p><p><b>Not judged:</b></p>"
        f"<ul>{items}</ul></div>"
    )


def _silent(numbers: Numbers) -> Iterator[str]:
    """What is not judged because the logs lack it."""
    if numbers["missing_nodes"]:
        yield (
            f"what happened on {counted(len(numbers['missing_nodes']), 'node')} with missing logs;"
        )
    for node in numbers["gone"]:
        yield (
            f"what happened on node {node_code(numbers, node)}, which was removed, and whose log is"
            " missing;"
        )
    if numbers["dropped"] or numbers["missing_segments"] or numbers["damaged"]:
        yield "what happened where lines are missing: jobs that were added there are unknown;"
    if numbers["unknown"]:
        yield f"{count(numbers['unknown'])} events of kinds that this version does not know;"
    for node, one in sorted(numbers["silences"].items()):
        when = []
        if one["since"] != NO_TIME:
            when.append(f"before {time(one['since'])}, where its log begins")
        if one["gaps"]:
            gaps = "a gap" if one["gaps"] == 1 else f"{count(one['gaps'])} gaps"
            when.append(
                f"between {time(one['first'])} and {time(one['last'])}, where its log has {gaps}"
            )
        if one["until"] != NO_TIME:
            when.append(f"after {time(one['until'])}, where its log ends")
        yield f"what node {node_code(numbers, node)} did {', and '.join(when)};"


def _tiles(numbers: Numbers) -> str:
    totals = numbers["jobs"]
    tiles = [("jobs", count(totals["jobs"]))]
    if totals["jobs"]:
        tiles += [
            ("delivered", count(totals["delivered"])),
            ("acknowledged", count(totals["acked"])),
            ("not ended", count(totals["open"])),
            ("delivered again", count(totals["delivered_again"])),
            ("expired", count(totals["expired"])),
            *[(how, count(totals[how])) for how in ("dead", "cancelled") if totals.get(how)],
            ("wait p50 / p99", pair(totals, "wait")),
            ("processing p50 / p99", pair(totals, "processing")),
        ]
        found = numbers.get("finding_jobs", {}).get("", 0)
        tiles.append(("jobs with findings", count(found)))
    cells = [f"<div class=tile><b>{value}</b><span>{name}</span></div>" for name, value in tiles]
    return f"<div class=tiles>{''.join(cells)}</div>"
