"""The findings of an audit, and the histories of their jobs, as HTML."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from disque_spark.audit.rules import KINDS, SERIOUS
from disque_spark.report.markup import Numbers, node_name, queue_name, table, time
from disque_spark.report.whole import UNSURE
from disque_trio import humanize

_SEEN = 3  # findings of each kind to be seen at once
_LONGEST_DETAIL = 500  # characters
_LONGEST_ID = 64  # characters of a job's id; Disque's have 40
_MOST_STEPS = 10_000  # steps of all histories in the page
_MEANING = {
    "once-delivered-twice": "It was to be delivered at most once (RETRY 0), but was delivered"
    " again.",
    "never-delivered": "The producer was told that the job was added, but nobody ever got it.",
    "not-requeued": "A worker got it but did not acknowledge it, and no node queued it again after"
    " its RETRY time.",
    "never-acknowledged": "Workers got it, repeatedly or long ago, but none acknowledged it.",
    "lost-with-worker": "It was to be delivered at most once (RETRY 0), and the worker that got it"
    " did not acknowledge it, or not to a node that has it.",
    "expired-unacknowledged": "A worker got it, but it expired before it was acknowledged.",
    "acknowledged-unseen": "Somebody acknowledged it, but no log has its delivery.",
    "delivered-after-ack": "A worker got it although it had been acknowledged.",
    "delivered-twice": "It was delivered more than once, for the reason given.",
    "expired-undelivered": "It expired before anybody got it.",
    "poison": "Workers keep handing it back.",
    "dead": "It became a dead letter, which has an id of its own, for the reason given.",
    "waiting": "It has been in a queue for longer than it may.",
    "letter-waiting": "It is a dead letter that nobody has taken yet.",
    "schedule-missed": "A schedule was to add a job at this time, but no node did.",
    "schedule-doubled": "Two nodes added a job for the same tick of a schedule.",
    "clock-skew": "The clocks of two nodes are apart: their times cannot be compared.",
}


def findings(numbers: Numbers) -> str:
    """The number of findings of each kind, and the first of them: those that do the most harm
    first, the others together behind a click."""
    kinds = [kind for kind in KINDS if numbers["findings"].get(kind)]
    text = "<h2 id=findings>Findings</h2>"
    if not kinds:
        return text + "<p>None.</p>"
    rows = [
        [
            f"<a href='#kind-{kind}'>{kind}</a>",
            humanize.count(numbers["findings"][kind]),
            escape(_reasons(numbers, kind)),
            escape(_MEANING.get(kind, "")),
        ]
        for kind in kinds
    ]
    text += table(["kind", "#findings", "=reasons", "=what it means"], rows, hits=False)
    text += "<p class=hint>A job may have several findings.</p>"
    text += "".join(_section(numbers, kind) for kind in kinds if kind in SERIOUS)
    others = [kind for kind in kinds if kind not in SERIOUS]
    if others:
        names = ", ".join(f"{kind} {humanize.count(numbers['findings'][kind])}" for kind in others)
        sections = "".join(_section(numbers, kind) for kind in others)
        text += f"<details class=more><summary>Others: {names}</summary>{sections}</details>"
    return text


def _section(numbers: Numbers, kind: str) -> str:
    """The first findings of a kind: some to be seen at once, the others behind a click."""
    count = numbers["findings"][kind]
    shown = [found for found in numbers["findings_shown"] if found["kind"] == kind]
    reasons = _reasons(numbers, kind)
    title = humanize.count(count) + (f": {escape(reasons)}" if reasons else "")
    text = f"<h3 id=kind-{kind}><code>{kind}</code> <span>{title}</span></h3>"
    # Certain ones first, since of the others the logs do not say enough.
    shown.sort(key=lambda found: found["reason"] in UNSURE)
    first, rest = shown[:_SEEN], shown[_SEEN:]
    text += _shown(numbers, first)
    if rest:
        of = f" of {humanize.count(count - len(first))}" if count > len(shown) else ""
        text += f"<details class=more><summary>{len(rest)}{of} more</summary>"
        text += _shown(numbers, rest) + "</details>"
    return text


def job(numbers: Numbers, id: str | None) -> str:
    """The id of a job; the page's script adds its history, if there is one."""
    if not id:
        return ""
    known = " data-job" if id in numbers["lives"] and len(id) <= _LONGEST_ID else ""
    return f"<code{known}>{escape(humanize.shortened(id, _LONGEST_ID))}</code>"


def lives(numbers: Numbers) -> dict[str, Any]:
    """The histories for the page's script, bounded in size: for each job its start, its number of
    steps, and its first and last steps: ms since the start, index of the node, what happened."""
    known = {id: life for id, life in numbers["lives"].items() if len(id) <= _LONGEST_ID}
    most = max((len(life["steps"]) for life in known.values()), default=0)
    while most > 2 and sum(min(len(life["steps"]), most) for life in known.values()) > _MOST_STEPS:
        most -= 2
    told = {}
    for id, life in known.items():
        steps = life["steps"]
        if len(steps) > most:
            steps = [*steps[: most // 2], *steps[-(most // 2) :]]
        told[id] = [life["start"], life["count"], steps]
    return told


def _nodes(numbers: Numbers, nodes: Sequence[str]) -> str:
    """The short names of nodes; their full ids are in the list of nodes."""
    return escape(", ".join(node_name(numbers, node) for node in nodes))


def _reasons(numbers: Numbers, kind: str) -> str:
    """The reasons of a kind, such as ``50 certain, 25 log-gap``, or ``3 retry, 1 nack``."""
    counts = sorted(numbers["reasons"].get(kind, {}).items())
    named = [f"{humanize.count(count)} {reason}" for reason, count in counts if reason]
    for reason, count in counts:
        if not reason and (kind in SERIOUS or named):
            named.insert(0, f"{humanize.count(count)} {'certain' if kind in SERIOUS else 'other'}")
    return ", ".join(named)


def _shown(numbers: Numbers, shown: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            job(numbers, found["job"]),
            time(found["time"]),
            queue_name(numbers, found["queue"]) if found["queue"] else "",
            escape(found["reason"] or ("certain" if found["kind"] in SERIOUS else "")),
            escape(humanize.shortened(found["detail"], _LONGEST_DETAIL)),
            _nodes(numbers, found["nodes"]),
            _nodes(numbers, found.get("would_decide") or ()),
        ]
        for found in shown
    ]
    heads = ["=job", "time", "queue", "reason", "=detail", "=nodes", "=whose log would decide"]
    filled = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    return table(
        [heads[place] for place in filled], [[row[place] for place in filled] for row in rows]
    )
