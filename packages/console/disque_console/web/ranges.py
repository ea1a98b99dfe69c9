"""The time that the charts of a page show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from disque_console.web.visit import Visit
from disque_trio.overview.history import RANGES, History, Range

KEPT: Final = 10
"""A chart is kept for one part in this many of a step."""


@dataclass(frozen=True, slots=True)
class ShownRange:
    """What a page says of it.

    Attributes:
        chosen: the range. all: those that can be chosen.
        known: for how many s something is known, if that is less; None: nothing is.
        lasts: whether charts survive a restart of the console.
        problem: why they do not, although they should; or empty.
    """

    chosen: Range
    all: Sequence[Range]
    known: float | None
    lasts: bool
    problem: str


async def drawn(
    visit: Visit, span: Range, draw: Callable[[], dict[str, Any]], queue: str | None = None
) -> dict[str, Any]:
    """What ``draw`` makes for the charts of the cluster or of a queue: an open page asks every two
    seconds, and long charts hardly change in that time, so it is kept for a part of a step."""

    async def find() -> dict[str, Any]:
        return draw()

    return await visit.recently(("charts", queue, span.name), find, span.step / KEPT)


def shown_range(visit: Visit, history: History | None, span: Range) -> ShownRange:
    """What to say of the charts of ``history``."""
    begun = None if history is None else history.ranges[span.name].begun(visit.now)
    known = None if begun is None else max(visit.now - begun, 0.0)
    file = visit.console.history
    return ShownRange(span, RANGES, known, file.kept, file.problem)
