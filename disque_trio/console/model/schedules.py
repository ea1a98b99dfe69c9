"""The schedules of a cluster, as its nodes tell of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from disque_trio.client.replies import Schedule, schedule
from disque_trio.config.words import join_words
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import elements

MANY: Final = 1_000
"""Schedules: where there are more, one node is asked for all."""


@dataclass(slots=True)
class Row:
    """A schedule. problems: why nodes could not add the last job, by their address."""

    schedule: Schedule
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def options(self) -> str:
        """The options of ADDJOB, as words that can be split again."""
        return join_words(self.schedule.options)

    @property
    def text(self) -> str | None:
        """The body as it can be edited in a form; None: it cannot, or is not known."""
        body = self.schedule.body
        if body is None:
            return None
        try:
            found = body.decode()
        except UnicodeDecodeError:
            return None
        bad = any((letter < " " and letter not in "\n\t") or letter == "\x7f" for letter in found)
        return None if bad else found


def merged(answers: Iterable[tuple[str, Reply]]) -> Mapping[str, Row]:
    """What CRON LIST of some nodes, or CRON GET, said, by name. All know the same, but for the
    problems, and for what they have just heard: what is done up to the latest moment counts.

    Raises:
        ProtocolError: an answer is none of CRON.
    """
    rows: dict[str, Row] = {}
    for address, reply in answers:
        for entry in elements(reply):
            found = schedule(entry)
            if found is None:
                continue
            row = rows.get(found.name)
            if row is None:
                row = rows[found.name] = Row(found)
            elif found.done_until > row.schedule.done_until:
                row.schedule = found
            if found.problem:
                row.problems[address] = found.problem
    return dict(sorted(rows.items()))


def search(rows: Mapping[str, Row], text: str) -> Sequence[Row]:
    """Those with ``text`` in their name or queue, in order."""
    wanted = text.lower()
    return [
        row
        for name, row in rows.items()
        if wanted in name.lower() or wanted in row.schedule.queue.lower()
    ]
