"""Slow commands and stalls."""

from typing import Final

from disque_console.model.paging import page_of
from disque_console.model.slowlog import read_slow, read_stalls
from disque_console.web.answers import parted
from disque_console.web.visit import Shown, Visit

EACH: Final = 128  # commands from each node


async def view(visit: Visit) -> Shown:
    """The merged slow logs of all nodes."""
    slow, problems = parted(await visit.every("SLOWLOG", "GET", EACH))
    stalls, more = parted(await visit.every("LATENCY", "LATEST"))
    return Shown(
        {
            "paging": page_of(read_slow(slow), visit.number("page", 1, least=1)),
            "stalls": read_stalls(stalls),
            "problems": problems + [entry for entry in more if entry not in problems],
            "each": EACH,
        }
    )
