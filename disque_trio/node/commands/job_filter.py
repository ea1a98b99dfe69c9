"""The jobs that JSCAN returns."""

from typing import Final

from disque_trio.node.core.changes.state_counts import stage_of
from disque_trio.node.core.jobs.job import STATE_NAMES, Job, is_delivered
from disque_trio.node.core.node import Node
from disque_trio.respserver.words import Found

_SEARCHED_SHIFT: Final = 10  # as long as it takes to look for a text in 1024 bytes


class JobFilter:
    """The jobs that JSCAN returns.

    Attributes:
        queues, states: one of these, if any are given. Repeating one costs nothing. A state is one
            of ``STATE_NAMES`` or of ``STAGES``.
        min_age, max_age: s since the job was added; -1: not given.
        returns: how often it was queued again, at least.
        group: its group; empty: any.
        headers: names and values, all of which it has.
        taken: a client of this node has it, and has yet to acknowledge it.
        few_copies: it has fewer copies than it should, and this node sees to it.
        text: is somewhere in its body; empty: any.
    """

    def __init__(self, words: Found) -> None:
        self.queues = set(words.all("QUEUE"))
        self.states = {state.lower() for state in words.all("STATE")}
        self.min_age = words.number("MINAGE", -1)
        self.max_age = words.number("MAXAGE", -1)
        self.returns = words.number("MINRETURNS", 0)
        self.group = words.text("GROUP")
        headers = words.all("HEADER")
        self.headers = set(zip(headers[::2], headers[1::2], strict=True))
        self.taken = words.has("TAKEN")
        self.few_copies = words.has("FEWCOPIES")
        self.text = words.text("BODY")

    def only_queues(self) -> bool:
        """Whether it asks for nothing but queues."""
        return not (self.states or self._more())

    @property
    def some(self) -> bool:
        """Whether it asks for anything but states."""
        return bool(self.queues) or self._more()

    def _more(self) -> bool:
        """Whether it asks for anything but queues and states."""
        return bool(
            self.min_age >= 0
            or self.max_age >= 0
            or self.returns
            or self.group
            or self.headers
            or self.taken
            or self.few_copies
            or self.text
        )

    def takes(self, node: Node, job: Job) -> bool:
        """Whether ``job`` is one of them."""
        if (
            job.body is None
            or (self.queues and job.queue not in self.queues)
            or int(job.nacks + job.deliveries) < self.returns
            or (self.taken and not (job.retry and is_delivered(job)))
            or (self.few_copies and not node.few_copies.is_short(job))
        ):
            return False
        age = (node.now - job.ctime // 1_000_000) // 1000
        if age < self.min_age or 0 <= self.max_age < age:
            return False
        if self.states and not self._is_in(node, job):
            return False
        if (self.headers or self.group) and not self._carries(node, job):
            return False
        return not self.text or self.text in job.body

    def work(self, job: Job) -> int:
        """Units of work that ``takes`` may need for the body of ``job``."""
        return len(job.body or b"") >> _SEARCHED_SHIFT if self.text else 0

    def _is_in(self, node: Node, job: Job) -> bool:
        """Whether ``job`` is in one of the states."""
        # A job that has ended since the scan found it has no name.
        if job.state < len(STATE_NAMES) and STATE_NAMES[job.state] in self.states:
            return True
        return stage_of(job, node.store.trailers, node.now) in self.states

    def _carries(self, node: Node, job: Job) -> bool:
        """Whether ``job`` has the group and the headers."""
        trailer = node.store.trailers.of(job)
        if trailer is None or (self.group and trailer.group != self.group):
            return False
        there = list(zip(trailer.headers[::2], trailer.headers[1::2], strict=True))
        return all(header in there for header in self.headers)
