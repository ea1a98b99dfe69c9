"""Selects the filters of a query that nodes can evaluate, with options of JSCAN and QSCAN.

Pure functions of the filters that Spark offers. Spark evaluates the filters that are not taken.

Up to 4.3.0, Spark keeps pushed filters with the DataFrame or view instead of with the query (in
PythonDataSourceV2): ``jobs.where(a).union(jobs.where(b))`` reads the rows of b twice, and after
``jobs.where(a)`` a plain ``jobs`` has only the rows of a. So nothing is pushed down unless the
option ``pushdown`` asks for it. The options of the sources filter in the same way, and are safe.
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

from disque_spark.append_only import STATES
from disque_spark.client import Arg


def equals(filter: Filter, column: str) -> tuple[str, ...] | None:
    """The values that ``filter`` allows for ``column``; None if it is not such a filter."""
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
        queues: the queues to return; None: all.
        states: the states to return; None: all.
    """

    def __init__(self, queue: str | None = None, states: Iterable[str] | None = None) -> None:
        self.queues = None if queue is None else {queue}
        self.states = None if states is None else set(states)

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take the filters that JSCAN can evaluate; return the others."""
        rest: list[Filter] = []
        for filter in filters:
            queues = equals(filter, "queue")
            states = equals(filter, "state")
            if isinstance(filter, IsNotNull) and filter.attribute in (("queue",), ("state",)):
                continue  # these columns are never null
            if states is not None:
                known = set(STATES) if self.states is None else self.states
                self.states = known.intersection(states)
            # A backslash may stand for itself, or for a byte that is not UTF-8.
            elif queues is not None and not any("\\" in queue for queue in queues):
                self.queues = set(queues) if self.queues is None else self.queues & set(queues)
            else:
                rest.append(filter)
        return rest

    def walks(self, count: int) -> list[list[Arg]]:
        """The JSCAN commands that return all jobs wanted, without their cursors."""
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
        minlen, maxlen: jobs in the queue.
        import_rate: the least jobs imported per second.
        maxidle: seconds.
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
        """Take what QSCAN can evaluate from the filters; return all of them."""
        filters = list(filters)
        for filter in filters:
            low, high = bounds(filter, "len")
            self.minlen = max(self.minlen, low or 0)
            self.maxlen = _lower(self.maxlen, high)
            self.import_rate = max(self.import_rate, bounds(filter, "import_rate")[0] or 0)
            self.maxidle = _lower(self.maxidle, bounds(filter, "idle")[1])
        return filters

    def walks(self, count: int) -> list[list[Arg]]:
        """The QSCAN that returns all queues wanted, without its cursor; none if no queue can
        match."""
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
    """The least and greatest integer that ``filter`` allows for ``column``; None: no bound."""
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
