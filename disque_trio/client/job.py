"""Jobs as GETJOB returns them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Letter:
    """Where a dead letter came from.

    Attributes:
        queue: the queue of the job that died.
        why: ``attempts``, ``expired`` or ``refused``.
        attempts: how often the job was delivered, as far as is known.
        reason: the reason given by the last worker that refused the job.
        first_id: the original id of the job.
    """

    queue: str
    why: str
    attempts: int
    reason: str
    first_id: str


@dataclass(frozen=True, slots=True)
class Job:
    """A job as GETJOB delivers it.

    Attributes:
        id: 40 characters, for ``Client.ack`` and similar methods.
        queue: the name of the queue; bytes that are not UTF-8 appear as surrogate escapes.
        body: the body of the job.
        nacks: how often consumers gave the job back with NACK; 0 without counters.
        additional_deliveries: how often it was queued again for other reasons; 0 without counters.
        header_pairs: header names and values, in order; empty if headers were not requested.
        letter: if the job is a dead letter, where it came from; None without counters.
        priority: the priority given when the job was added; 0 without counters.
    """

    id: str
    queue: str
    body: bytes
    nacks: int = 0
    additional_deliveries: int = 0
    header_pairs: tuple[tuple[str, bytes], ...] = ()
    letter: Letter | None = None
    priority: int = 0

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers by name; if a name occurs several times, its first value."""
        return dict(reversed(self.header_pairs))


class JobFields:
    """The fields of a delivered job, besides those of any message. Subclasses set ``_job``."""

    _job: "Job | JobFields"

    @property
    def nacks(self) -> int:
        """How often consumers gave the job back with NACK."""
        return self._job.nacks

    @property
    def additional_deliveries(self) -> int:
        """How often the job was queued again for other reasons."""
        return self._job.additional_deliveries

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers, if the loop was told to request them; see ``Job.headers``."""
        return self._job.headers

    @property
    def header_pairs(self) -> tuple[tuple[str, bytes], ...]:
        """The header names and values, in order."""
        return self._job.header_pairs

    @property
    def letter(self) -> Letter | None:
        """If the job is a dead letter, where it came from."""
        return self._job.letter

    @property
    def priority(self) -> int:
        """The priority given when the job was added."""
        return self._job.priority
