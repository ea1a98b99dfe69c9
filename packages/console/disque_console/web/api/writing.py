"""What the API does: actions, tokens."""

from typing import Any, Final

from disque_console.model.action import Form
from disque_console.model.actions import ACTIONS
from disque_console.web.acting import Acting
from disque_console.web.admission import TurnedAway, admit
from disque_console.web.api.endpoint import Given, Problem
from disque_console.web.refusals import no_audit, role_refusal
from disque_console.web.visit import Missing, Visit

_NAME: Final = 200  # characters


class PlainForm(Form):
    """A form in which names of queues are written as they are, not quoted."""

    def name(self, field: str = "queue") -> str:
        values = self.fields.get(field)
        if not values or not values[0]:
            raise ValueError(f"there is no {field}")
        return values[0]


class Writing:
    """Does what visitors of the API ask for."""

    def __init__(self, acting: Acting) -> None:
        self._acting = acting

    async def act(self, visit: Visit, given: Given) -> Any:
        """Execute an action."""
        action = ACTIONS.get(given["name"])
        if action is None:
            raise Missing("there is no such action")
        fields: dict[str, Any] = given["body"]
        form = PlainForm(
            {name: [value] if isinstance(value, str) else value for name, value in fields.items()}
        )
        if refused := role_refusal(visit, action):
            await self._acting.write(visit, action, form, "refused", why=refused.why)
            raise Problem(403, refused.text)
        try:
            orders = action.make(form)
        except ValueError as error:
            raise Problem(400, str(error)) from error
        try:
            outcome = await self._acting.execute(visit, action, form, orders)
        except OSError as error:
            raise Problem(500, no_audit(error)) from error
        if outcome.problems and not outcome.good:
            raise Problem(409, "; ".join(outcome.problems))
        return {
            "result": outcome.result,
            "message": outcome.says(action, form),
            "problems": list(outcome.problems),
        }

    async def log_in(self, visit: Visit, given: Given) -> Any:
        """Begin a session."""
        if not visit.console.accounts.wanted:
            raise Problem(409, "this console has no accounts: requests need no token")
        user, password = given["body"]["user"], given["body"]["password"]
        admitted = await admit(visit, user[:_NAME], password, "")
        if isinstance(admitted, TurnedAway):
            raise Problem(admitted.status, admitted.text)
        session, token = admitted
        return {
            "token": token,
            "user": session.user,
            "role": str(session.role),
            "expires": session.expires,
        }

    async def log_out(self, visit: Visit, given: Given) -> Any:
        """End the session."""
        session = visit.visitor.session
        if session is not None:
            console = visit.console
            console.sessions.end(session, visit.now)
            console.accounts.ended(session)
            await console.audit.note("logout", user=session.user, address=visit.visitor.address)
