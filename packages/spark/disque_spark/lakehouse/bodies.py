"""Decodes the bodies of jobs into the column ``value``, with Spark's own functions."""

from functools import reduce
from operator import add

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from disque_spark.lakehouse.columns import BAD, BODY, VALUE, united
from disque_spark.options import arrow_schema

JSON, TEXT = "json:", "text"
_CORRUPT = "_disque_corrupt"


def decoded(rows: DataFrame, how: str | None, drop: bool = False) -> DataFrame:
    """Add the columns ``value``, which is null where the body cannot be decoded, and ``BAD``: how
    many fields of the value are null because the body has them with another type.

    Args:
        how: ``json:`` and the columns of a struct, in Spark SQL; ``text`` for a string; None: leave
            the rows as they are.
        drop: make the body null where the value is whole.

    Raises:
        ParseException: the columns are not valid SQL.
    """
    if how is None:
        return rows
    text = f.col(BODY).cast("string")
    bad = f.lit(0)
    if how == TEXT:
        value = f.when(f.is_valid_utf8(text), text)
    else:
        # Spark ignores anything after a value. Text that is valid both as a member of this object
        # and as the only element of this array is exactly one value.
        columns = f"{VALUE} {value_type(how)}, {_CORRUPT} STRING"
        member = f.concat(f.lit(f'{{"{VALUE}":'), text, f.lit("}"))
        found = f.from_json(member, columns, {"columnNameOfCorruptRecord": _CORRUPT})
        element = f.concat(f.lit("["), text, f.lit("]"))
        whole = f.is_valid_utf8(text) & (f.json_array_length(element) == 1)
        value = f.when(whole, found[VALUE])
        given = f.from_json(text, "MAP<STRING, STRING>")
        names = fields_of(rows.sparkSession, how).names
        lost = [
            (f.element_at(given, f.lit(name)).isNotNull() & found[VALUE].getField(name).isNull())
            for name in names
        ]
        count = reduce(add, [one.cast("int") for one in lost])
        # Of a field within a field, Spark only tells that something was wrong.
        inner = f.greatest(count, found[_CORRUPT].isNotNull().cast("int"))
        bad = f.when(value.isNotNull(), inner).otherwise(0)
    rows = rows.withColumn(VALUE, value).withColumn(BAD, bad)
    if not drop:
        return rows
    keep = f.col(VALUE).isNull() | (f.col(BAD) > 0)
    return rows.withColumn(BODY, f.when(keep, f.col(BODY)))


def value_type(how: str) -> str:
    """The type of decoded bodies in Spark SQL."""
    return f"STRUCT<{how.removeprefix(JSON)}>" if how.startswith(JSON) else "STRING"


def fields_of(spark: SparkSession, how: str) -> StructType:
    """The columns after ``json:``."""
    found = spark.createDataFrame([], f"{VALUE} {value_type(how)}").schema[VALUE].dataType
    assert isinstance(found, StructType)
    return found


def with_columns_of(spark: SparkSession, old: str | None, new: str | None) -> str | None:
    """How to decode bodies for a table that has columns of ``old`` and is to have those of ``new``,
    too.

    Raises:
        TableError: a column has another type.
    """
    if old is None or new is None or old == new or TEXT in (old, new):
        return new
    kinds = [
        arrow_schema(StructType().add(VALUE, fields_of(spark, how))).field(0).type
        for how in (old, new)
    ]
    both = from_arrow_type(united(VALUE, *kinds), prefer_timestamp_ntz=True)
    return JSON + sql_of(both)[len("STRUCT<") : -1]


def sql_of(kind: DataType) -> str:
    """A type in Spark SQL, with quoted names."""
    if isinstance(kind, StructType):
        names = ("`{}`".format(field.name.replace("`", "``")) for field in kind)
        types = (sql_of(field.dataType) for field in kind)
        return f"STRUCT<{', '.join(map(': '.join, zip(names, types, strict=True)))}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{sql_of(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{sql_of(kind.keyType)}, {sql_of(kind.valueType)}>"
    return kind.simpleString().upper()
