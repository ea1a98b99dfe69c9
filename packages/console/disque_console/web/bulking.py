"""Bulk actions on all jobs that match a filter: begin, confirm, continue, stop."""

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from disque_console.io.bulk import LONGER, SECONDS
from disque_console.model.actions import ACTIONS
from disque_console.model.bulk import BULK_ACTIONS, BULK_FIELDS, Bulk, Phase
from disque_console.model.job_scans import FIELDS, JobFilter
from disque_console.web.console import Console
from disque_console.web.refusals import Refusal, no_audit, refusal
from disque_console.web.rendering import Rendering
from disque_console.web.visit import SMALL_FORM, Visit, parse_fields


class Bulking:
    """Checks permissions, advances the runs, and audits them."""

    def __init__(self, console: Console, rendering: Rendering) -> None:
        self._console = console
        self._rendering = rendering

    async def begin(self, visit: Visit) -> Response:
        """Count the jobs that match."""
        form = await visit.form(SMALL_FORM)
        name = form.get("action")
        if name not in BULK_ACTIONS:
            raise HTTPException(404, "This action is not available for all matching jobs.")
        if refused := refusal(visit, form, ACTIONS[name]):
            return await self._refuse(visit, name, refused)
        text = form.get("filter")
        query = parse_fields(text.encode("latin-1", "replace"))
        if (text and not query) or not query.keys() <= FIELDS:  # it must not match more jobs
            raise HTTPException(400, "The filter is invalid.")
        wanted = JobFilter.read(lambda field: query.get(field, []))
        back = self._rendering.back(visit, form.get("back"))
        fields = {field: form.raw(field) for field in BULK_FIELDS if form.get(field)}
        try:
            if wanted.problem:
                raise ValueError(wanted.problem)
            owner = visit.visitor.form_id
            run = self._console.bulks.begin(name, fields, wanted, owner, back)
        except ValueError as error:
            answer = RedirectResponse(back, 303)
            return self._rendering.note(answer, f"Not done: {error}.", bad=True)
        await self._console.bulks.go_on(run, visit.calls)
        return self._to(visit, run)

    async def go_on(self, visit: Visit) -> Response:
        """Continue, confirm or stop a run."""
        form = await visit.form(SMALL_FORM)
        run = self._console.bulks.get(form.get("run"), visit.visitor.form_id)
        if run is None:
            text = "This run no longer exists: runs are kept for an hour."
            return self._rendering.message(visit, "Not found", text, 404)
        if refused := refusal(visit, form, ACTIONS[run.action]):
            return await self._refuse(visit, run.action, refused)
        was = run.phase
        if form.get("do") == "stop":
            if was not in (Phase.DONE, Phase.STOPPED):
                await self._console.bulks.stop(run)
                await self._write(visit, run, "stopped")
            return self._to(visit, run)
        if form.get("do") == "confirm" and was is Phase.ASKING:
            try:
                await self._write(visit, run, "asked")
            except OSError as error:
                return self._rendering.message(visit, "Not done", no_audit(error), 500)
            if run.phase is Phase.ASKING:  # not stopped or confirmed meanwhile
                self._console.bulks.confirm(run)
        seconds = SECONDS if form.get("round") == "short" else LONGER
        await self._console.bulks.go_on(run, visit.calls, seconds)
        if run.phase is Phase.DONE and not run.audited:
            run.audited = True
            self._console.recent.clear()
            self._console.looks.again()
            await self._write(visit, run, "done" if run.done == run.count else "partly done")
        return self._to(visit, run)

    async def _refuse(self, visit: Visit, name: str, refused: Refusal) -> Response:
        result = {"fields": {}, "result": "refused", "why": refused.why}
        await self._console.audit.action(**_by(visit), action=name, **result)
        return self._rendering.message(visit, refused.title, refused.text, 403)

    def _to(self, visit: Visit, run: Bulk) -> Response:
        return RedirectResponse(visit.url("/bulk", run=run.id), 303)

    async def _write(self, visit: Visit, run: Bulk, result: str) -> None:
        """Raises OSError, see ``Audit.action``."""
        audit = self._console.audit
        fields = {"fields": dict(run.fields), **run.result}
        await audit.action(**_by(visit), action=run.action, run=run.id, result=result, **fields)


def _by(visit: Visit) -> dict[str, str]:
    who = visit.visitor
    return {"user": who.user, "role": str(who.role), "address": who.address}
