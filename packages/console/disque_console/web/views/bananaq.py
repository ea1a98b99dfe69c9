"""The queues of a bananaq."""

from disque_console.model.bananaq import Queue, find, read
from disque_console.model.paging import page_of
from disque_console.web.answers import parted
from disque_console.web.visit import Missing, Shown, Visit
from disque_trio.respclient.errors import ProtocolError


async def view(visit: Visit) -> Shown:
    """Queues and groups, with their backlog."""
    calls, address = visit.console.bananaq_calls, visit.console.bananaq
    if calls is None:
        raise Missing("No bananaq is configured: see --bananaq.")
    reply = await visit.console.recent.get(calls, "queues", lambda: calls.to(address, "QSTATUS"))
    good, problems = parted([(address, reply)])
    queues: list[Queue] = []
    try:
        for _, answer in good:
            queues = read(answer)
    except ProtocolError:
        problems = [(address, "this is not a bananaq")]
    search = visit.query("search").strip()
    return Shown(
        {
            "address": address,
            "paging": page_of(find(queues, search), visit.number("page", 1, least=1)),
            "search": search,
            "problems": problems,
            "all": len(queues),
        }
    )
