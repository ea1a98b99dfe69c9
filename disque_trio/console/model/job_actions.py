"""What can be done with single jobs, or with several that were ticked or shown."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

from disque_trio.console.model.action import Action, Form, Order, Where, Word
from disque_trio.console.model.jobs import JOB_ID
from disque_trio.console.model.names import shown, to_bytes, unquoted
from disque_trio.console.model.roles import Role

AT_ONCE: Final = 100  # ids in a command
MOST: Final = 1_000  # jobs for an action


def job_value(id: str, address: str) -> str:
    """A job as forms carry it: its id, and the address of the node to ask."""
    return f"{id}@{address}"


def _jobs(form: Form) -> dict[str, list[str]]:
    """The ids of the jobs of a form, by the address of the node to ask. ``which`` says whether
    those count that were ticked (``job``) or all that the page shows (``shown``).

    Raises:
        ValueError: there are none, or too many, or they are no ids.
    """
    values = form.all("shown" if form.get("which") == "shown" else "job")
    found: dict[str, dict[str, None]] = {}
    for value in map(unquoted, values):
        id, _, address = value.partition("@")
        if not JOB_ID.fullmatch(id):
            raise ValueError(f"{id!r:.60} is no id of a job")
        found.setdefault(address, {})[id] = None
    if not found:
        raise ValueError("tick the jobs first, or choose all that are shown")
    count = sum(map(len, found.values()))
    if count > MOST:
        raise ValueError(f"at most {MOST:,} jobs at once")
    return {address: list(ids) for address, ids in found.items()}


def _count(form: Form) -> int:
    return sum(map(len, _jobs(form).values()))


def _number_of(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _where(address: str) -> Where | str:
    return address or Where.ANY


def _each(command: str, *options: str, to_any: bool = False) -> Callable[[Form], list[Order]]:
    """A command that takes ids. to_any: any node can do it for all."""

    def make(form: Form) -> list[Order]:
        orders = []
        for address, ids in _jobs(form).items():
            for at in range(0, len(ids), AT_ONCE):
                words: tuple[Word, ...] = (command, *options, *ids[at : at + AT_ONCE])
                orders.append(Order(words, Where.ANY if to_any else _where(address)))
        return orders

    return make


def _asks(text: str) -> Callable[[Form], str]:
    def asks(form: Form) -> str:
        return text.format(jobs=_number_of(_count(form)), to=shown(form.raw("to").strip()))

    return asks


def _says(text: str) -> Callable[[Form, Sequence[object]], str]:
    """``text``, with the sum of the replies that are numbers, of so many as were asked for."""

    def says(form: Form, replies: Sequence[object]) -> str:
        count = sum(reply for reply in replies if isinstance(reply, int))
        asked = _count(form)
        jobs = _number_of(count) if count == asked else f"{count:,} of {_number_of(asked)}"
        return text.format(jobs=jobs, asked=_number_of(asked))

    return says


def _move(form: Form) -> list[Order]:
    to = form.raw("to").strip()
    if not to:
        raise ValueError("say which queue the jobs are moved to")
    return [
        Order(("UPDATEJOB", id, "QUEUE", to_bytes(to)), _where(address))
        for address, ids in _jobs(form).items()
        for id in ids
    ]


def _moved(form: Form, replies: Sequence[object]) -> str:
    return f"{_number_of(len(replies))} moved to {shown(form.raw('to').strip())}."


def _nack(form: Form) -> list[Order]:
    options: list[Word] = []
    if form.get("dead"):
        options.append("DEAD")
    elif delay := form.number("delay", whole=False):
        options += ["DELAY", delay]
    if reason := form.raw("reason").strip():
        options += ["REASON", to_bytes(reason)]
    return [
        Order(("NACK", *ids, *options), _where(address)) for address, ids in _jobs(form).items()
    ]


def body_mark(body: bytes) -> str:
    """By what a form knows the body that it was made with."""
    return sha256(body).hexdigest()


def _edit(form: Form) -> list[Order]:
    [(address, [id])] = _one(form).items()
    words: list[Word] = []
    if form.all("body"):
        body = form.raw("body")
        data = to_bytes(body.replace("\n", "\r\n") if form.get("ends") == "crlf" else body)
        if body_mark(data) != form.get("mark"):
            words += ["BODY", data]
    if delay := form.number("delay", whole=False):
        words += ["DELAY", delay]
    words += form.words("ttl", "retry")
    orders = [Order(("UPDATEJOB", id, *words), _where(address))] if words else []
    if form.get("then") == "redrive":
        command = ("REDRIVE", to_bytes(form.name()), "MATCH", id)
        return [*orders, Order(command, needs=True)]
    if not orders:
        raise ValueError("nothing was changed")
    return orders


def _one(form: Form) -> dict[str, list[str]]:
    jobs = _jobs(form)
    if _count(form) != 1:
        raise ValueError("one job at a time")
    return jobs


def _edited(form: Form, replies: Sequence[object]) -> str:
    changed = "The job is changed. " if b"OK" in replies or "OK" in replies else ""
    if form.get("then") != "redrive":
        return changed.strip()
    if 1 in replies:
        return changed + "The letter was sent back, as a new job with an id of its own."
    return changed + "It was not sent back: it is no letter that is queued, or came from nowhere."


def _redrive(form: Form) -> list[Order]:
    ids = [id for ids in _jobs(form).values() for id in ids]
    command: list[Word] = ["REDRIVE", to_bytes(form.name())]
    if to := form.raw("to").strip():
        command += ["TO", to_bytes(to)]
    return [Order((*command, "MATCH", *ids))]


JOB_ACTIONS: Final = (
    Action("job-promote", "Retry now", Role.OPERATOR, _each("PROMOTE"),
           _says("{jobs} queued. Only jobs go that wait for the end of a delay or pause."),
           _asks("Queue {jobs} now, of which the delay or the pause is not over?")),
    Action("job-enqueue", "Queue again…", Role.OPERATOR, _each("ENQUEUE"), _says("{jobs} queued."),
           _asks("Queue {jobs} again? A worker that has one goes on, so it may be done twice.")),
    Action("job-cancel", "Cancel…", Role.OPERATOR, _each("CANCEL"), _says("{jobs} cancelled."),
           _asks("Cancel {jobs}? They are not delivered any more; a worker that has one is "
                 "told."), danger=True),
    Action("job-move", "Move…", Role.OPERATOR, _move, _moved,
           _asks("Move {jobs} to {to}? Jobs that a worker has stay.")),
    Action("job-delete", "Delete…", Role.OPERATOR, _each("DELJOB", "BCAST", "FORCE"),
           _says("{jobs} deleted."),
           _asks("Delete {jobs} from all nodes that can be reached? Nothing remembers them: a "
                 "worker that has one is not told, and a node that is away brings them back. "
                 "Rather cancel them."), danger=True),
    Action("job-nack", "NACK", Role.OPERATOR, _nack, _says("{jobs} handed back.")),
    Action("job-edit", "Save", Role.OPERATOR, _edit, _edited),
    Action("job-redrive", "Redrive…", Role.OPERATOR, _redrive,
           _says("{jobs} sent back, as new jobs with ids of their own."),
           _asks("Send {jobs} back as new jobs? Only letters that are queued go.")),
)  # fmt: skip
"""In the table of ``actions``."""
