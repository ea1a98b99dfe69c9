"""Actions on policies (QSET, QDEL), and the form that shows one."""

from collections.abc import Callable, Sequence
from typing import Final

from disque_console.model.action import Action, Form, Order, Word
from disque_console.model.roles import Role
from disque_trio.client import Policy
from disque_trio.overview.names import shown, to_bytes
from disque_trio.policy_options import NAME, NUMBER, OPTIONS, SECONDS, PolicyOption


def names_of(option: PolicyOption) -> tuple[str, ...]:
    """The names of the fields for ``option`` in the form."""
    if option.kind == SECONDS:
        return tuple(attribute.replace("_", "-") for attribute in option.fields)
    return (option.word.lower(),)


FIELDS: Final = tuple(
    (name, option.label or name.replace("-", ", ").capitalize(), option)
    for option in OPTIONS
    for name in names_of(option)
)
"""Of the form: name, label and option."""


def escape_pattern(name: str) -> str:
    """The name of a policy for exactly this queue, whatever characters its name contains."""
    return "".join("\\" + letter if letter in "*?[\\" else letter for letter in name)


def fields_of(policy: Policy | None) -> dict[str, str]:
    """What the fields of the form contain for ``policy``; empty: the option is not set."""
    found: dict[str, str] = {}
    for option in OPTIONS:
        names = names_of(option)
        value = getattr(policy, option.name, None)
        values = value if isinstance(value, tuple) else (value,) * len(names)
        for name, one in zip(names, values, strict=True):
            text = "" if one is None else str(one)
            found[name] = text.removesuffix(".0") if option.kind == SECONDS else text
    return found


def _set(form: Form) -> list[Order]:
    """Set all options; if the form was made from the policy to change (``edits``), only those that
    somebody changed in it, since another visitor may have changed others meanwhile."""
    words: list[Word] = []
    for option in OPTIONS:
        values = _values(form, option)
        if not form.get("edits") or any(map(form.touched, names_of(option))):
            words += [option.word, *values]
    if not words:
        raise ValueError("nothing to change")
    return [Order(("QSET", to_bytes(form.name("policy")), *words))]


def _values(form: Form, option: PolicyOption) -> Sequence[Word]:
    names = names_of(option)
    if option.kind == NUMBER:
        return [form.number(names[0]) or b""]
    if option.kind == NAME:
        return [to_bytes(form.typed(names[0]))]
    if option.kind == SECONDS:
        times = [form.number(name, whole=False) for name in names]
        if any(times) and not all(times):
            raise ValueError(f"{option.name} needs both a shortest and a longest pause")
        return [time or "0" for time in times]
    word = form.get(names[0])
    if option.words and word not in ("", *option.words):
        raise ValueError(f"{option.name} must be {', '.join(option.words)} or empty")
    return [word]


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
