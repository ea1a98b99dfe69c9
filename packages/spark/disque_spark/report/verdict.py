"""The summary of the report: what was lost, and what could be judged at all."""

from collections.abc import Iterator, Mapping
from typing import Any

from disque_spark.audit.rules import (
    AFTER_ACK,
    EXPIRED,
    EXPIRED_UNACKED,
    HELD,
    NEVER_ACKED,
    NEVER_DELIVERED,
    NOT_REQUEUED,
    ONCE_TWICE,
    SCHEDULE_MISSED,
    SERIOUS,
    UNSEEN_ACK,
    WITH_WORKER,
)
from disque_spark.report.completeness import lacks_box, nodes_seen, nothing_lost
from disque_spark.report.markup import Numbers, name, node_code, pair, time
from disque_spark.report.whole import UNSURE, bar, headline
from disque_trio.humanize import count, counted, duration, jobs

# What is said of jobs with findings, if the logs leave no doubt.
_VERDICTS = {
    ONCE_TWICE: "delivered more than once, although that was to happen at most once",
    NEVER_DELIVERED: "confirmed but never delivered",
    NOT_REQUEUED: "delivered, not acknowledged, and not queued again",
    NEVER_ACKED: "delivered but never acknowledged",
    WITH_WORKER: "delivered only once, as requested, and never acknowledged",
    EXPIRED: "never delivered before {they} expired",
    EXPIRED_UNACKED: "delivered but not acknowledged before {they} expired",
    UNSEEN_ACK: "acknowledged, but no log has {their} delivery",
    AFTER_ACK: "delivered after an acknowledgement",
}


def summary(numbers: Numbers) -> str:
    """The top of the page: the whole, then what was lost, then what the logs lack."""
    whole = numbers["whole"]
    logs = f"{nodes_seen(numbers)} in {counted(numbers['segments'], 'segment')}"
    return (
        f"<p class=sub>{counted(numbers['events'], 'event')} of {logs}. All times are"
        " <span class=zone>UTC</span>.</p>"
        f"<p class=headline>{headline(whole)}</p>{bar(whole)}"
        + _verdicts(numbers)
        + "".join(_unfinished(whole))
        + lacks_box(numbers)
        + _judged(numbers)
        + _tiles(numbers)
    )


def _are(number: int, noun: str) -> str:
    """A number of things with its verb: 1 event is, 2 events are."""
    return f"{counted(number, noun)} {'is' if number == 1 else 'are'}"


def _verdicts(numbers: Numbers) -> str:
    """Whether something was lost, in plain words; what does the most harm comes first."""
    bad: list[str] = []
    unsure = 0
    for kind in (kind for kind in SERIOUS if kind in _VERDICTS):
        reasons = numbers["reasons"].get(kind, {})
        doubtful = sum(reasons.get(why, 0) for why in UNSURE)
        # That a file has a job does not mean that the job was queued again after a delivery.
        waiting = reasons.get(HELD, 0) if kind == NEVER_DELIVERED else 0
        unsure += doubtful
        if lost := sum(reasons.values()) - doubtful - waiting:
            one = lost == 1
            words = {"they": "it" if one else "they", "their": "its" if one else "their"}
            bad.append(
                f"{jobs(lost)} {'was' if one else 'were'} {_VERDICTS[kind].format(**words)}."
            )
    missed = sum(numbers["reasons"].get(SCHEDULE_MISSED, {}).values())
    if missed:
        times = "once" if missed == 1 else f"{count(missed)} times"
        bad.append(f"A schedule was to add a job but did not, {times}.")
    text = ""
    if bad:
        items = "".join(f"<li>{line}</li>" for line in bad)
        text = f"<div class='verdict bad'><ul>{items}</ul></div>"
    if unsure:
        perhaps = numbers["whole"]["unclear"]
        what = [f"{_are(perhaps, 'job')} perhaps lost"] if perhaps else []
        if unsure > perhaps:
            what.append(f"{counted(unsure - perhaps, 'finding')} may be wrong")
        text += (
            f"<p class=warn><b>{', and '.join(what)}:</b> the logs do not say what became of these"
            " jobs. Lines of a node that may have had them are missing, or not there"
            f" yet.{_who_decides(numbers)}</p>"
        )
    if not numbers["jobs"]["jobs"] or bad or unsure:
        return text
    return nothing_lost(numbers)


def _unfinished(whole: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about dead letters, and about jobs that wait."""
    failed, letters, waiting = (whole.get(name, 0) for name in ("failed", "letters", "waiting"))
    parts = [f"<b>{jobs(failed)} failed for good</b>"] if failed else []
    if letters:
        wait = "waits" if letters == 1 else "wait"
        parts.append(f"{counted(letters, 'dead letter')} {wait}{_oldest(whole, 'letters')}")
    if parts:
        yield f"<p class=note>{'; '.join(parts)}.</p>"
    if waiting:
        wait = "waits" if waiting == 1 else "wait"
        oldest = _oldest(whole, "waiting")
        yield f"<p class=note><b>{jobs(waiting)} {wait} in a queue</b>{oldest}.</p>"


def _oldest(whole: Mapping[str, Any], group: str) -> str:
    """Since when the oldest job of a group waits, and where."""
    oldest = whole["oldest"].get(group)
    if oldest is None:
        return ""
    who = "" if whole[group] == 1 else " the oldest"
    age, since = duration(oldest["age"] / 1000), time(oldest["since"])
    return f",{who} for {age} in {name(oldest['queue'])} (since {since})"


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
    judged = (
        f"{jobs(totals['jobs'])}, by the logs of {nodes_seen(numbers)}: whether each confirmed job"
        f" was delivered, acknowledged (within {late}), queued again after its RETRY time, and not"
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


def _tiles(numbers: Numbers) -> str:
    totals = numbers["jobs"]
    if not totals["jobs"]:
        return ""
    tiles = {
        "jobs delivered": count(totals["delivered"]),
        "delivered again": count(totals["delivered_again"]),
        "jobs with findings": count(numbers["finding_jobs"].get("", 0)),
        "wait p50 / p99": pair(totals, "wait"),
        "processing p50 / p99": pair(totals, "processing"),
    }
    cells = [
        f"<div class=tile><b>{value}</b><span>{what}</span></div>" for what, value in tiles.items()
    ]
    return f"<div class=tiles>{''.join(cells)}</div>"
