"""What needs attention in a cluster: what its nodes say is wrong with them, nodes that do not
respond, and queues whose jobs nobody takes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from disque_trio.health.lines import AlarmLine
from disque_trio.health.queues import queue_facts
from disque_trio.health.table import CONDITIONS, CRITICAL, QUEUE, SEVERITIES, WARNING
from disque_trio.overview.cluster import Cluster
from disque_trio.overview.groups import CountedNode

MOST_QUEUES: Final = 50  # that are looked at closely, those that wait for longest
_LOST: Final = "peer-lost"


class Concern(NamedTuple):
    """Something that needs attention.

    Attributes:
        severity: CRITICAL or WARNING.
        kind: of the condition.
        where: the address of a node, or the name of a queue.
        text: what is wrong.
        since: when it began, in s since the epoch; 0: unknown.
    """

    severity: str
    kind: str
    where: str
    text: str
    since: float = 0.0

    @property
    def of_queue(self) -> bool:
        """Whether ``where`` is a queue."""
        condition = CONDITIONS.get(self.kind)
        return condition is not None and condition.scope == QUEUE

    @property
    def cure(self) -> str:
        """What to do; empty if the kind is of another release."""
        condition = CONDITIONS.get(self.kind)
        return "" if condition is None else condition.cure


def alarms_of(nodes: Iterable[CountedNode]) -> dict[str, list[AlarmLine]]:
    """What the processes of each node say is wrong with themselves, by the name of the node."""
    return {node.name: [line for state in node.states for line in state.alarms] for node in nodes}


def worst(lines: list[AlarmLine]) -> str:
    """The severity of the worst of ``lines``; empty: there is none."""
    return min([line.severity for line in lines], key=SEVERITIES.index, default="")


def of_nodes(cluster: Cluster) -> Iterator[Concern]:
    """What is wrong with the nodes. A node that is lost is named once, whoever misses it."""
    lost: dict[str, Concern] = {}
    for state in cluster.nodes.all():
        if state.here:
            for line in state.alarms:
                concern = Concern(line.severity, line.kind, state.address, line.cause, line.since)
                if line.kind != _LOST:
                    yield concern
                elif line.about not in lost or line.since < lost[line.about].since:
                    lost[line.about] = concern._replace(where=line.about)
        elif state.problem:
            lost[state.address] = Concern(
                CRITICAL, _LOST, state.address, f"does not respond: {state.problem}", state.since
            )
    yield from lost.values()


def of_queues(cluster: Cluster, now: float) -> Iterator[Concern]:
    """What is wrong with the queues at ``now`` (s)."""
    letters = cluster.policies.dead
    for seen in cluster.queues.waiting(now, letters, MOST_QUEUES):
        for fact in queue_facts(seen):
            severity = CONDITIONS[fact.kind].severity
            yield Concern(severity, fact.kind, fact.about, fact.cause)


def concerns(cluster: Cluster, now: float) -> list[Concern]:
    """All that needs attention at ``now`` (s): the worst first; of equals, nodes before queues."""
    found = [*of_nodes(cluster), *of_queues(cluster, now)]
    return sorted(found, key=lambda one: (SEVERITIES.index(one.severity), one.of_queue))


def summary(cluster: Cluster, now: float) -> tuple[str, Mapping[tuple[str, str], int]]:
    """``ok``, WARNING or CRITICAL, and how many conditions there are of each severity and kind, at
    ``now`` (s)."""
    counts: dict[tuple[str, str], int] = {}
    for one in concerns(cluster, now):
        counts[one.severity, one.kind] = counts.get((one.severity, one.kind), 0) + 1
    severities = {severity for severity, _ in counts}
    word = CRITICAL if CRITICAL in severities else WARNING if severities else "ok"
    return word, counts
