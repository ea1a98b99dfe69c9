"""The whole life of one job in words: each event in the nodes' logs, what the job waits for at
their end, and the jobs that it is linked to. Without I/O."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from disque_trio import humanize
from disque_trio.eventlog import schema
from disque_trio.protocol.successor import successor_id
from disque_trio.protocol.trailer import DEAD, REDRIVEN

Line: TypeAlias = Mapping[str, Any]  # of an event log
Name: TypeAlias = Callable[[str], str]  # the name of a node, for its id

_QUEUED = {
    schema.BY_ADD: "ready for a worker in queue {queue}",
    schema.BY_DELAY: "its delay is over: ready for a worker in queue {queue}",
    schema.BY_RETRY: "nobody acknowledged it in time (RETRY): back in queue {queue}",
    schema.BY_NACK: "handed back: again in queue {queue}",
    schema.BY_ENQUEUE: "put into queue {queue} by ENQUEUE",
    schema.BY_IMPORT: "ready for a worker in queue {queue}, where it is wanted",
    schema.BY_DEATH: "a dead letter: it waits in queue {queue}",
    schema.BY_REDRIVE: "back from the dead letters: ready for a worker in queue {queue}",
    schema.BY_DISCONNECT: "the connection that it was given to broke: back in queue {queue}",
}
_DELETED = {
    schema.BY_COMMAND: "this node forgot it, as DELJOB told it to",
    schema.BY_FASTACK: "done: {client} acknowledged it (FASTACK), and this node forgot it",
    schema.BY_PEER: "node {peer} said that it has ended, and this node forgot it",
    schema.BY_COLLECTION: "all nodes know that it has ended, and this node forgot it",
    schema.BY_GIVING_UP: "ADDJOB did not get its copies, and failed",
}
_DEAD = {
    schema.BY_ATTEMPTS: "failed for good: delivered as often as its queue allows",
    schema.BY_EXPIRY: "failed for good: its time to live was over",
    schema.BY_REFUSAL: "failed for good: {client} gave it up",
    schema.BY_PEER: "node {peer} said that it failed for good",
}
_PAUSED = {
    schema.BY_NACK: "handed back with a pause until {until}",
    schema.BY_RETRY: "nobody acknowledged it in time; it pauses until {until} (BACKOFF)",
    schema.BY_CLIENT: "UPDATEJOB: it pauses until {until}",
    schema.BY_QUEUE: "its queue is paused for input; the next try is at {until}",
}
# What happens, by kind, or by kind and reason.
_WORDS: dict[str, str | Mapping[schema.Reason, str]] = {
    schema.ADDED: "added to queue {queue} by {client}",
    schema.REPLICATED: "{copies} of {repl} nodes have a copy",
    schema.COPIED: "this node got a copy from node {peer}",
    schema.QUEUED: _QUEUED,
    schema.DELIVERED: "delivered to {client}",
    schema.WORKING: "{client} is still at work, and got more time",
    schema.NACKED: "{client} handed it back (NACK)",
    schema.ACKED: {
        schema.BY_CLIENT: "done: {client} acknowledged it",
        schema.BY_PEER: "node {peer} said that it is done",
        schema.BY_REDRIVE: "sent back to where it came from, as a job of its own (REDRIVE)",
    },
    schema.DEQUEUED: "taken out of the queue without a delivery",
    schema.EXPORTED: "went to node {peer}, where clients wait for it",
    schema.IMPORTED: "came from node {peer}",
    schema.EXPIRED: "its time to live is over: gone",
    schema.EVICTED: "this node was short of memory, and dropped it",
    schema.DELETED: _DELETED,
    schema.DEAD: _DEAD,
    schema.CANCELLED: {
        schema.BY_CLIENT: "cancelled by {client}",
        schema.BY_PEER: "node {peer} said that it was cancelled",
    },
    schema.UPDATED: "changed (UPDATEJOB or QMOVE); its queue is {queue}",
    schema.PAUSED: _PAUSED,
    schema.TICKED: "schedule {schedule} had it added for {tick}",
}
_ENDS = {
    schema.ACKED: "It is done.",
    schema.DEAD: "It failed for good; its dead letter is a job of its own.",
    schema.CANCELLED: "It was cancelled.",
    schema.EXPIRED: "It is gone: its time to live was over.",
}
_WAITING = (schema.QUEUED, schema.DELIVERED, schema.WORKING, schema.NACKED, schema.PAUSED)


@dataclass
class Story:
    """What is known about a job.

    Attributes:
        id: of the job.
        lines: its events, as in event logs, in any order.
        links: jobs that it is linked to, each as a sentence.
        until: the time of the last event in the logs, ms; 0: unknown.
        findings: what an audit found, each as a sentence.
        now: what nodes say about it now, each as a sentence.
    """

    id: str
    lines: list[Line] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    until: int = 0
    findings: list[str] = field(default_factory=list)
    now: list[str] = field(default_factory=list)

    def text(self, name: Name = lambda node: node[:8]) -> Iterator[str]:
        """The lines of text."""
        yield self.id
        lines = sorted(self.lines, key=lambda line: int(line["time"]))
        before = ""
        for line in lines:
            moment, node = _moment(line["time"]), name(line.get("node", ""))
            day = moment[:10]
            if day != before:
                yield f"  {day} (UTC)"
                before = day
            yield f"    {moment[11:]}  {node}  {said(line, name)}"
        if lines:
            yield f"  {waits(lines)}"
        if self.until and self.now == []:
            yield f"  (The logs end at {_moment(self.until)}.)"
        for text in (*self.links, *self.findings, *self.now):
            yield f"  {text}"


def said(line: Line, name: Name) -> str:
    """What an event means."""
    kind: str = line["event"]
    reason = line.get("reason", schema.NO_REASON)
    words = _WORDS.get(kind)
    if not isinstance(words, str) and words is not None:
        words = words.get(reason)
    if words is None:  # of a newer version
        return kind + (f" ({reason})" if reason else "")
    values = {
        "client": f"client {line['client']}" if line.get("client") else "a client",
        "queue": line.get("queue", "?"),
        "peer": name(line["peer"]) if line.get("peer") else "?",
        **{key: _moment(line[key]) if key in line else "?" for key in ("until", "tick")},
        **{key: line.get(key, "?") for key in ("schedule", "copies", "repl")},
    }
    return words.format_map(values) + _more(line)


def _more(line: Line) -> str:
    """The numbers of an event, in brackets."""
    found = []
    if line["event"] == schema.ADDED:
        found = [f"{line.get('size', '?')} bytes", f"RETRY {line.get('retry', '?')} s"]
        found += [f"TTL {line.get('ttl', '?')} s"]
        if line.get("delay"):
            found.append(f"delay {line['delay']} s")
    elif line["event"] == schema.DELIVERED:
        again = line.get("nacks", 0) + line.get("deliveries", 0)
        found = [f"delivery {again + 1}, as this node knows"] if again else []
    return f" ({', '.join(found)})" if found else ""


def waits(lines: Sequence[Line]) -> str:
    """What the job waits for after these events, which are sorted by time."""
    for line in lines:
        kind, reason = line["event"], line.get("reason")
        if kind == schema.ACKED and reason == schema.BY_REDRIVE:
            return "It was sent back from the dead letters (REDRIVE)."
        if kind in _ENDS:
            return _ENDS[kind]
        if kind == schema.DELETED and reason == schema.BY_FASTACK:
            return _ENDS[schema.ACKED]
        if kind == schema.DELETED and reason == schema.BY_GIVING_UP:
            return "It was not added: ADDJOB failed."
    facts: dict[str, Any] = {}
    for line in lines:
        facts.update({key: line[key] for key in ("retry", "delay", "queue") if key in line})
    queue = facts.get("queue", "?")
    last = next((line for line in reversed(lines) if line["event"] in _WAITING), None)
    if last is None:
        added = next((line for line in lines if line["event"] == schema.ADDED), None)
        if added is not None and facts.get("delay"):
            due = added["time"] + 1000 * facts["delay"]
            return f"It waits for its delay, which ends at {_moment(due)}."
        return "The logs do not say what it waits for: its beginning is missing, or its end."
    since = _moment(last["time"])
    if last["event"] == schema.PAUSED:
        return f"It pauses until {_moment(last['until']) if 'until' in last else '?'}."
    if last["event"] in (schema.QUEUED, schema.NACKED):
        return f"It waits in queue {queue} for a worker, since {since}."
    who = f"client {last['client']}" if last.get("client") else "a client"
    if facts.get("retry") == 0:
        return f"It is with {who} since {since}, and is not delivered again (RETRY 0)."
    if "retry" not in facts:
        return f"It is with {who} since {since}."
    due = _moment(last["time"] + 1000 * facts["retry"])
    return (
        f"It is with {who} since {since}; without an acknowledgement it is queued again at {due}."
    )


def followers(id: str) -> dict[str, str]:
    """The ids of the jobs that can follow a job, with what they are."""
    known = id.encode()
    return {
        successor_id(known, DEAD).decode(): "Its dead letter is",
        successor_id(known, REDRIVEN).decode(): "Sent back from the dead letters, it is",
    }


def precedes(other: str, id: str) -> str:
    """What a job is to one that has ended, if it follows it; empty: it does not."""
    known = other.encode(errors="replace")
    if successor_id(known, DEAD).decode() == id:
        return f"It is the dead letter of {other}."
    if successor_id(known, REDRIVEN).decode() == id:
        return f"It was the dead letter {other}, which REDRIVE sent back."
    return ""


def tell(ids: Iterable[str], lines: Iterable[Line]) -> dict[str, Story]:
    """The stories of some jobs.

    Args:
        lines: all events of these jobs and of those that follow them, and the ends of other jobs
            that may have led to them.
    """
    stories = {id: Story(id) for id in ids}
    after = {one: (id, text) for id in stories for one, text in followers(id).items()}
    seen: set[str] = set()
    for line in lines:
        id = line.get("id", "")
        if id in stories:
            stories[id].lines.append(line)
        if id in after and id not in seen:
            seen.add(id)
            first, text = after[id]
            stories[first].links.append(f"{text} {id} in queue {line.get('queue', '?')}.")
        ends = line["event"] == schema.DEAD or line.get("reason") == schema.BY_REDRIVE
        for one in stories.values() if ends and id else ():
            text = precedes(id, one.id)
            if text and text not in one.links:
                one.links.append(text)
    return stories


def _moment(time: int) -> str:
    return f"{humanize.moment(time // 1000)}.{time % 1000:03}"
