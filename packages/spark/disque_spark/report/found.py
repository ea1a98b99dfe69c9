"""The findings of an audit, and the histories of their jobs, as HTML."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from disque_spark.report.markup import (
    Numbers,
    node_name,
    queue_name,
    table,
    time,
)
from disque_trio import humanize

_TOLD = 3  # findings of each kind whose jobs' histories are in the page as text
_LONGEST_DETAIL = 500  # characters
_LONGEST_ID = 64  # characters of a job's id; Disque's have 40
_MOST_STEPS = 15_000  # steps of all histories in the page
_MEANING = {
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
    "letter-waiting": "It is a dead letter that nobody has taken yet.",
    "schedule-missed": "A schedule was to add a job at this time, but no node did.",
    "schedule-doubled": "Two nodes added a job for the same tick of a schedule.",
    "clock-skew": "The clocks of two nodes are apart: their times cannot be compared.",
}


def findings(numbers: Numbers) -> str:
    """The number of findings of each kind, and the first of them."""
    counts = numbers["findings"]
    text = "<h2 id=findings>Findings</h2>"
    if not any(counts.values()):
        return text + "<p>None.</p>"
    about = numbers.get("finding_jobs", {})
    rows = [
        [
            escape(kind),
            humanize.count(count),
            humanize.count(about.get(kind, 0)) if kind in about else "",
            escape(_reasons(numbers, kind)),
            escape(_MEANING[kind]),
        ]
        for kind, count in counts.items()
        if count
    ]
    text += table(["kind", "#findings", "#jobs", "reasons", "what it means"], rows, hits=False)
    text += (
        "<p class=hint>A job may have several findings: one of each kind, and one"
        " <i>delivered-twice</i> for each reason.</p>"
    )
    for kind, count in counts.items():
        shown = [found for found in numbers["findings_shown"] if found["kind"] == kind]
        if not shown:
            continue
        more = f" and {humanize.count(count - len(shown))} more" if count > len(shown) else ""
        some = f"the first {len(shown)}{more}" if more else humanize.count(count)
        opened = " open" if count <= 5 else ""
        text += f"<details class=kind{opened}><summary>{escape(kind)}: {some}</summary>"
        text += _shown(numbers, shown) + "</details>"
    return text


def job(numbers: Numbers, id: str | None, told: bool) -> str:
    """The id of a job, and its history."""
    if not id:
        return ""
    code = f"<code>{escape(humanize.shortened(id, _LONGEST_ID))}</code>"
    life = numbers.get("lives", {}).get(id)
    if life is None or len(id) > _LONGEST_ID:
        return code
    text = _life(numbers, life) if told else ""  # otherwise the page's script adds it
    return f"<details data-job><summary>{code}</summary>{text}</details>"


def _life(numbers: Numbers, life: Mapping[str, Any]) -> str:
    """The history of a job, as text."""
    nodes = everyone(numbers)
    steps = [
        f"<li>+{humanize.duration(ms / 1000)} {escape(what)}, {escape(nodes[node][:8])}</li>"
        for ms, node, what in life["steps"]
    ]
    return f"<p class=hint>Since {time(life['start'])}:</p><ol class=life>{''.join(steps)}</ol>"


def lives(numbers: Numbers) -> dict[str, Any]:
    """The histories for the page's script, bounded in size: the ``names`` of steps, and for each
    job its start, its number of steps, and a flat list of its first and last steps: ms since the
    start, index of the node, index of the name."""
    known = {id: life for id, life in numbers.get("lives", {}).items() if len(id) <= _LONGEST_ID}
    most = max((len(life["steps"]) for life in known.values()), default=0)
    while most > 2 and sum(min(len(life["steps"]), most) for life in known.values()) > _MOST_STEPS:
        most -= 2
    names: dict[str, int] = {}
    told = {}
    for id, life in known.items():
        steps = life["steps"]
        if len(steps) > most:
            steps = [*steps[: most // 2], *steps[-(most // 2) :]]
        flat = [
            value
            for ms, node, what in steps
            for value in (ms, node, names.setdefault(what, len(names)))
        ]
        told[id] = [life["start"], life["count"], *flat]
    return {"names": list(names), "jobs": told}


def everyone(numbers: Numbers) -> list[str]:
    """The nodes, by their indexes in histories."""
    return [row["node"] for row in numbers.get("by_node", ())]


def _nodes(numbers: Numbers, nodes: Sequence[str]) -> str:
    """The short names of nodes; their full ids are in the list of nodes."""
    return escape(", ".join(node_name(numbers, node) for node in nodes))


def _reasons(numbers: Numbers, kind: str) -> str:
    """The reasons of a kind, such as ``3 retry, 1 nack``."""
    counts = sorted(numbers["reasons"][kind].items())
    return ", ".join(f"{humanize.count(count)} {reason}" for reason, count in counts if reason)


def _shown(numbers: Numbers, shown: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            time(found["time"]),
            queue_name(numbers, found["queue"]) if found["queue"] else "",
            job(numbers, found["job"], place < _TOLD),
            escape(found["reason"] or ""),
            escape(humanize.shortened(found["detail"], _LONGEST_DETAIL)),
            _nodes(numbers, found["nodes"]),
            _nodes(numbers, found.get("would_decide") or ()),
        ]
        for place, found in enumerate(shown)
    ]
    heads = ["time", "queue", "job", "reason", "detail", "nodes", "whose log would decide"]
    filled = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    return table(
        [heads[place] for place in filled], [[row[place] for place in filled] for row in rows]
    )
