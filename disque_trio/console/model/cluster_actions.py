"""What can be done with the nodes of a cluster."""

from collections.abc import Callable, Sequence
from typing import Final

from disque_trio.console.model.action import Action, Form, Order, Where
from disque_trio.console.model.names import shown
from disque_trio.console.model.roles import Role


def of_node(text: str) -> Callable[[Form], str]:
    """``text`` about the node of a form."""
    return lambda form: text.format(node=shown(form.name("node")))


def said(text: str) -> Callable[[Form, Sequence[object]], str]:
    """The same, of what was done."""
    return lambda form, _: of_node(text)(form)


def _leave(form: Form) -> list[Order]:
    return [Order(("CLUSTER", "LEAVING", "yes"), form.name("node"))]


def _stay(form: Form) -> list[Order]:
    return [Order(("CLUSTER", "LEAVING", "no"), form.name("node"))]


def _meet(form: Form) -> list[Order]:
    host, port = form.get("host"), form.number("port", least=1)
    if not host or not port:
        raise ValueError("say the host and the port of the other node")
    return [Order(("CLUSTER", "MEET", host, port), form.get("node") or Where.ANY)]


def _forget(form: Form) -> list[Order]:
    # Within a minute all have to be told, or they tell each other of it again.
    return [Order(("CLUSTER", "FORGET", form.name("id")), Where.EVERY, but=form.name("node"))]


CLUSTER_ACTIONS: Final = (
    Action(
        "leave", "Take out…", Role.ADMIN, _leave, said("{node} takes no new jobs any more."),
        of_node("Let {node} take no new jobs, so that it can be taken out of the cluster? What is "
                "queued there is still processed. It can be taken back."),
    ),
    Action("stay", "Take back", Role.ADMIN, _stay, said("{node} takes jobs again.")),
    Action(
        "meet", "Meet", Role.ADMIN, _meet,
        lambda form, _: f"{shown(form.get('host'))}:{form.get('port')} is being met; it is in "
        "the list when it has answered.",
    ),
    Action(
        "forget", "Forget…", Role.ADMIN, _forget, said("{node} is forgotten."),
        of_node("Have all other nodes forget {node}? Jobs that it alone holds are out of reach "
                "until it is met again. One that still runs has to be stopped first: after a "
                "minute it could come back."),
        danger=True,
    ),
)  # fmt: skip
