"""The schedules of a cluster, as its nodes report them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from disque_console.model.fields import NO_FIELD
from disque_trio.client.replies import Schedule, schedule
from disque_trio.config.words import join_words
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import elements

RUNS: Final = 5  # that are shown of a schedule
MANY: Final = 1_000
"""Schedules; if there are more, only one node is asked."""


@dataclass(slots=True)
class Row:
    """A schedule. problems: why nodes could not add the last job, by node address. runs: the last
    jobs, whichever node added them: when (ms since the epoch), and the id; the latest first."""

    schedule: Schedule
    problems: dict[str, str] = field(default_factory=dict)
    runs: list[tuple[int, str]] = field(default_factory=list)

    @property
    def options(self) -> str:
        """The options of ADDJOB, quoted so that they can be split again."""
        return join_words(self.schedule.options)

    @property
    def text(self) -> str | None:
        """The body for editing in a form; None if that is impossible, or the body is unknown."""
        body = self.schedule.body
        if body is None:
            return None
        try:
            found = body.decode()
        except UnicodeDecodeError:
            return None
        return None if "\r" in found or NO_FIELD.search(found) else found


def merged(answers: Iterable[tuple[str, Reply]]) -> Mapping[str, Row]:
    """Merge replies to CRON LIST, or CRON GET, by name. Nodes differ only in problems and in recent
    changes; the reply that is done up to the latest moment wins.

    Raises:
        ProtocolError: a reply is not one to CRON.
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
            row.runs = sorted({*row.runs, *found.runs}, reverse=True)[:RUNS]
    return dict(sorted(rows.items()))


def search(rows: Mapping[str, Row], text: str) -> Sequence[Row]:
    """The schedules with ``text`` in their name or queue, in order."""
    wanted = text.lower()
    return [
        row
        for name, row in rows.items()
        if wanted in name.lower() or wanted in row.schedule.queue.lower()
    ]
