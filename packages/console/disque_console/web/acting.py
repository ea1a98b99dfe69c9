"""Visitors' actions: one route for all of them."""

from collections.abc import Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from disque_console.model.action import WAS, Action, Form, Order, batches
from disque_console.model.actions import ACTIONS
from disque_console.model.outcome import ActionReplies
from disque_console.web.console import Console
from disque_console.web.refusals import no_audit, refusal
from disque_console.web.rendering import Rendering
from disque_console.web.visit import Visit
from disque_trio.overview.names import to_bytes
from disque_trio.overview.policies import Policies

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
            await self.write(visit, action, form, "refused", why=refused.why)
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
            outcome = await self.execute(visit, action, form, orders)
        except OSError as error:
            return self._rendering.message(visit, "Not done", no_audit(error), 500)
        return self._back(visit, form, outcome.says(action, form), bad=bool(outcome.problems))

    async def execute(
        self, visit: Visit, action: Action, form: Form, orders: Sequence[Order]
    ) -> ActionReplies:
        """Send the commands of an action, with lines before and after in the audit. Raises OSError
        if there cannot be one before; then nothing is sent."""
        await self.write(visit, action, form, "asked")
        outcome = ActionReplies()
        for batch in batches(orders):
            if batch[0].needs and outcome.problems:
                break
            for order, address, reply in await visit.calls.run(batch):
                outcome.hear(order, address, reply)
        self._console.recent.clear()
        await self._see_result(visit, orders)
        more = {"unconfirmed": outcome.unconfirmed, "problems": outcome.problems}
        told = {name: value for name, value in more.items() if value}
        await self.write(visit, action, form, outcome.result, **told)
        return outcome

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

    def _back(self, visit: Visit, form: Form, text: str, bad: bool) -> Response:
        where = self._rendering.back(visit, form.get("back"))
        return self._rendering.note(RedirectResponse(where, 303), text, bad)

    async def write(
        self, visit: Visit, action: Action, form: Form, result: str, **more: object
    ) -> None:
        """Write what became of an action to the audit. Raises OSError, see ``Audit.action``."""
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
