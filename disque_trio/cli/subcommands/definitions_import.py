"""``disque definitions import``: sets what ``disque definitions export`` has written."""

import base64
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from disque_trio.cli.subcommands import definitions
from disque_trio.cli.subcommands.reach import Member, reach
from disque_trio.cli.subcommands.subcommand import Call, Failure, Subcommand
from disque_trio.client import policies, requests
from disque_trio.overview.names import to_bytes
from disque_trio.policy_options import OPTIONS
from disque_trio.process.options import Parser
from disque_trio.resp.command import Argument
from disque_trio.respclient.errors import DisqueError
from disque_trio.respclient.values import text

NOTHING: Final[list[Argument]] = ["TTL", 0]
"""Sets a policy without options."""


class Step(NamedTuple):
    """Something that has to be set. kind: singular. user: whose it is; empty: nobody's."""

    kind: str
    name: str
    commands: list[list[Argument]]
    user: str = ""


def policy_steps(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[Step]:
    """What makes the policies of a cluster those that are wanted; others stay. Raises
    ValueError."""
    for name, options in wanted.items():
        if present.get(name) == options:
            continue
        dropped = [o for o in OPTIONS if o.name in present.get(name, {}) and o.name not in options]
        try:
            words = policies.words(options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"policy {name!r}: {error}") from None
        for option in dropped:
            words += [option.word, *["" if option.arity == 1 else 0] * option.arity]
        yield Step("policy", name, [["QSET", to_bytes(name), *(words or NOTHING)]])


def schedule_steps(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[Step]:
    """The same for schedules."""
    for name, fields in wanted.items():
        if present.get(name) == fields:
            continue
        try:
            job = fields["job"] if "job" in fields else base64.b64decode(fields["job_base64"])
            body = job if isinstance(job, bytes) else to_bytes(job)
            tz, catchup = fields.get("tz") or None, bool(fields.get("catchup"))
            words = requests.cron(to_bytes(name), fields["times"], tz, catchup)
            options = [to_bytes(option) for option in fields.get("options", [])]
            queue = to_bytes(fields["queue"])
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"schedule {name!r}: {error!r}") from None
        commands: list[list[Argument]] = [["CRON", *words, queue, body, *options]]
        if fields.get("paused"):
            commands.append(["CRON", "PAUSE", to_bytes(name)])
        yield Step("schedule", name, commands, fields.get("user", ""))


def binding_steps(wanted: list[Any], present: list[Any]) -> Iterator[Step]:
    """The same for bindings."""
    for entry in wanted:
        if entry in present:
            continue
        try:
            topic, queue = to_bytes(entry["topic"]), to_bytes(entry["queue"])
        except (KeyError, AttributeError, TypeError):
            raise ValueError(f"binding {entry!r} needs a topic and a queue") from None
        name = f"{entry['topic']} to {entry['queue']}"
        yield Step("binding", name, [["BIND", topic, queue]], entry.get("user", ""))


def user_steps(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[Step]:
    """The same for the users of one node."""
    for name, rules in wanted.items():
        if present.get(name) == rules:
            continue
        if not isinstance(rules, str):
            raise ValueError(f"user {name!r}: the rules must be a string")
        words = [to_bytes(rule) for rule in rules.split()]
        yield Step("user", name, [["ACL", "SETUSER", to_bytes(name), "reset", *words]])


@dataclass
class Import:
    """An import. set: how many of each kind. dry: say what would be set, and set nothing."""

    call: Call
    dry: bool
    set: Counter[str]
    status: int = 0

    async def take(self, member: Member, steps: list[Step]) -> None:
        """Set what is missing, as long as it belongs to nobody or to the user who imports."""
        me = None
        for step in steps:
            if step.user:
                me = me or text(await member.ask("ACL", "WHOAMI"))
            if step.user and step.user != me:
                self._complain(f"is {step.user}'s: import it as that user", step)
                continue
            if self.dry:
                self.call.printer.tell(f"{member.address}: would set {step.kind} {step.name}")
            else:
                answers = await member.ask_all(step.commands)
                problems = [answer for answer in answers if isinstance(answer, DisqueError)]
                if problems:
                    self._complain(f"{member.address}: {problems[0]}", step)
                    continue
            self.set[step.kind] += 1

    def _complain(self, why: str, step: Step) -> None:
        self.call.printer.complain(f"{step.kind} {step.name}: {why}")
        self.status = 1


def _describe(parser: Parser) -> None:
    add = parser.add_argument
    add("file", nargs="?", default="-", help="the definitions; - is standard input (the default)")
    add("--dry-run", action="store_true", help="say what would be set, and set nothing")


def _content(name: str) -> dict[str, Any]:
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return definitions.parse(content)
    except OSError as error:
        raise Failure(f"{name}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Failure(f"{name}: not definitions: {error}") from None


async def _run(call: Call) -> int:
    wanted = _content(call.arguments.file)
    importing = Import(call, call.arguments.dry_run, Counter())
    async with reach(call) as reached:
        importing.status = reached.complain(call)
        try:
            # Nodes do not share users.
            for member in reached.members if wanted.get("users") else ():
                steps = list(user_steps(wanted["users"], await definitions.users_of(member)))
                await importing.take(member, steps)
            await importing.take(reached.first, await _shared(reached.first, wanted))
        except ValueError as error:
            raise Failure(str(error)) from None
    fields = {kind: importing.set[kind] for kind in ("policy", "schedule", "binding", "user")}
    told = ", ".join(f"{kind}: {number}" for kind, number in fields.items())
    call.printer.result(fields, told, told)
    return importing.status


async def _shared(member: Member, wanted: Mapping[str, Any]) -> list[Step]:
    """What is missing of that which all nodes know."""
    steps: list[Step] = []
    if wanted.get("policies"):
        steps += policy_steps(wanted["policies"], await definitions.policies_of(member))
    if wanted.get("schedules"):
        steps += schedule_steps(wanted["schedules"], await definitions.schedules_of(member))
    if wanted.get("bindings"):
        steps += binding_steps(wanted["bindings"], await definitions.bindings_of(member))
    return steps


SUBCOMMAND: Final = Subcommand(_describe, _run)
