"""The bindings of a queue to topics, as the nodes report them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from disque_trio.client.replies import record
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import elements


@dataclass(slots=True)
class Row:
    """A binding. user: with whose rights it acts; empty: nobody's rights limit it. problems: why it
    does nothing, by node address."""

    topic: str
    user: str
    problems: dict[str, str] = field(default_factory=dict)


def merged(answers: Iterable[tuple[str, Reply]]) -> Sequence[Row]:
    """Merge the nodes' replies to BINDINGS FULL about one queue, by topic.

    Raises:
        ProtocolError: a reply is not one to BINDINGS FULL.
    """
    rows: dict[str, Row] = {}
    for address, reply in answers:
        for entry in elements(reply):
            found = record(entry) or {}
            topic = str(found.get("topic", ""))
            row = rows.setdefault(topic, Row(topic, str(found.get("user", ""))))
            if problem := found.get("problem"):
                row.problems[address] = str(problem)
    return [rows[topic] for topic in sorted(rows)]
