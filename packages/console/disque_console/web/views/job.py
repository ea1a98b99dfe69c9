"""One job, as all nodes see it."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Final

from starlette.responses import Response

from disque_console.io.jobs import Jobs
from disque_console.io.timelines import FAR, NEAR
from disque_console.model.job_actions import body_mark, job_value
from disque_console.model.job_rows import failure_of, row_of
from disque_console.model.jobs import JOB_ID, SHOWN, Body, JobCopy, JobView
from disque_console.model.lanes import lanes
from disque_console.model.life import Life
from disque_console.web.lifeline import LANES, legend, lifeline
from disque_console.web.visit import Missing, Shown, Visit
from disque_trio.client.replies import Outcome

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")


async def view(visit: Visit) -> Shown:
    """A job: its copies, body and actions, or a note that it is gone."""
    id = visit.query("id").strip()
    values: dict[str, object] = {
        "id": id,
        "job": None,
        "problems": [],
        "known": False,
        "life": None,
        "outcome": None,
        "result": None,
        "most": SHOWN,
    }
    if JOB_ID.fullmatch(id):
        job, problems = await Jobs(visit.calls, visit.cluster.nodes).one(id)
        values |= {"job": job, "problems": problems, "known": True}
        if job is None or job.best.state == "acked":
            outcome = await visit.recently(("outcome", id), partial(_outcome, visit, id))
            values["outcome"] = outcome
            if outcome is not None and outcome.result is not None:
                values["result"] = Body(outcome.result, len(outcome.result))
        if job is not None:
            values |= {
                "failure": failure_of(job.best),
                "row": row_of(job.best, visit.cluster.policies.of(job.best.queue)),
                "trace": trace_link(visit.console.trace_url, job.best),
                "best": job.best,
                "at": job_value(id, job.holder),
                "body": Body(job.best.body, job.best.body_size),
                "mark": body_mark(job.best.body),
            }
        far = visit.query("look") == "far"
        names = {state.id: state.address for state in visit.cluster.nodes.all()}
        life = await _life(visit, id, job, far)
        values |= {"names": names, "life": life, "far": far}
        if life is not None and life.events:
            values |= _drawn(life, visit.now if job else life.events[-1].time, names)
    return Shown(values)


async def _outcome(visit: Visit, id: str) -> Outcome | None:
    return await Jobs(visit.calls, visit.cluster.nodes).outcome(id)


def trace_link(url: str, copy: JobCopy) -> tuple[str, str] | None:
    """The id of the trace that a job belongs to, and the address of its page by the template
    ``url``, which is empty if there is none; None: the job belongs to none."""
    found = _TRACEPARENT.fullmatch(dict(copy.header_pairs).get("traceparent", ""))
    return (found[1], url.replace("{trace}", found[1])) if found else None


def _drawn(life: Life, until: float, names: Mapping[str, str]) -> dict[str, object]:
    """The picture of a history, and its legend."""
    found = lanes(life.events, until)
    label = f"History of the job on {len(found)} nodes; the table below has the same events."

    def name(node: str) -> str:
        return names.get(node, node[:8])

    return {
        "picture": lifeline(found, name, label),
        "legend": legend(found),
        "lane_count": len(found),
        "most_lanes": LANES,
    }


async def _life(visit: Visit, id: str, job: JobView | None, far: bool) -> Life | None:
    """The history from the event logs; None if there are no logs, or only the live part is
    wanted."""
    timelines = visit.console.timelines
    if timelines is None or visit.live:
        return None
    return await timelines.of(id, job.best.created if job else None, FAR if far else NEAR)


async def download(visit: Visit) -> Response:
    """The whole body, as a file to download."""
    id = visit.query("id").strip()
    body = None
    if JOB_ID.fullmatch(id):
        body = await Jobs(visit.calls, visit.cluster.nodes).body(id)
    if body is None:
        raise Missing("No responding node knows this job.")
    name = f"{id[:19]}.bin".replace("/", "_").replace("+", "_")
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    return Response(body, media_type="application/octet-stream", headers=headers)
