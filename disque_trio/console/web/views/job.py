"""One job, as all nodes have it."""

from starlette.responses import Response

from disque_trio.console.io.jobs import Jobs
from disque_trio.console.io.timelines import FAR, NEAR
from disque_trio.console.model.job_actions import body_mark, job_value
from disque_trio.console.model.jobs import JOB_ID, SHOWN, Body, JobView
from disque_trio.console.model.life import Life
from disque_trio.console.web.visit import Missing, Shown, Visit


async def view(visit: Visit) -> Shown:
    """A job: its copies, its body, and what can be done with it. One that is gone is said to be."""
    id = visit.query("id").strip()
    values: dict[str, object] = {
        "id": id,
        "job": None,
        "problems": [],
        "known": False,
        "life": None,
    }
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
            }
        far = visit.query("look") == "far"
        names = {state.id: state.address for state in visit.cluster.nodes.all()}
        values |= {"names": names, "life": await _life(visit, id, job, far), "far": far}
    return Shown(values)


async def _life(visit: Visit, id: str, job: JobView | None, far: bool) -> Life | None:
    """What the event logs tell; None: there are none, or that part of the page is not wanted."""
    timelines = visit.console.timelines
    if timelines is None or visit.live:
        return None
    return await timelines.of(id, job.best.created if job else None, FAR if far else NEAR)


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
