"""Actions on schedules (CRON)."""

from collections.abc import Callable, Sequence
from typing import Final

from disque_console.model.action import WAS, Action, Form, Order, Word
from disque_console.model.roles import Role
from disque_trio.config.words import split_words
from disque_trio.overview.names import shown, to_bytes


def _plain(command: str) -> Callable[[Form], list[Order]]:
    return lambda form: [Order(("CRON", command, to_bytes(form.name("schedule"))))]


def _said(text: str) -> Callable[[Form, Sequence[object]], str]:
    return lambda form, _: text.format(name=shown(form.name("schedule")))


def _ran(form: Form, replies: Sequence[object]) -> str:
    ids = replies[0] if replies and isinstance(replies[0], list) else replies
    added = ", ".join(id.decode() for id in ids if isinstance(id, bytes))
    return f"{shown(form.name('schedule'))} added {added or 'no job'}."


def _deleted(form: Form, replies: Sequence[object]) -> str:
    if 1 in replies:
        return f"{shown(form.name('schedule'))} has been deleted."
    return f"There is no schedule {shown(form.name('schedule'))}."


def _set(form: Form) -> list[Order]:
    name, times, queue = form.typed("name"), form.get("times"), form.typed("queue")
    if form.all("name" + WAS) and form.touched("name"):
        raise ValueError("a schedule cannot be renamed: add a new one and delete this one")
    if not name or not times or not queue:
        raise ValueError("a schedule needs a name, times and a queue")
    command: list[Word] = ["CRON", "SET", to_bytes(name), times]
    if zone := form.get("tz"):
        command += ["TZ", zone]
    if form.get("catchup"):
        command.append("CATCHUP")
    command += [to_bytes(queue), to_bytes(form.raw("body"))]
    command += [to_bytes(word) for word in split_words(form.typed("options"))]
    return [Order(tuple(command))]


SCHEDULE_ACTIONS: Final = (
    Action("cron-run", "Run now", Role.OPERATOR, _plain("RUN"), _ran),
    Action("cron-pause", "Pause", Role.OPERATOR, _plain("PAUSE"), _said("{name} is paused.")),
    Action("cron-resume", "Resume", Role.OPERATOR, _plain("RESUME"),
           _said("{name} is no longer paused.")),
    Action(
        "cron-delete", "Delete…", Role.OPERATOR, _plain("DEL"), _deleted,
        lambda form: f"Delete the schedule {shown(form.name('schedule'))}? Jobs that it has "
        "added stay.",
        danger=True,
    ),
    Action(
        "cron-set", "Save schedule", Role.OPERATOR, _set,
        lambda form, _: f"The schedule {shown(form.typed('name'))} has been saved.",
    ),
)  # fmt: skip
