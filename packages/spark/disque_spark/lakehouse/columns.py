"""The columns of an archive, and the names of a table's directories."""

import re
from collections.abc import Iterable
from urllib.parse import unquote

import pyarrow as pa

from disque_spark.lakehouse.settings import TableError

QUEUE, DAY, BODY, VALUE = "queue", "day", "body", "value"
BAD = "_disque_bad"  # fields of the value that the body has with another type; not in the table
PARTITIONS = (QUEUE, DAY)
_TIME = pa.timestamp("us", "UTC")
BASE = pa.schema(
    [
        ("id", pa.string()),
        (BODY, pa.binary()),
        ("nacks", pa.int32()),
        ("additional_deliveries", pa.int32()),
        ("node", pa.string()),
        ("ctime", _TIME),
        ("archived_at", _TIME),
    ]
)
# Characters that Spark escapes in the name of a partition's directory, such as %3A.
ESCAPED = re.compile(r"[\x01-\x1f\x7f\"#%'*/:=?\\{[\]^]")


def partition_path(queue: str, day: str) -> str:
    """The directory for a queue and a day (ISO) in a table, named as Spark and Hive do."""
    name = ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", queue)
    return f"{QUEUE}={name}/{DAY}={day}"


def partition_of(path: str) -> tuple[str, str]:
    """Queue and day of such a directory."""
    queue, day = path.split("/")[-2:]
    return unquote(queue.partition("=")[2]), day.partition("=")[2]


def types_of(fields: Iterable[pa.Field]) -> dict[str, pa.DataType]:
    """The types of columns, or of the fields of a struct, by name."""
    return {field.name: field.type for field in fields}


def widened(table: str, found: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """The columns of a table together with those that are wanted, and with the fields that its
    structs lack. Columns that it has but that are not wanted will be null from now on.

    Args:
        table: name of the table, for errors.

    Raises:
        TableError: a column has another type, or a column that all archives have is missing.
    """
    kinds = types_of(found)
    for name, kind in types_of(wanted).items():
        if name not in kinds and (name in BASE.names or name in PARTITIONS):
            raise TableError(f"{table}: the table has lost its column {name}")
        kinds[name] = united(f"{table}: the column {name}", kinds.get(name, kind), kind)
    return pa.schema(list(kinds.items()))


def united(name: str, old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """A type for values of both types: structs have the fields of both.

    Args:
        name: what has the type, for errors.

    Raises:
        TableError: there is no such type.
    """
    if old == new:
        return old
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        kinds = types_of(old)
        for field, kind in types_of(new).items():
            kinds[field] = united(f"{name}.{field}", kinds.get(field, kind), kind)
        return pa.struct(list(kinds.items()))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(pa.field("element", united(name, old.value_type, new.value_type)))
    raise TableError(f"{name} has type {old}, not {new}")


def plain(schema: pa.Schema) -> pa.Schema:
    """The same columns with types that all table formats and their readers support: times in UTC,
    32-bit offsets, integers of 32 or 64 bits; all columns nullable.

    Raises:
        TableError: a column has a type that not all formats support.
    """
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC") if kind.tz or kind.unit == "ns" else pa.timestamp("us")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    if pa.types.is_duration(kind) or pa.types.is_interval(kind) or pa.types.is_null(kind):
        raise TableError(f"a table cannot have columns of the type {kind}")
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    return kind


def fitted(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with the columns of ``schema``; a missing column is null."""
    names = set(rows.schema.names)
    columns = [
        _cast(rows.column(field.name), field.type)
        if field.name in names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)
