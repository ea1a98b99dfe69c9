"""Actions on the nodes of a cluster."""

from collections.abc import Callable, Sequence
from typing import Final

from disque_console.model.action import Action, Form, Order, Where
from disque_console.model.roles import Role
from disque_trio.overview.names import shown


def of_node(text: str) -> Callable[[Form], str]:
    """A question: ``text`` with the form's node."""
    return lambda form: text.format(node=shown(form.name("node")))


def said(text: str) -> Callable[[Form, Sequence[object]], str]:
    """A message on success: ``text`` with the form's node."""
    return lambda form, _: of_node(text)(form)


def _leave(form: Form) -> list[Order]:
    return [Order(("CLUSTER", "LEAVING", "yes"), form.name("node"))]


def _stay(form: Form) -> list[Order]:
    return [Order(("CLUSTER", "LEAVING", "no"), form.name("node"))]


def _meet(form: Form) -> list[Order]:
    host, port = form.get("host"), form.number("port", least=1)
    if not host or not port:
        raise ValueError("enter the host and the port of the other node")
    return [Order(("CLUSTER", "MEET", host, port), form.get("node") or Where.ANY)]


def _forget(form: Form) -> list[Order]:
    # All nodes must forget it within a minute, or they learn about it from each other again.
    return [Order(("CLUSTER", "FORGET", form.name("id")), Where.EVERY, but=form.name("node"))]


CLUSTER_ACTIONS: Final = (
    Action(
        "leave", "Take out…", Role.ADMIN, _leave, said("{node} no longer accepts new jobs."),
        of_node("Take {node} out? It will accept no new jobs, but still deliver its queued jobs. "
                "Until then, jobs that need more copies than there are other nodes cannot be added "
                "(NOREPL). You can take it back."),
    ),
    Action("stay", "Take back", Role.ADMIN, _stay, said("{node} accepts jobs again.")),
    Action(
        "meet", "Meet", Role.ADMIN, _meet,
        lambda form, _: f"{shown(form.get('host'))}:{form.get('port')} is being added; it "
        "will be in the list once it has answered.",
    ),
    Action(
        "forget", "Forget…", Role.ADMIN, _forget, said("{node} is forgotten."),
        of_node("Make all other nodes forget {node}? Jobs that only it holds are unavailable until "
                "it is met again. Stop the node first if it is still running, or it may come "
                "back after a minute."),
        danger=True,
    ),
)  # fmt: skip
