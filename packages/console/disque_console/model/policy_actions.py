"""Actions on policies (QSET, QDEL), and the form that shows one."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final

from disque_console.model.action import Action, Form, Order, Word
from disque_console.model.roles import Role
from disque_trio.client import Policy
from disque_trio.overview.names import shown, to_bytes

NUMBERS: Final = (
    "attempts", "deadttl", "ttl", "retry", "replicate", "maxlen", "maxbytes", "burst", "active"
)  # fmt: skip
"""Fields of the form that are whole numbers."""


def escape_pattern(name: str) -> str:
    """The name of a policy for exactly this queue, whatever characters its name contains."""
    return "".join("\\" + letter if letter in "*?[\\" else letter for letter in name)


def fields_of(policy: Policy | None) -> dict[str, str]:
    """What the fields of the form contain for ``policy``; empty: the option is not set."""
    policy = policy or Policy("")
    values = {name: getattr(policy, name.replace("deadttl", "dead_ttl")) for name in NUMBERS}
    values |= {"dead": policy.dead, "rate": policy.rate, "groups": policy.groups}
    shortest, longest = (str(pause).removesuffix(".0") for pause in policy.backoff or ("", ""))
    values |= {"backoff-min": shortest, "backoff-max": longest}
    return {name: "" if value is None else str(value) for name, value in values.items()}


def _set(form: Form) -> list[Order]:
    """Set all options; if the form was made from the policy to change (``edits``), only those that
    somebody changed in it, since another visitor may have changed others meanwhile."""
    options: list[tuple[tuple[Word, ...], tuple[str, ...]]] = [
        ((name.upper(), form.number(name) or b""), (name,)) for name in NUMBERS
    ]
    groups = form.get("groups")
    if groups not in ("", "fair", "fifo"):
        raise ValueError("groups must be fair, fifo or empty")
    shortest = form.number("backoff-min", whole=False)
    longest = form.number("backoff-max", whole=False)
    if bool(shortest) != bool(longest):
        raise ValueError("backoff needs both a shortest and a longest pause")
    options += [
        (("DEAD", to_bytes(form.typed("dead"))), ("dead",)),
        (("RATE", form.get("rate")), ("rate",)),
        (("GROUPS", groups), ("groups",)),
        (("BACKOFF", shortest or "0", longest or "0"), ("backoff-min", "backoff-max")),
    ]
    if form.get("edits"):
        options = [option for option in options if any(map(form.touched, option[1]))]
    if not options:
        raise ValueError("nothing to change")
    words = chain.from_iterable(option for option, _ in options)
    return [Order(("QSET", to_bytes(form.name("policy")), *words))]


def _delete(form: Form) -> list[Order]:
    return [Order(("QDEL", to_bytes(form.name("policy"))))]


def _said(text: str) -> Callable[[Form, Sequence[object]], str]:
    return lambda form, _: text.format(policy=shown(form.name("policy")))


POLICY_ACTIONS: Final = (
    Action("policy", "Save policy", Role.ADMIN, _set,
           _said("The policy of {policy} has been saved.")),
    Action(
        "unpolicy", "Delete policy…", Role.ADMIN, _delete,
        _said("The policy of {policy} has been deleted."),
        lambda form: f"Delete the policy of {shown(form.name('policy'))}?", danger=True,
    ),
)  # fmt: skip
"""Part of ``actions.ACTIONS``."""
