"""Selects the filters of a query that the nodes evaluate themselves, with options of JSCAN and
QSCAN.

Pure functions of the filters that Spark offers. What is not taken, Spark evaluates.

Spark up to 4.3.0 keeps what was pushed down with the frame or the view instead of with the query
(in PythonDataSourceV2): ``jobs.where(a).union(jobs.where(b))`` reads what is b
twice, and after ``jobs.where(a)`` a plain ``jobs`` has only what is a. So nothing is pushed down
unless the option ``pushdown`` asks for it; options that say the same are safe.
"""

from collections.abc import Iterable

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from disque_trio.spark.client import Arg

STATES = ("wait-repl", "active", "queued", "acked")


def equals(filter: Filter, column: str) -> tuple[str, ...] | None:
    """The values of which ``column`` has to be one, if that is what ``filter`` says."""
    if isinstance(filter, EqualTo | EqualNullSafe) and filter.attribute == (column,):
        values: tuple[object, ...] = (filter.value,)
    elif isinstance(filter, In) and filter.attribute == (column,):
        values = tuple(filter.value)
    else:
        return None
    return tuple(value for value in values if isinstance(value, str))


class JobFilters:
    """The filters passed to JSCAN.

    Attributes:
        queues: the only ones that are wanted; None for all.
        states: as ``queues``.
    """

    def __init__(self, queue: str | None = None, states: Iterable[str] | None = None) -> None:
        self.queues = None if queue is None else {queue}
        self.states = None if states is None else set(states)

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take what can be taken; the rest is given back."""
        rest: list[Filter] = []
        for filter in filters:
            queues = equals(filter, "queue")
            states = equals(filter, "state")
            if isinstance(filter, IsNotNull) and filter.attribute in (("queue",), ("state",)):
                continue  # they never are
            if states is not None:
                known = set(STATES) if self.states is None else self.states
                self.states = known.intersection(states)
            # A backslash may stand for a byte that is no UTF-8, or for itself.
            elif queues is not None and not any("\\" in queue for queue in queues):
                self.queues = set(queues) if self.queues is None else self.queues & set(queues)
            else:
                rest.append(filter)
        return rest

    def walks(self, count: int) -> list[list[Arg]]:
        """The JSCANs that give all that is wanted, without their cursors."""
        if self.states is not None and not self.states:
            return []
        request: list[Arg] = ["JSCAN", "COUNT", count, "REPLY", "all"]
        for state in sorted(self.states or ()):
            request += ["STATE", state]
        if self.queues is None:
            return [request]
        return [[*request, "QUEUE", queue] for queue in sorted(self.queues)]


class QueueFilters:
    """The filters passed to QSCAN. A queue may change between QSCAN and QSTAT, so Spark filters
    again.

    Attributes:
        minlen, maxlen: jobs in the queue. import_rate: at least, jobs a second. maxidle: s.
    """

    def __init__(
        self,
        minlen: int = 0,
        maxlen: int | None = None,
        import_rate: int = 0,
        maxidle: int | None = None,
    ) -> None:
        self.minlen = minlen
        self.maxlen = maxlen
        self.import_rate = import_rate
        self.maxidle = maxidle

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Use what can be used; all are given back."""
        filters = list(filters)
        for filter in filters:
            low, high = bounds(filter, "len")
            self.minlen = max(self.minlen, low or 0)
            self.maxlen = _lower(self.maxlen, high)
            self.import_rate = max(self.import_rate, bounds(filter, "import_rate")[0] or 0)
            self.maxidle = _lower(self.maxidle, bounds(filter, "idle")[1])
        return filters

    def walks(self, count: int) -> list[list[Arg]]:
        """The QSCAN that gives all that is wanted, without its cursor; none if nothing can be."""
        request: list[Arg] = ["QSCAN", "COUNT", count]
        if self.minlen > 0:
            request += ["MINLEN", self.minlen]
        if self.import_rate > 0:
            request += ["IMPORTRATE", self.import_rate]
        for option, most in (("MAXLEN", self.maxlen), ("MAXIDLE", self.maxidle)):
            if most is not None and most < 0:
                return []
            if most is not None:
                request += [option, most]
        return [request]


def bounds(filter: Filter, column: str) -> tuple[int | None, int | None]:
    """The least and the greatest integer that ``filter`` lets ``column`` have."""
    value = getattr(filter, "value", None)
    if getattr(filter, "attribute", None) != (column,) or not isinstance(value, int):
        return None, None
    match filter:
        case EqualTo() | EqualNullSafe():
            return value, value
        case GreaterThan():
            return value + 1, None
        case GreaterThanOrEqual():
            return value, None
        case LessThan():
            return None, value - 1
        case LessThanOrEqual():
            return None, value
    return None, None


def _lower(one: int | None, other: int | None) -> int | None:
    return min((bound for bound in (one, other) if bound is not None), default=None)
