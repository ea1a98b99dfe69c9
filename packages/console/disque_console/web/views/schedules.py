"""Schedules (CRON): all of them, and one."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from disque_console.io.calls import Answer
from disque_console.io.jobs import Jobs
from disque_console.model.paging import page_of
from disque_console.model.schedules import MANY, Row, merged, search
from disque_console.web.answers import parted
from disque_console.web.visit import Missing, Shown, Visit
from disque_trio.overview.names import to_bytes

WORDS: Final = {
    "acked": "done",
    "dead": "dead letter",
    "pending": "not ended yet",
    "gone": "ended; the nodes no longer know how",
}
"""What became of a job, for people."""

_Found = tuple[Mapping[str, Row], list[tuple[str, str]]]


async def view(visit: Visit) -> Shown:
    """All schedules, page by page."""
    here = visit.cluster.nodes.here()
    many = max((state.number("schedules") for state in here), default=0) > MANY

    async def find() -> _Found:
        answers: list[Answer]
        if many:
            answers = [await visit.calls.any("CRON", "LIST")]
        else:
            answers = await visit.calls.every("CRON", "LIST")
        good, problems = parted(answers)
        return merged(good), problems

    rows, problems = await visit.recently(("schedules", many), find)
    wanted = visit.query("search").strip()
    paging = page_of(search(rows, wanted), visit.number("page", 1, least=1))
    values = {"problems": problems, "search": wanted, "paging": paging, "all": len(rows)}
    return Shown(values | {"many": many})


async def one(visit: Visit) -> Shown:
    """A schedule."""
    name = visit.query("name")
    if not name:
        raise Missing("The address names no schedule.")
    good, problems = parted(await visit.every("CRON", "GET", to_bytes(name)))
    found = merged((address, [reply]) for address, reply in good)
    row = found.get(name)
    ids = [id for _, id in row.runs if id] if row is not None else []
    jobs = Jobs(visit.calls, visit.cluster.nodes)
    ended = await visit.recently(("outcomes", *ids), partial(jobs.outcomes, ids))
    runs = [
        (tick / 1000, id, WORDS.get(ended[id].state, ended[id].state) if id in ended else "")
        for tick, id in (row.runs if row is not None else [])
    ]
    return Shown({"schedule": name, "row": row, "runs": runs, "problems": problems})
