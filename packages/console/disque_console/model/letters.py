"""Dead letters, grouped by cause."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from disque_console.model.jobs import JobCopy
from disque_trio.job_past import split_trace


@dataclass(frozen=True, slots=True)
class JobCopyAt:
    """A job in a dead-letter queue. address: of the node that has it queued."""

    address: str
    copy: JobCopy


@dataclass(slots=True)
class LetterGroup:
    """Dead letters with the same cause. origin: the queue they came from. ``why`` is empty for jobs
    that are not dead letters."""

    origin: str
    why: str
    reason: str
    letters: list[JobCopyAt] = field(default_factory=list)


def grouped(found: Iterable[JobCopyAt]) -> list[LetterGroup]:
    """Groups by origin, why and reason, the largest first."""
    groups: dict[tuple[str, str, str], LetterGroup] = {}
    for each in found:
        letter = each.copy.letter
        reason = split_trace(letter.reason)[0] if letter else ""
        key = (letter.queue, letter.why, reason) if letter else ("", "", "")
        groups.setdefault(key, LetterGroup(*key)).letters.append(each)
    return sorted(groups.values(), key=lambda group: -len(group.letters))
