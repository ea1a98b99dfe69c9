"""The tables of a live cluster as views in SQL: ``SELECT * FROM disque.queues``.

The views are in Spark's own catalog. It forgets the options of tables with a Python data source
(Spark 4.3.0), so each name is a view that contains the options, over a table without any.
"""

import re
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from disque_spark.datasources.tables import JOBS_OPTIONS, QUEUES_OPTIONS
from disque_spark.options import OptionError, check_names, nodes_of

# ``nodes`` is an argument; ``pushdown`` gives wrong rows if a query names a table twice.
_NOT = {"nodes", "pushdown"}


def views(
    spark: SparkSession,
    nodes: str | Sequence[str],
    schema: str = "disque",
    *,
    events: str | None = None,
    **options: str | int | bool,
) -> list[str]:
    """Create or replace the views ``disque.jobs`` and ``disque.queues``. Each SELECT asks the
    nodes.

    Like other views in Spark's catalog, they last until the session ends, or for good with a Hive
    metastore. A session that did not create them has to call ``register`` before it uses them.

    Args:
        nodes: addresses ``host:port``, as a list or separated by commas.
        schema: schema for the views; created if it does not exist.
        events: directories with event logs, as for ``disque-events``: also creates
            ``disque.events``.
        options: further options of both tables, such as ``password``. Anybody who may see the
            definition of a view can read them.

    Returns:
        the names of the views.

    Raises:
        OptionError: the tables have no such option, or ``schema`` is not a name.
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
    """The SQL statements that create a view of the data source ``disque-<name>``."""
    given = ", ".join(f"`{option}` = {_quoted(value)}" for option, value in options.items())
    table = f"`{schema}`.`_{name}`"
    return [
        f"CREATE TABLE IF NOT EXISTS {table} USING `disque-{name}`",
        f"CREATE OR REPLACE VIEW `{schema}`.`{name}` AS SELECT * FROM {table} WITH ({given})",
    ]


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quoted(text: str) -> str:
    """A string literal of SQL. Spark treats ``\\`` in it as Python does."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
