"""Dead letters: which queues have them, and why."""

from typing import Final

from disque_console.io.calls import Answer
from disque_console.io.jobs import LETTERS, Jobs
from disque_console.model.job_actions import MOST, job_value
from disque_console.model.letters import JobCopyAt, grouped
from disque_console.web.visit import Shown, Visit

QUEUES: Final = 100
LISTED: Final = 20  # letters shown per group


async def view(visit: Visit) -> Shown:
    """The dead-letter queues, and the letters in one of them, by reason."""
    table = visit.cluster.queues
    visit.console.looks.counts.at(visit.now)
    targets = visit.cluster.policies.dead
    names = targets | table.with_letters()
    lengths = {name: row.length if (row := table.row(name)) else 0 for name in names}
    queues = sorted(names, key=lambda name: (-lengths[name], name))
    chosen = visit.query("queue") or (queues[0] if queues else "")
    looked_at = list(dict.fromkeys([*([chosen] if chosen else []), *queues[:QUEUES]]))
    if visit.console.looks.at(looked_at, visit.now):
        await visit.console.looks.wait_reported(0.1)
    letters: list[JobCopyAt] = []
    problems: list[Answer] = []
    if chosen:
        letters, problems = await Jobs(visit.calls, visit.cluster.nodes).letters(chosen)
    return Shown(
        {
            "queues": [(name, table.row(name), name in targets) for name in queues[:QUEUES]],
            "more": max(0, len(queues) - QUEUES),
            "chosen_queue": chosen,
            "row": table.row(chosen) if chosen else None,
            "groups": grouped(letters),
            "looked": len(letters),
            "problems": problems,
            "value": job_value,
            "each_node": LETTERS,
            "listed": LISTED,
            "most": MOST,
        }
    )
