"""Visitors' actions: one route for all of them."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from disque_trio.console.io.calls import Answer
from disque_trio.console.model.action import WAS, Action, Form, Order
from disque_trio.console.model.actions import ACTIONS
from disque_trio.console.web.console import Console
from disque_trio.console.web.refusals import no_audit, refusal
from disque_trio.console.web.rendering import Rendering
from disque_trio.console.web.visit import Visit
from disque_trio.overview.names import to_bytes
from disque_trio.overview.policies import Policies
from disque_trio.respclient.errors import ConnectionLost, DisqueError

_OURS: Final = ("token", "confirmed", "back")  # fields that do not describe the action
AFTERWARDS: Final = 0.5  # s to wait for nodes to show the result
_LONGEST: Final = 200  # characters of a field in the audit
_MOST: Final = 20  # fields, and values of one


class Acting:
    """Checks, confirms, executes and audits actions."""

    def __init__(self, console: Console, rendering: Rendering) -> None:
        self._console = console
        self._rendering = rendering

    async def act(self, visit: Visit) -> Response:
        """Handle a submitted form."""
        action = _action(visit)
        form = Form({}) if visit.role < action.role else await visit.form()
        if refused := refusal(visit, form, action):
            await self._write(visit, action, form, "refused", why=refused.why)
            return self._rendering.message(visit, refused.title, refused.text, 403)
        try:
            orders = action.make(form)
            asks = action.asks if form.get("confirmed") != "yes" else None
            if asks and action.of_queue:
                form.stands_for = await _queued(visit, form.name())
            question = asks(form) if asks else ""
        except ValueError as error:
            return self._back(visit, form, f"Not done: {error}.", bad=True)
        if question:
            back = self._rendering.back(visit, form.get("back"))
            values = {"action": action, "question": question, "fields": _kept(form), "back": back}
            return self._rendering.other("confirm.html", visit, values, 200)
        try:
            await self._write(visit, action, form, "asked")
        except OSError as error:
            return self._rendering.message(visit, "Not done", no_audit(error), 500)
        answers: list[Answer] = []
        for order in orders:
            if order.needs and any(isinstance(reply, DisqueError) for _, reply in answers):
                break
            answers += await visit.calls.run(order)
        self._console.recent.clear()
        await self._see_result(visit, orders)
        return await self._tell(visit, action, form, answers)

    async def _see_result(self, visit: Visit, orders: Sequence[Order]) -> None:
        """Read changed policies, and wait until the nodes have reported the queues that somebody is
        looking at again."""
        if any(order.command[0] in ("QSET", "QDEL") for order in orders):
            _, policies = await visit.calls.any("QGET")
            if isinstance(policies, list):
                self._console.cluster.policies = Policies.read(policies)
        looks = self._console.looks
        looks.again()
        if looks.names(visit.now):
            here = {state.address for state in self._console.cluster.nodes.here()}
            await looks.wait_reported(AFTERWARDS, here)

    async def ask(self, visit: Visit) -> Response:
        """Handle a GET, from a reload or after a login: there is no page here."""
        _action(visit)
        return RedirectResponse(self._console.prefix + "/", 303)

    async def _tell(
        self, visit: Visit, action: Action, form: Form, answers: Sequence[Answer]
    ) -> Response:
        problems = _problems(answers)
        good = [reply for _, reply in answers if not isinstance(reply, DisqueError)]
        if problems:
            result = "partly done" if good else "failed"
            await self._write(visit, action, form, result, problems=problems)
        else:
            await self._write(visit, action, form, "done")
        words = [action.says(form, good)] if good else []
        if problems:
            words.append(("Partly failed: " if good else "Not done: ") + "; ".join(problems) + ".")
        return self._back(visit, form, " ".join(words), bad=bool(problems))

    def _back(self, visit: Visit, form: Form, text: str, bad: bool) -> Response:
        where = self._rendering.back(visit, form.get("back"))
        return self._rendering.note(RedirectResponse(where, 303), text, bad)

    async def _write(
        self, visit: Visit, action: Action, form: Form, result: str, **more: object
    ) -> None:
        """Raises OSError, see ``Audit.action``."""
        hidden = action.hides(form)
        fields: dict[str, object] = {}
        for name, values in form.fields.items():
            if name in _OURS or name.endswith(WAS) or not any(values) or len(fields) == _MOST:
                continue
            cut = [value[:_LONGEST] for value in values[:_MOST]]
            several = [len(values), *cut] if len(values) > 1 else cut[0]
            fields[name[:_LONGEST]] = "(hidden)" if name in hidden else several
        await self._console.audit.action(
            user=visit.visitor.user,
            role=str(visit.role),
            address=visit.visitor.address,
            action=action.name,
            fields=fields,
            result=result,
            **more,
        )


def _action(visit: Visit) -> Action:
    action = ACTIONS.get(visit.request.path_params["name"])
    if action is None:
        raise HTTPException(404, "This action does not exist.")
    return action


async def _queued(visit: Visit, queue: str) -> int:
    """How many jobs are queued on the nodes that answer."""
    answers = await visit.calls.every("QLEN", to_bytes(queue))
    return sum(reply for _, reply in answers if isinstance(reply, int))


def _kept(form: Form) -> list[tuple[str, str]]:
    """The fields of a form, to send again."""
    return [
        (name, value)
        for name, values in form.fields.items()
        if name not in ("token", "confirmed")
        for value in values
    ]


def _problems(answers: Sequence[Answer]) -> list[str]:
    """The distinct errors, with counts."""
    counts = Counter(
        _problem(address, reply) for address, reply in answers if isinstance(reply, DisqueError)
    )
    return [text if count == 1 else f"{text} ({count:,} times)" for text, count in counts.items()]


def _problem(address: str, error: DisqueError) -> str:
    text = str(error)
    if isinstance(error, ConnectionLost) and error.maybe_executed:
        text += " (it may have been done anyway)"
    text = text.removesuffix(".")
    return text if not address or address in text else f"{address}: {text}"
