"""What people have set for a cluster, as an object of JSON: policies, schedules, bindings, users.

``disque definitions export`` writes it, and ``disque definitions import`` reads it::

    {"policies": {"mail": {"attempts": 5, "backoff": [1, 60]}},
     "schedules": {"nightly": {"times": "0 3 * * *", "queue": "reports", "job": "all"}},
     "bindings": [{"topic": "mail.new", "queue": "mail"}],
     "users": {"worker": "on #5e88... ~mail -@all +getjob +ackjob"}}
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from disque_trio.cli.subcommands.reach import Member, Reached
from disque_trio.cli.subcommands.subcommand import Call
from disque_trio.client import policies, replies
from disque_trio.respclient.errors import DisqueError
from disque_trio.respclient.values import elements, pairs, text

KINDS: Final = ("users", "policies", "schedules", "bindings")
"""In the order in which they are set: schedules and bindings need the rights of users."""


async def read(call: Call, reached: Reached, kinds: Sequence[str]) -> tuple[dict[str, Any], int]:
    """The definitions of a cluster, and the exit status: 1 if the user was told that something is
    not as it seems."""
    member = reached.first
    readers = {
        "policies": policies_of,
        "schedules": schedules_of,
        "bindings": bindings_of,
        "users": users_of,
    }
    found: dict[str, Any] = {}
    status = 0
    for kind in kinds:
        try:
            found[kind] = await readers[kind](member)
        except DisqueError as error:
            call.printer.complain(f"{kind} are left out: {member.address}: {error}")
            status = 1
    if "users" in found:
        for other in reached.members:
            status = await _compare_users(call, other, found["users"], member) or status
    return found, status


async def policies_of(member: Member) -> dict[str, dict[str, Any]]:
    """The options that are set, by the name of the policy."""
    found = map(policies.policy, elements(await member.ask("QGET")))
    return {policy.name: options_of(policy) for policy in found if policy is not None}


def options_of(policy: policies.Policy) -> dict[str, Any]:
    """The options that a policy sets, as JSON has them."""
    options = {name: value for name, value in asdict(policy).items() if value is not None}
    del options["name"]
    return {n: list(value) if isinstance(value, tuple) else value for n, value in options.items()}


async def schedules_of(member: Member) -> dict[str, dict[str, Any]]:
    """The schedules by name, with what is not as usual."""
    listed = map(replies.schedule, elements(await member.ask("CRON", "LIST")))
    names = [schedule.name for schedule in listed if schedule is not None]
    got = await member.ask_all([["CRON", "GET", name] for name in names])
    for answer in got:
        if isinstance(answer, DisqueError):
            raise answer
    found = filter(None, map(replies.schedule, got))
    return {schedule.name: _schedule(schedule) for schedule in found}


def _schedule(schedule: replies.Schedule) -> dict[str, Any]:
    fields: dict[str, Any] = {"times": schedule.times, "queue": schedule.queue}
    body = schedule.body or b""
    try:
        fields["job"] = body.decode()
    except UnicodeDecodeError:
        fields["job_base64"] = base64.b64encode(body).decode()
    more = {
        "tz": schedule.tz if schedule.tz != "UTC" else "",
        "catchup": schedule.catchup,
        "paused": schedule.paused,
        "options": list(schedule.options),
        "user": schedule.user,
    }
    return fields | {name: value for name, value in more.items() if value}


async def bindings_of(member: Member) -> list[dict[str, str]]:
    """The bindings, by topic and queue."""
    found = []
    for entry in elements(await member.ask("BINDINGS", "FULL")):
        fields = {name: text(value) for name, value in pairs(entry)}
        names = ("topic", "queue", "user")
        found.append({name: fields[name] for name in names if fields.get(name)})
    return found


async def users_of(member: Member) -> dict[str, str]:
    """The rules of the users, by name."""
    lines = [text(line).split(" ") for line in elements(await member.ask("ACL", "LIST"))]
    return {words[1]: " ".join(words[2:]) for words in lines}


async def _compare_users(
    call: Call, other: Member, users: Mapping[str, str], member: Member
) -> int:
    """Tell which users another node has otherwise: nodes do not share them."""
    try:
        theirs = await users_of(other)
    except DisqueError as error:
        call.printer.complain(f"users of {other.address}: {error}")
        return 1
    names = sorted(name for name in {*users, *theirs} if users.get(name) != theirs.get(name))
    if not names:
        return 0
    call.printer.complain(
        f"users differ between {member.address}, which is written, and {other.address}:"
        f" {', '.join(names)}"
    )
    return 1


def parse(content: bytes) -> dict[str, Any]:
    """The definitions of a file. Raises ValueError, which names what is wrong where."""
    found = json.loads(content)
    wanted: dict[str, type] = {kind: list if kind == "bindings" else dict for kind in KINDS}
    if not isinstance(found, dict):
        raise ValueError("not an object")
    for kind, value in found.items():
        if kind not in wanted:
            raise ValueError(f"{kind!r} is not one of {', '.join(wanted)}")
        if not isinstance(value, wanted[kind]):
            raise ValueError(f"{kind} must be {'a list' if wanted[kind] is list else 'an object'}")
    for name, fields in [*found.get("policies", {}).items(), *found.get("schedules", {}).items()]:
        if not isinstance(fields, dict):
            raise ValueError(f"{name!r} must be an object")
    return found
