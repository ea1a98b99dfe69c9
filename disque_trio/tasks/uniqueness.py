"""What the options of a task say of the key that makes its jobs unique."""

import math
from collections.abc import Mapping
from typing import Any, Final, TypedDict

from disque_trio.job_options import Until, check_key


class UniqueOptions(TypedDict, total=False):
    """Options of jobs with a key.

    Keys:
        unique_for: seconds to keep the key, whatever becomes of the job. By default it is kept as
            long as the job lives.
        unique_until: ``start``: another job can be added as soon as a worker has this one;
            ``end``: when it has ended.
        replace: the last one counts: a job that has the key and has not started gets the arguments
            and options of the new one. One that has started is left alone, and the new one is
            added.
        debounce: run this many seconds after the last add: ``replace`` with a delay.
        throttle: run at most once in so many seconds, which begin with the add: another word for
            ``unique_for``.
    """

    unique_for: float | None
    unique_until: Until | None
    replace: bool
    debounce: float | None
    throttle: float | None


OF_KEYS: Final = frozenset(UniqueOptions.__annotations__)
"""The names of these options."""
_MOST_SECONDS: Final = (1 << 32) - 1  # which ADDJOB takes
_IMPLYING: Final = ("debounce", "throttle")


def implies_unique(options: Mapping[str, Any]) -> bool:
    """Whether ``options`` say that jobs are unique."""
    return any(options.get(name) is not None for name in _IMPLYING)


def said(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``options`` that say something of the key."""
    return {
        name: value
        for name in sorted(OF_KEYS & options.keys())
        if (value := options[name]) is not None and value is not False
    }


def check(options: Mapping[str, Any], unique: object) -> None:
    """Raise ValueError if ``options`` are wrong, or make no sense together.

    Args:
        unique: the option of this name; None: it is not given.
    """
    given = said(options)
    for name in given.keys() - {"unique_until", "replace"}:
        value = given[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and 0 < value < math.inf):
            raise ValueError(f"{name} must be a number of seconds above 0, not {value!r}")
        if value > _MOST_SECONDS:
            raise ValueError(f"{name} must be at most {_MOST_SECONDS} seconds, not {value!r}")
    if unique is False and given:
        raise ValueError(f"{min(given)} needs unique, which is False")
    if unique is None and given and not implies_unique(given):
        raise ValueError(f"{min(given)} needs unique")
    for name, others in (
        ("debounce", {"throttle", "unique_for"}),
        ("throttle", {"unique_for", "unique_until", "replace"}),
    ):
        if name in given and (wrong := others & given.keys()):
            raise ValueError(f"{name} cannot be combined with {min(wrong)}")
    found = of_addjob(given)
    until = given.get("unique_until")
    check_key({"unique_until": until, "replace": found.get("replace")}, True, "unique_for" in found)


def of_addjob(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of ``Client.add`` for a job that has a key, given those of its task."""
    found: dict[str, Any] = {}
    kept = options.get("throttle") or options.get("unique_for")
    if kept is not None:
        found["unique_for"] = kept
    debounce = options.get("debounce")
    if debounce is not None and options.get("delay") is None and options.get("at") is None:
        found["delay"] = debounce
    if options.get("replace") or debounce is not None:
        found["replace"] = True
    elif options.get("unique_until") == "start":
        found["unique_until"] = "start"
    return found
