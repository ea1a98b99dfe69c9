"""Actions on worker processes (WORKER STOP)."""

from collections.abc import Callable, Sequence
from typing import Final

from disque_console.model.action import Action, Form, Order, Word
from disque_console.model.roles import Role
from disque_trio import humanize
from disque_trio.overview.names import shown


def _stop(*more: Word) -> Callable[[Form], list[Order]]:
    def make(form: Form) -> list[Order]:
        id = form.number("id", least=1)
        if not id:
            raise ValueError("the form names no client")
        return [Order(("WORKER", "STOP", id, *more), form.name("node"))]

    return make


def _stopped(text: str) -> Callable[[Form, Sequence[object]], str]:
    def says(form: Form, replies: Sequence[object]) -> str:
        if any(isinstance(reply, int) and reply > 0 for reply in replies):
            return f"{shown(form.name('who'))} {text}. It hears of that with its next report."
        return f"{shown(form.name('who'))} no longer reports to {shown(form.name('node'))}."

    return says


def _running(form: Form) -> str:
    return humanize.jobs(int(form.number("running") or 0))


WORKER_ACTIONS: Final = (
    Action(
        "worker-stop", "Stop…", Role.OPERATOR, _stop(), _stopped("is asked to stop"),
        lambda form: f"Stop the worker {shown(form.name('who'))}, with all its processes? They "
        f"take no more jobs, finish what they have (this one {_running(form)}) within their grace, "
        "and end. Whatever supervises them may start them again.",
        danger=True,
    ),
    Action(
        "worker-hand-back", "Hand back…", Role.OPERATOR, _stop("HANDBACK"),
        _stopped("is asked to hand back its jobs"),
        lambda form: f"Let the worker {shown(form.name('who'))} hand back its jobs, with all its "
        f"processes, and end? What runs there now (in this process {_running(form)}) is cut off "
        "and queued again at once. Whatever supervises them may start them again.",
        danger=True,
    ),
)  # fmt: skip
