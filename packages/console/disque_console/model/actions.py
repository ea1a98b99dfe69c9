"""The actions of the console: one table for buttons, role checks, routes and the audit.

An ``Action`` (``action.py``) turns the fields of a form into commands. To add one, write a function
from a ``Form`` to a list of ``Order`` and add a line to ``ACTIONS``, or to the table of another
module in this package that ``ACTIONS`` includes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from disque_console.model.action import Action, Form, Order, Where, Word
from disque_console.model.cluster_actions import CLUSTER_ACTIONS
from disque_console.model.job_actions import JOB_ACTIONS
from disque_console.model.node_actions import NODE_ACTIONS
from disque_console.model.policy_actions import POLICY_ACTIONS
from disque_console.model.roles import Role
from disque_console.model.schedule_actions import SCHEDULE_ACTIONS
from disque_console.model.worker_actions import WORKER_ACTIONS
from disque_trio import humanize
from disque_trio.job_options import OPTIONS, ScheduleOptions, Whole, Words
from disque_trio.overview.names import shown, to_bytes


def _about(text: str) -> Callable[[Form], str]:
    """``text``, with the queue and the number of jobs queued there."""
    return lambda form: text.format(queue=shown(form.name()), jobs=humanize.jobs(form.stands_for))


def _sends(text: str) -> Callable[[Form], str]:
    """``text``, with the queue, the target and limit that were typed, and the number of jobs queued
    there."""

    def asks(form: Form) -> str:
        to, count = form.raw("to").strip(), form.number("count")
        target = f" to {shown(to)}" if to else ""
        most = f", at most {int(count):,}" if count else ""
        queue, jobs = shown(form.name()), humanize.jobs(form.stands_for)
        return f"{text.format(queue=queue, to=target)}{most}? {queue} has {jobs} now."

    return asks


def _said(text: str) -> Callable[[Form, Sequence[object]], str]:
    """``text``, with the queue, and the sum of the replies that are numbers."""

    def says(form: Form, replies: Sequence[object]) -> str:
        count = sum(reply for reply in replies if isinstance(reply, int))
        return text.format(queue=shown(form.name()), jobs=humanize.jobs(count))

    return says


def _pause(form: Form) -> list[Order]:
    word = form.get("direction")
    if word not in ("in", "out", "all"):
        raise ValueError("pause in, out or all")
    # "none" comes first, so that pauses do not add up. Each node gets its own command, because
    # bcast reaches nodes that no other node is connected to only later.
    return [Order(("PAUSE", to_bytes(form.name()), "none", word, "bcast"), Where.EVERY)]


def _resume(form: Form) -> list[Order]:
    return [Order(("PAUSE", to_bytes(form.name()), "none", "bcast"), Where.EVERY)]


def _purge(form: Form) -> list[Order]:
    return [Order(("QPURGE", to_bytes(form.name())))]


def _redrive(form: Form) -> list[Order]:
    command: list[Word] = ["REDRIVE", to_bytes(form.name())]
    if to := form.raw("to").strip():
        command += ["TO", to_bytes(to)]
    return [Order((*command, *form.words("count")))]


def _move(form: Form) -> list[Order]:
    to = form.raw("to").strip()
    if not to:
        raise ValueError("enter the queue to move the jobs to")
    return [Order(("QMOVE", to_bytes(form.name()), to_bytes(to), *form.words("count")))]


JOB_OPTIONS: Final = {name: OPTIONS[name] for name in ScheduleOptions.__annotations__}
"""Options of a job that the form has."""
ADD_TIMEOUT: Final = 3_000  # ms; less than ``io.calls.LIMIT``, so that the node can say why


def _add(form: Form) -> list[Order]:
    body = form.raw("body")
    command: list[Word] = ["ADDJOB", to_bytes(form.name()), to_bytes(body), ADD_TIMEOUT]
    for name, option in JOB_OPTIONS.items():
        if isinstance(option, Words):
            word: Word = to_bytes(form.get(name))
        else:
            word = form.number(name, option.least, whole=isinstance(option, Whole))
        if word:
            command += [name.upper(), word]
    return [Order((*command, *_headers(form.raw("headers"))))]


def _added(form: Form, replies: Sequence[object]) -> str:
    if not replies:
        return f"Added no job: no queue is bound to {shown(form.name())}."
    return "Added " + ", ".join(id.decode() for id in replies if isinstance(id, bytes)) + "."


def _headers(text: str) -> list[Word]:
    pairs: list[Word] = []
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"headers: {line!r} is not of the form name: value")
        pairs += [to_bytes(name.strip()), to_bytes(value.strip())]
    return ["HEADERS", len(pairs) // 2, *pairs] if pairs else []


ACTIONS: Final[Mapping[str, Action]] = {
    action.name: action
    for action in (
        *JOB_ACTIONS,
        *CLUSTER_ACTIONS, *NODE_ACTIONS, *POLICY_ACTIONS, *SCHEDULE_ACTIONS,
        *WORKER_ACTIONS,
        Action("pause", "Pause", Role.OPERATOR, _pause, _said("{queue} is paused.")),
        Action("resume", "Resume", Role.OPERATOR, _resume, _said("{queue} is no longer paused.")),
        Action(
            "purge", "Purge…", Role.OPERATOR, _purge, _said("Cancelled {jobs} in {queue}."),
            _about("Cancel all jobs queued in {queue}, on all reachable nodes? It has {jobs} now. "
                   "Delayed jobs and jobs with a worker stay."), danger=True, of_queue=True,
        ),
        Action(
            "redrive", "Redrive…", Role.OPERATOR, _redrive, _said("Sent {jobs} back from {queue}."),
            _sends("Send dead letters from {queue} back{to}"), of_queue=True,
        ),
        Action(
            "move", "Move…", Role.OPERATOR, _move, _said("Moved {jobs} from {queue}."),
            _sends("Move queued jobs from {queue}{to}"), of_queue=True,
        ),
        Action("add", "Add job", Role.OPERATOR, _add, _added),
    )
}  # fmt: skip
"""By name."""
