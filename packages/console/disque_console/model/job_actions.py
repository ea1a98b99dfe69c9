"""Actions on single jobs, or on several that were selected or shown."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

from disque_console.model.action import Action, Form, Order, Where, Word
from disque_console.model.jobs import JOB_ID
from disque_console.model.roles import Role
from disque_trio import humanize
from disque_trio.overview.names import shown, to_bytes, unquoted

AT_ONCE: Final = 100  # ids per command
MOST: Final = 1_000  # jobs per action


def job_value(id: str, address: str) -> str:
    """A job as forms contain it: its id, and the address of the node to ask."""
    return f"{id}@{address}"


def _jobs(form: Form) -> dict[str, list[str]]:
    """The job ids in a form, by the address of the node to ask. ``which`` selects the ticked jobs
    (``job``) or all jobs on the page (``shown``).

    Raises:
        ValueError: there are none or too many, or an id is invalid.
    """
    values = form.all("shown" if form.get("which") == "shown" else "job")
    found: dict[str, dict[str, None]] = {}
    for value in map(unquoted, values):
        id, _, address = value.partition("@")
        if not JOB_ID.fullmatch(id):
            raise ValueError(f"{id!r:.60} is not a job id")
        found.setdefault(address, {})[id] = None
    if not found:
        raise ValueError("select some jobs first, or choose all jobs on the page")
    count = sum(map(len, found.values()))
    if count > MOST:
        raise ValueError(f"at most {MOST:,} jobs at once")
    return {address: list(ids) for address, ids in found.items()}


def _count(form: Form) -> int:
    return form.stands_for or sum(map(len, _jobs(form).values()))


def _where(address: str) -> Where | str:
    return address or Where.ANY


def _each(command: str, *options: str) -> Callable[[Form], list[Order]]:
    """A command that takes ids."""

    def make(form: Form) -> list[Order]:
        orders = []
        for address, ids in _jobs(form).items():
            for at in range(0, len(ids), AT_ONCE):
                words: tuple[Word, ...] = (command, *options, *ids[at : at + AT_ONCE])
                orders.append(Order(words, _where(address)))
        return orders

    return make


def _asks(text: str) -> Callable[[Form], str]:
    def asks(form: Form) -> str:
        return text.format(jobs=humanize.jobs(_count(form)), to=shown(form.raw("to").strip()))

    return asks


def _says(text: str) -> Callable[[Form, Sequence[object]], str]:
    """``text``, with the sum of the numeric replies, and the number of jobs in the form."""

    def says(form: Form, replies: Sequence[object]) -> str:
        count = sum(reply for reply in replies if isinstance(reply, int))
        asked = _count(form)
        jobs = humanize.jobs(count) if count == asked else f"{count:,} of {humanize.jobs(asked)}"
        return text.format(jobs=jobs)

    return says


def _move(form: Form) -> list[Order]:
    to = form.raw("to").strip()
    if not to:
        raise ValueError("enter the queue to move the jobs to")
    return [
        Order(("UPDATEJOB", id, "QUEUE", to_bytes(to)), _where(address))
        for address, ids in _jobs(form).items()
        for id in ids
    ]


def _change(form: Form) -> list[Order]:
    words: list[Word] = []
    if delay := form.number("delay", whole=False):
        words += ["DELAY", delay]
    words += form.words("ttl", "retry")
    if not words:
        raise ValueError("enter a new delay, TTL or retry")
    return [
        Order(("UPDATEJOB", id, *words), _where(address))
        for address, ids in _jobs(form).items()
        for id in ids
    ]


def _changes(form: Form) -> str:
    words = {"delay": "DELAY", "ttl": "TTL", "retry": "RETRY"}
    told = ", ".join(f"{word} {text} s" for name, word in words.items() if (text := form.get(name)))
    return f"Change {humanize.jobs(_count(form))} to {told}? Jobs with a worker are left alone."


def _moved(form: Form, replies: Sequence[object]) -> str:
    return f"{humanize.jobs(len(replies))} moved to {shown(form.raw('to').strip())}."


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
    """Identifies the body that a form was made from."""
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
        raise ValueError("nothing to change")
    return orders


def _one(form: Form) -> dict[str, list[str]]:
    jobs = _jobs(form)
    if _count(form) != 1:
        raise ValueError("select only one job")
    return jobs


def _edited(form: Form, replies: Sequence[object]) -> str:
    changed = "The job has been changed. " if b"OK" in replies or "OK" in replies else ""
    if form.get("then") != "redrive":
        return changed.strip()
    if 1 in replies:
        return changed + "The dead letter was sent back, as a job with a new id."
    return changed + "It was not sent back: it is not a queued dead letter, or has no origin."


def _redrive(form: Form) -> list[Order]:
    ids = [id for ids in _jobs(form).values() for id in ids]
    command: list[Word] = ["REDRIVE", to_bytes(form.name())]
    if to := form.raw("to").strip():
        command += ["TO", to_bytes(to)]
    return [Order((*command, "MATCH", *ids))]


JOB_ACTIONS: Final = (
    Action("job-promote", "Retry now", Role.OPERATOR, _each("PROMOTE"),
           _says("{jobs} queued. This affects only delayed and paused jobs."),
           _asks("Queue {jobs} now, without waiting for the end of the delay or pause?")),
    Action("job-enqueue", "Queue again…", Role.OPERATOR, _each("ENQUEUE"), _says("{jobs} queued."),
           _asks("Queue {jobs} again? If a worker has one, it may be done twice.")),
    Action("job-cancel", "Cancel…", Role.OPERATOR, _each("CANCEL"), _says("{jobs} cancelled."),
           _asks("Cancel {jobs}? They will not be delivered again; a worker that has one is "
                 "notified."), danger=True),
    Action("job-move", "Move…", Role.OPERATOR, _move, _moved,
           _asks("Move {jobs} to {to}? Jobs with a worker stay.")),
    Action("job-change", "Change…", Role.OPERATOR, _change,
           lambda form, replies: f"{humanize.jobs(len(replies))} changed.", _changes),
    Action("job-delete", "Delete…", Role.OPERATOR, _each("DELJOB", "BCAST", "FORCE"),
           _says("{jobs} deleted."),
           _asks("Delete {jobs} from all reachable nodes? No trace is kept: workers are not "
                 "notified, and an unreachable node brings the jobs back when it returns. "
                 "Cancelling is usually better."), danger=True),
    Action("job-nack", "NACK", Role.OPERATOR, _nack, _says("{jobs} returned (NACK).")),
    Action("job-edit", "Save", Role.OPERATOR, _edit, _edited),
    Action("job-redrive", "Redrive…", Role.OPERATOR, _redrive,
           _says("{jobs} sent back, as jobs with new ids."),
           _asks("Send {jobs} back as new jobs? Only queued jobs are sent; if you name no queue, "
                 "only dead letters.")),
)  # fmt: skip
"""Part of ``actions.ACTIONS``."""
