"""One job, as all nodes have it."""

from starlette.responses import Response

from disque_trio.console.io.jobs import Jobs
from disque_trio.console.model.job_actions import body_mark, job_value
from disque_trio.console.model.jobs import JOB_ID, SHOWN, Body
from disque_trio.console.web.visit import Missing, Shown, Visit


async def view(visit: Visit) -> Shown:
    """A job: its copies, its body, and what can be done with it. One that is gone is said to be."""
    id = visit.query("id").strip()
    values: dict[str, object] = {"id": id, "job": None, "problems": [], "known": False}
    if JOB_ID.fullmatch(id):
        job, problems = await Jobs(visit.calls, visit.cluster.nodes).one(id)
        values |= {"job": job, "problems": problems, "known": True}
        if job is not None:
            values |= {
                "best": job.best,
                "at": job_value(id, job.holder),
                "body": Body(job.best.body),
                "mark": body_mark(job.best.body),
                "most": SHOWN,
                "names": {state.id: state.address for state in visit.cluster.nodes.all()},
            }
    return Shown(values)


async def download(visit: Visit) -> Response:
    """The whole body, as a file that no browser shows."""
    id = visit.query("id").strip()
    job = None
    if JOB_ID.fullmatch(id):
        job, _ = await Jobs(visit.calls, visit.cluster.nodes).one(id)
    if job is None:
        raise Missing("No node that answers knows this job any more.")
    name = f"{id[:19]}.bin".replace("/", "_").replace("+", "_")
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    return Response(job.best.body, media_type="application/octet-stream", headers=headers)
