"""The tables of a live cluster as names in SQL: ``SELECT * FROM disque.queues``.

Spark's own catalog keeps them. It forgets the options of a table whose source is in Python (4.3.0),
so each name is a view that says them, over a table without any.
"""

import re
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from disque_trio.spark.datasources.tables import JOBS_OPTIONS, QUEUES_OPTIONS
from disque_trio.spark.options import OptionError, check_names, nodes_of

# What an argument says; and what gives wrong rows where a table is named twice in a query.
_NOT = {"nodes", "pushdown"}


def views(
    spark: SparkSession,
    nodes: str | Sequence[str],
    schema: str = "disque",
    *,
    events: str | None = None,
    **options: str | int | bool,
) -> list[str]:
    """Make ``disque.jobs`` and ``disque.queues``, or make them anew. Each SELECT asks the nodes.

    They are in Spark's catalog as long as others are: until the session ends, or with a metastore
    of Hive for good. What they need of a session that did not make them is ``register``.

    Args:
        nodes: addresses, as in the option of that name. schema: is made if it is not there.
        events: directories with event logs, as for ``disque-events``: makes ``disque.events``, too.
        options: more, of both tables, as ``password``. Who may look at the definition of a view
            can read them.

    Returns:
        the names.

    Raises:
        OptionError: an option is one of neither table; or ``schema`` is no name.
    """
    if not re.fullmatch(r"\w+", schema):
        raise OptionError(f"schema: expected a name, got {schema!r}")
    addresses = nodes if isinstance(nodes, str) else ",".join(nodes)
    nodes_of({"nodes": addresses})
    said = {name: _text(value) for name, value in options.items()}
    known = set(JOBS_OPTIONS) & set(QUEUES_OPTIONS) - _NOT
    check_names(said, "both tables", known)
    tables = {"jobs": {"nodes": addresses, **said}, "queues": {"nodes": addresses, **said}}
    if events is not None:
        tables["events"] = {"path": events}
    spark.sql(f"CREATE DATABASE IF NOT EXISTS `{schema}`")
    for name, given in tables.items():
        for statement in statements(schema, name, given):
            spark.sql(statement)
    return [f"{schema}.{name}" for name in tables]


def statements(schema: str, name: str, options: Mapping[str, str]) -> list[str]:
    """What makes a view of the source ``disque-name``."""
    given = ", ".join(f"`{option}` = {_quoted(value)}" for option, value in options.items())
    table = f"`{schema}`.`_{name}`"
    return [
        f"CREATE TABLE IF NOT EXISTS {table} USING `disque-{name}`",
        f"CREATE OR REPLACE VIEW `{schema}`.`{name}` AS SELECT * FROM {table} WITH ({given})",
    ]


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quoted(text: str) -> str:
    """A string of SQL. In it Spark reads ``\\`` as Python does."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
