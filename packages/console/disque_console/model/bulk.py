"""Bulk actions on all jobs that match a filter: the jobs are counted, the user confirms the number,
then the action is applied to the counted jobs that still match.

This module tracks progress and results; ``io.bulk`` sends the commands.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from disque_console.model.action import Form, Order
from disque_console.model.actions import ACTIONS
from disque_console.model.job_actions import AT_ONCE, job_value
from disque_console.model.job_scans import JobFilter
from disque_console.model.jobs import JOB_ID
from disque_console.model.outcome import is_unconfirmed
from disque_trio.overview.names import quoted
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import ConnectionLost, DisqueError

MOST: Final = 100_000  # jobs in a run: their ids are kept
BULK_ACTIONS: Final = (
    "job-promote", "job-enqueue", "job-redrive", "job-cancel", "job-move", "job-change",
    "job-delete",
)  # fmt: skip
"""The actions for all matching jobs. Bodies can only be edited one at a time."""
BULK_FIELDS: Final = ("to", "delay", "ttl", "retry")
"""The fields of these actions besides the jobs."""
_SOME_ID: Final = "D-00000000-" + "0" * 24 + "-05a1"


class Phase(Enum):
    """The progress of a run."""

    COUNTING = "counting"
    ASKING = "asking"
    DOING = "doing"
    DONE = "done"
    STOPPED = "stopped"


@dataclass(slots=True)
class Walk:
    """A scan of the jobs of several nodes with cursors.

    Attributes:
        left: ids of the remaining nodes, the current one first.
        cursor: where the current node continues.
        visited: how many jobs were scanned, or a few more.
        failed: nodes that did not answer, and why, by id or address.
    """

    left: list[str]
    cursor: str = "0"
    visited: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether all nodes that answer have been scanned."""
        return not self.left

    def advance(self, cursor: str, visited: int) -> None:
        """Note that the node scanned more jobs. ``cursor`` is where it continues, 0 if finished."""
        self.visited += visited
        self.cursor = cursor
        if cursor == "0":
            self.left.pop(0)

    def fails(self, name: str, why: str) -> None:
        """Note that the node does not answer, and go to the next one."""
        self.failed[name] = why
        self.cursor = "0"
        self.left.pop(0)


@dataclass(slots=True)
class Bulk:
    """A run of a bulk action.

    Attributes:
        action: one of ``BULK_ACTIONS``. fields: those of its form besides the jobs.
        wanted: which jobs. owner: who may continue it. back: the page where it was started.
        walk: the current scan.
        found: ids of counted jobs not processed yet.
        count: how many were counted. cut: whether there are more than ``MOST``.
        done: number of successes. unconfirmed: how many of them some nodes have not confirmed.
        refused: reasons for failures, and how many of each.
        unknown: how many have an unknown result, because a connection was lost.
        audited: whether its end is in the audit.
        touched: when somebody last continued it (s).
    """

    id: str
    action: str
    fields: Mapping[str, str]
    wanted: JobFilter
    owner: str
    back: str
    walk: Walk
    touched: float
    phase: Phase = Phase.COUNTING
    found: dict[str, None] = field(default_factory=dict)
    count: int = 0
    cut: bool = False
    done: int = 0
    unconfirmed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    audited: bool = False

    @property
    def working(self) -> bool:
        """Whether there is more to do."""
        return self.phase in (Phase.COUNTING, Phase.DOING)

    @property
    def dealt_with(self) -> int:
        """How many jobs have been processed."""
        return self.count - len(self.found)

    def form(self, jobs: Iterable[str] = ()) -> Form:
        """The form of the action with ``jobs``, each an id with the address of a node."""
        fields: dict[str, Sequence[str]] = {name: [value] for name, value in self.fields.items()}
        queue = [quoted(self.wanted.queue)]
        return Form({**fields, "queue": queue, "job": [quoted(job) for job in jobs]})

    @property
    def question(self) -> str:
        """The question to confirm once all jobs are counted."""
        asks = ACTIONS[self.action].asks
        assert asks is not None
        return asks(Form({name: [value] for name, value in self.fields.items()}, self.count))

    def check(self) -> None:
        """Raises ValueError if the fields are invalid."""
        if self.action == "job-redrive" and not self.wanted.queue:
            raise ValueError("search in one queue of dead letters first")
        ACTIONS[self.action].make(self.form([job_value(_SOME_ID, "")]))

    def counts(self, ids: Iterable[str]) -> None:
        """Note matching jobs that a node has."""
        for id in ids:
            if len(self.found) == MOST and id not in self.found:
                self.cut = True
                break
            self.found[id] = None
        if self.cut or self.walk.over:
            self.count = len(self.found)
            self.phase = Phase.ASKING

    def confirm(self, nodes: list[str]) -> None:
        """Start acting. nodes: ids of the reachable nodes."""
        self.walk = Walk(nodes)
        self.phase = Phase.DOING if self.found else Phase.DONE

    def takes(self, address: str, ids: Iterable[str]) -> Iterator[list[str]]:
        """The jobs of a node to act on now, in small batches, as forms contain them: each counted
        job once. Yielding a job removes it from ``found``."""
        mine = [id for id in dict.fromkeys(ids) if id in self.found]
        for at in range(0, len(mine), AT_ONCE):
            few = mine[at : at + AT_ONCE]
            for id in few:
                del self.found[id]
            yield [job_value(id, address) for id in few]

    def hears(self, order: Order, reply: Reply) -> None:
        """Note the reply to a command about some of these jobs."""
        words = (word for word in order.command if isinstance(word, str))
        ids = [word for word in words if JOB_ID.fullmatch(word)]
        asked = len(ids)
        if isinstance(reply, ConnectionLost):
            if reply.maybe_executed:
                self.unknown += asked
            else:
                self.found.update(dict.fromkeys(ids))  # another node may also have them
        elif is_unconfirmed(order, reply):
            self.done += asked
            self.unconfirmed += asked
        elif isinstance(reply, DisqueError):
            self.refused[str(reply)] += asked
        elif isinstance(reply, int):
            self.done += min(reply, asked)
            if reply < asked:
                self.refused["gone, or the action does not apply to them"] += asked - reply
        else:
            self.done += asked

    def goes_on(self) -> None:
        """End a step."""
        if self.walk.over or not self.found:
            self.phase = Phase.DONE

    def stop(self) -> None:
        """Stop. Nothing is undone."""
        self.phase = Phase.STOPPED

    @property
    def result(self) -> dict[str, object]:
        """The result, for the audit."""
        return {
            "filter": self.wanted.described,
            "jobs": self.count,
            "done": self.done,
            "unconfirmed": self.unconfirmed,
            "refused": dict(self.refused.most_common(20)),
            "unknown": self.unknown,
            "untouched": len(self.found),
            "nodes_failed": dict(self.walk.failed),
        }
