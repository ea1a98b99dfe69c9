"""What a reader of the report has to know first: what was lost, and what was judged at all."""

from collections.abc import Iterator
from html import escape

from disque_trio.spark.audit.gaps import NO_TIME
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
    SCHEDULE_MISSED,
    UNSEEN_ACK,
    WITH_WORKER,
)
from disque_trio.spark.report.markup import Numbers, counted, jobs, node_code, pair, time
from disque_trio.spark.report.plots import number

_VERDICTS = {
    NEVER_DELIVERED: "confirmed and never delivered",
    NOT_REQUEUED: "delivered, not acknowledged, and not queued again",
    NEVER_ACKED: "delivered and never acknowledged",
    WITH_WORKER: "delivered, once, as requested, and never acknowledged",
    EXPIRED: "over before anybody got them: they expired",
    EXPIRED_UNACKED: "over before anybody acknowledged them: they expired",
    UNSEEN_ACK: "acknowledged, and no log has their delivery",
    AFTER_ACK: "delivered after an acknowledgement",
}
_UNSURE = (LOG_GAP, LOG_END, LOG_MISSING)
# What the logs lack: with any of it nobody knows whether there were more jobs, or what became of
# some.
_LACKS = (
    *("missing_nodes", "missing_segments", "gone", "silences"),
    *("dropped", "damaged", "unknown"),
)


def summary(numbers: Numbers) -> str:
    """All that stands above the rest."""
    return "".join(_missing(numbers)) + _verdicts(numbers) + _judged(numbers) + _tiles(numbers)


def _missing(numbers: Numbers) -> Iterator[str]:
    """What the logs lack."""
    sub = (
        f"{counted(numbers['events'], 'event')} of {counted(len(numbers['nodes']), 'node')} in"
        f" {counted(numbers['segments'], 'segment')}"
    )
    yield f"<p class=sub>{sub}. All times are <span class=zone>UTC</span>.</p>"
    if numbers["dropped"]:
        yield (
            f"<p class=warn>{number(numbers['dropped'])} events are missing: the logs say that"
            " they dropped them. Findings may be due to that.</p>"
        )
    if numbers["unknown"]:
        yield (
            f"<p class=warn>{number(numbers['unknown'])} events are of kinds that this version does"
            " not know: a newer one has to audit the logs anew.</p>"
        )
    if numbers["damaged"]:
        yield (
            f"<p class=warn>{number(numbers['damaged'])} lines of the logs cannot be read. Findings"
            " may be due to that.</p>"
        )
    for node in numbers["missing_nodes"]:
        yield (
            f"<p class=warn>Node <code>{escape(node)}</code> is named in the logs and has no log"
            " here: what happened there is not known.</p>"
        )
    for name, lines in numbers["missing_segments"].items():
        some = f"{number(lines)} lines of segment" if lines >= 0 else "Segment"
        are = "are" if lines >= 0 else "is"
        yield (
            f"<p class=warn>{some} <code>{escape(name)}</code> {are} missing: what happened"
            " meanwhile is not known.</p>"
        )


def _verdicts(numbers: Numbers) -> str:
    """Whether something was lost, in plain words."""
    bad: list[str] = []
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
            were = "was" if lost == 1 else "were"
            bad.append(f"{jobs(lost)} {were} {what}.")
    missed = sum(numbers["reasons"][SCHEDULE_MISSED].values())
    if missed:
        times = "once" if missed == 1 else f"{number(missed)} times"
        bad.append(f"A schedule was to add a job and did not, {times}.")
    text = ""
    if bad:
        items = "".join(f"<li>{line}</li>" for line in bad)
        text = f"<div class='verdict bad'><ul>{items}</ul></div>"
    if unclear:
        text += (
            f"<p class=warn><b>Of {jobs(unclear)} the logs do not say whether they were"
            " delivered and done:</b> lines of a node that had them are missing, or not there"
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
            "<p class=warn><b>No loss is known, and the logs do not say all:</b> the jobs that they"
            " have were delivered and acknowledged, ended before, or are still young. What is"
            f" missing is below.</p>{text}"
        )
    return (
        "<p class=verdict><b>No job was lost:</b> all that were confirmed were delivered and"
        f" acknowledged, ended before, or are still young.</p>{text}"
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
    """What the findings are about, and what they are not about."""
    totals, rules = numbers["jobs"], numbers["settings"]
    if not totals["jobs"]:
        return ""
    patience = rules.get("patience")
    late = f"{patience} s" if patience else f"{rules.get('retries', '?')} times its RETRY"
    with_logs = counted(len(numbers["nodes"]), "node")
    judged = (
        f"{jobs(totals['jobs'])}, by the logs of {with_logs}: whether each one that was confirmed"
        f" was delivered, acknowledged (after {late} at the latest), queued again when its RETRY"
        " was over, and not delivered after its end; and whether each tick of a schedule added its"
        " job."
    )
    young = totals.get("young", 0)
    are = "is" if young == 1 else "are"
    unjudged = [
        f"{jobs(young)} that {are} not over and may be done yet: too young when the log ends"
        f" (by less than {rules.get('settled', '?')} s), delayed, or within the time that"
        " their RETRY gives them;"
        if young
        else "",
        *_silent(numbers),
        "ADDJOBs that were refused or answered with the id of a job that was there (UNIQUE): they"
        " leave no line;",
        "ticks of schedules since all nodes are down: the first one that starts says which were"
        " missed;",
        "whether what workers did was right.",
    ]
    items = "".join(f"<li>{text}</li>" for text in unjudged if text)
    return (
        f"<div class=judged><p><b>Judged:</b> {judged}</p><p><b>Not judged:</b></p>"
        f"<ul>{items}</ul></div>"
    )


def _silent(numbers: Numbers) -> Iterator[str]:
    """What is not judged since the logs do not say it."""
    if numbers["missing_nodes"]:
        yield (
            f"what happened on {len(numbers['missing_nodes'])} of the nodes, whose logs are not"
            " here;"
        )
    for node in numbers["gone"]:
        yield (
            f"what happened on node {node_code(numbers, node)}, which was taken out and has no log"
            " here;"
        )
    if numbers["dropped"] or numbers["missing_segments"] or numbers["damaged"]:
        yield "what happened where logs lack lines: jobs that were added there are not known;"
    if numbers["unknown"]:
        yield f"{number(numbers['unknown'])} events of kinds that this version does not know;"
    for node, one in sorted(numbers["silences"].items()):
        when = []
        if one["since"] != NO_TIME:
            when.append(f"before {time(one['since'])}, where its log begins")
        if one["gaps"]:
            gaps = "a gap" if one["gaps"] == 1 else f"{number(one['gaps'])} gaps"
            when.append(
                f"between {time(one['first'])} and {time(one['last'])}, where its log has {gaps}"
            )
        if one["until"] != NO_TIME:
            when.append(f"after {time(one['until'])}, where its log ends")
        yield f"what node {node_code(numbers, node)} did {', and '.join(when)};"


def _tiles(numbers: Numbers) -> str:
    totals = numbers["jobs"]
    tiles = [("jobs", number(totals["jobs"]))]
    if totals["jobs"]:
        tiles += [
            ("delivered", number(totals["delivered"])),
            ("acknowledged", number(totals["acked"])),
            ("not ended", number(totals["open"])),
            ("delivered again", number(totals["delivered_again"])),
            ("expired", number(totals["expired"])),
            *[(how, number(totals[how])) for how in ("dead", "cancelled") if totals.get(how)],
            ("wait p50 / p99", pair(totals, "wait")),
            ("processing p50 / p99", pair(totals, "processing")),
        ]
        found = numbers.get("finding_jobs", {}).get("", 0)
        tiles.append(("jobs with findings", number(found)))
    cells = [f"<div class=tile><b>{value}</b><span>{name}</span></div>" for name, value in tiles]
    return f"<div class=tiles>{''.join(cells)}</div>"
