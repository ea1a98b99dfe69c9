"""Describes, as lines of text, what an audit found."""

from collections.abc import Iterator

from disque_spark.audit.result import Result
from disque_spark.audit.rules import DEAD, KINDS
from disque_spark.audit.waits import Waiting
from disque_trio import humanize


def outcome(result: Result) -> Iterator[str]:
    """Yield what waits, what failed for good, and the findings, the worst first."""
    waiting, letters, dead = result.waiting, result.letters, result.findings[DEAD]
    if waiting.jobs:
        wait = "waits" if waiting.jobs == 1 else "wait"
        oldest = "" if waiting.jobs == 1 else ", the oldest"
        place = f", in {waiting.queue}" if waiting.queue else ""
        yield f"{humanize.jobs(waiting.jobs)} {wait}{oldest} since {_since(waiting)}{place}"
    parts = []
    if dead:
        parts.append(f"{humanize.jobs(dead)} failed for good")
    if letters.jobs:
        wait = "waits" if letters.jobs == 1 else "wait"
        what = humanize.counted(letters.jobs, "letter" if dead else "dead letter")
        parts.append(f"{what} {wait} since {_since(letters)}")
    if parts:
        yield "; ".join(parts)
    unsure = result.unsure.jobs
    if unsure and result.held is None:
        yield (
            f"waiting at nodes that were started again: {unsure}; only the nodes' files say whether"
            " they are still there (--aof)"
        )
    for kind in KINDS:
        if result.findings[kind]:
            reasons = {
                why: count for (of, why), count in result.reasons.items() if of == kind and why
            }
            why = ", ".join(f"{count} {why}" for why, count in sorted(reasons.items()))
            yield f"{kind}: {result.findings[kind]}" + (f" ({why})" if why else "")
    if not result.findings:
        yield "no findings" if result.is_whole else "no findings in the logs that are there"


def _since(waiting: Waiting) -> str:
    return f"{humanize.moment(waiting.since / 1000)} UTC"
