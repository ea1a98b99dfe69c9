"""The options of a job, each described once: for all who add jobs, for nodes, and for the docs.

Everything else about an option comes from its line here: the arguments of the clients, the options
of tasks, the columns of Spark's sink, the field in the console's form, the syntax of ADDJOB.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias, TypedDict, get_args

Argument: TypeAlias = str | bytes | int
Text: TypeAlias = str | bytes
"""``str`` is sent as UTF-8."""
Headers: TypeAlias = Mapping[str, Text] | Iterable[tuple[Text, Text]]
"""Names and values; pass pairs if a name occurs several times."""


MAX_HEADERS: Final = 1_000
MAX_HEADERS_SIZE: Final = 64 * 1024  # bytes of all names and values of a job


@dataclass(frozen=True, slots=True)
class Option:
    """What an option is, besides its name and its type in Python.

    Attributes:
        value: what stands for its value in the syntax of ADDJOB.
        least, most: limits that nodes set; None: that of whole numbers with 64 bits.
        about: what it does.
        unit: what its value counts, if ``value`` does not say so.
    """

    value: str
    least: int
    most: int | None
    about: str
    unit: str = ""

    def encode(self, value: Any) -> Argument:
        """Return ``value`` as an argument of ADDJOB."""
        return value  # type: ignore[no-any-return]

    def stored(self, value: Any) -> str | float:
        """Return ``value`` for JSON, in the same units."""
        return value  # type: ignore[no-any-return]

    def check(self, name: str, value: object) -> None:
        """Raise ValueError if nodes would refuse ``value``. ``name`` is that of the option."""
        raise NotImplementedError

    def _check_limits(self, name: str, value: float, unit: str = "") -> None:
        most = self.most or 2**63 - 1
        if not self.least <= value <= most:
            limits = f"from {self.least} to {most}"
            if value < self.least and not self.most:
                limits = f"at least {self.least}"
            raise ValueError(f"{name} must be {limits}{unit}, not {value}")


class Whole(Option):
    """A whole number."""

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{name} must be an integer, not {value!r}")
        self._check_limits(name, value)


class Seconds(Option):
    """A time in seconds, which may have decimals."""

    def encode(self, value: float) -> Argument:
        return seconds(value)

    def check(self, name: str, value: object) -> None:
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not -math.inf < value < math.inf
        ):
            raise ValueError(f"{name} must be a number of seconds, not {value!r}")
        self._check_limits(name, value)


class Moment(Option):
    """A point in time; its limits are in milliseconds since the epoch."""

    def encode(self, value: datetime | float) -> Argument:
        return unix_ms(value)

    def stored(self, value: datetime | float) -> float:
        return unix_ms(value) / 1000

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, datetime | int | float) or isinstance(value, bool):
            raise ValueError(f"{name} must be a datetime or seconds since the epoch, not {value!r}")
        try:
            ms = unix_ms(value)
        except OverflowError as error:  # infinity
            raise ValueError(f"{name} is not a time: {error}") from error
        self._check_limits(name, ms, " ms since the epoch")


class Words(Option):
    """A text; its limits are in bytes."""

    def encode(self, value: Text) -> bytes:
        return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value

    def stored(self, value: Text) -> str:
        return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, str | bytes):
            raise ValueError(f"{name} must be str or bytes, not {value!r}")
        self._check_limits(name, len(self.encode(value)), " bytes long")


class ScheduleOptions(TypedDict, total=False):
    """Options of each job of a schedule. None is the same as leaving an option out."""

    replicate: Annotated[
        int | None, Whole("count", 1, 65_535, "how many nodes must hold the job", "nodes")
    ]
    delay: Annotated[float | None, Seconds("seconds", 0, None, "seconds before the job is queued")]
    retry: Annotated[
        int | None,
        Whole(
            "seconds",
            0,
            None,
            "seconds after which an unacknowledged job is delivered again; 0: at most once",
        ),
    ]
    ttl: Annotated[int | None, Whole("seconds", 1, None, "the job's time to live, in seconds")]
    maxlen: Annotated[
        int | None,
        Whole("count", 1, None, "refuse the job if the queue has as many, on all nodes", "jobs"),
    ]
    priority: Annotated[int | None, Whole("0-7", 0, 7, "0 to 7; the highest is delivered first")]
    group: Annotated[
        Text | None,
        Words("name", 1, 1024, "the group that the job belongs to, if the policy serves groups"),
    ]
    note: Annotated[Text | None, Words("text", 1, 1000, "a short text about the job, for people")]


class JobOptions(ScheduleOptions, total=False):
    """Options of a job. None is the same as leaving an option out."""

    at: Annotated[
        datetime | float | None,
        Moment(
            "unix-ms",
            0,
            4_294_967_295_000 - 1,
            "when the job is queued, instead of delay: a datetime with a time zone, or seconds "
            "since the epoch",
        ),
    ]


Until: TypeAlias = Literal["start", "end"]
"""Until a client gets a job, or until it has ended."""


class KeyOptions(TypedDict, total=False):
    """What a job's key is for, besides how long it is kept (``unique_for``). None is the same as
    leaving an option out.

    Keys:
        unique_until: ``start``: the job has its key until a client gets it for the first time;
            ``end``: until it has ended.
        replace: if the job that has the key has not started, it gets the body and the options of
            the new one; if it has, the new one is added. Implies ``unique_until="start"``.
    """

    unique_until: Until | None
    replace: bool | None


class AddOptions(JobOptions, KeyOptions, total=False):
    """Options of a job, with those of its key."""


def check_key(options: KeyOptions, unique: bool, kept: bool) -> None:
    """Check options of a key. Raises ValueError.

    Args:
        unique: whether there is a key that the program has given.
        kept: whether it is kept for some time.
    """
    until, replaces = options.get("unique_until"), options.get("replace")
    if until not in (None, *get_args(Until)):
        raise ValueError(f"unique_until must be start or end, not {until!r}")
    if (until or replaces) and not unique:
        raise ValueError("unique_until and replace need a key of your own: unique")
    if (until or replaces) and kept:
        raise ValueError("unique_for cannot be combined with unique_until or replace")
    if replaces and until == "end":
        raise ValueError('replace cannot be combined with unique_until="end"')


def encode_key(key: Text, kept: float | None, options: KeyOptions) -> list[Argument]:
    """Return the arguments of ADDJOB for a key, which is kept for ``kept`` seconds; None: as
    ``options`` say. Raises as ``check_key``."""
    check_key(options, True, kept is not None)
    command: list[Argument] = ["UNIQUE", key]
    if kept is not None:
        command += ["FOR", math.ceil(kept)]
    if options.get("replace"):
        command.append("REPLACE")
    elif until := options.get("unique_until"):
        command += ["UNTIL", until]
    return command


OPTIONS: Final[Mapping[str, Option]] = {
    name: hint.__metadata__[0] for name, hint in JobOptions.__annotations__.items()
}
"""All options, in the order in which they are sent; ADDJOB's words are their names."""


SYNTAX: Final = " ".join(f"[{name.upper()} {option.value}]" for name, option in OPTIONS.items())
"""The options in the syntax of ADDJOB."""


def of_kind(*kinds: type[Option]) -> list[str]:
    """Return the names of the options of some kinds."""
    return [name for name, option in OPTIONS.items() if isinstance(option, kinds)]


TEXTS: Final = frozenset(name.encode() for name in of_kind(Words))
"""The options that nodes keep as texts, in attributes of a job's trailer."""


def encode(options: ScheduleOptions | JobOptions) -> list[Argument]:
    """Return the arguments of ADDJOB for ``options``.

    Raises:
        TypeError: there is no such option.
        ValueError: both ``delay`` and ``at`` are given, or ``at`` has no time zone.
    """
    if not options:
        return []
    given: Mapping[str, object] = options
    check_names(given)
    if given.get("at") is not None and given.get("delay") is not None:
        raise ValueError("give either a delay or a time")
    return [
        part
        for name, option in OPTIONS.items()
        if (value := given.get(name)) is not None
        for part in (name.upper(), option.encode(value))
    ]


def stored(options: ScheduleOptions | JobOptions) -> dict[str, Any]:
    """Return the options that are given in a form for JSON: texts as ``str``, bytes that are not
    UTF-8 as surrogate escapes, and ``at`` in seconds since the epoch. Raises as ``check``."""
    check(options)
    given: Mapping[str, object] = options
    return {n: OPTIONS[n].stored(value) for n, value in given.items() if value is not None}


def check(options: ScheduleOptions | JobOptions) -> None:
    """Check what nodes would refuse only later.

    Raises:
        TypeError: there is no such option.
        ValueError: a value is of the wrong type, or exceeds its limits.
    """
    check_names(options)
    for name, value in options.items():
        if value is not None:
            OPTIONS[name].check(name, value)


def check_names(given: Iterable[str], known: Collection[str] = OPTIONS.keys()) -> None:
    """Raise TypeError, with what may have been meant, if a name is not one of ``known``."""
    for name in given:
        if name not in known:
            from difflib import get_close_matches  # slow to import

            near = get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise TypeError(f"unknown option of a job: {name}; {meant}")


def seconds(value: float) -> Argument:
    """Convert a time in seconds to an argument, with three decimals unless it is a whole number."""
    return int(value) if value == int(value) else f"{value:.3f}"


def unix_ms(at: datetime | float) -> int:
    """Convert a point in time to milliseconds since the epoch.

    Raises:
        ValueError: it is a ``datetime`` without a time zone.
    """
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError("the time needs a time zone: datetime.now(UTC), for example")
        at = at.timestamp()
    return round(at * 1000)
