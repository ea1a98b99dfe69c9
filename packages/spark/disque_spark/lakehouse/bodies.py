"""Decodes the bodies of jobs into the column ``value``, with Spark's own functions."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from disque_spark.lakehouse.columns import BODY, VALUE

JSON, TEXT = "json:", "text"
_CORRUPT = "_disque_corrupt"


def decoded(rows: DataFrame, how: str | None, drop: bool = False) -> DataFrame:
    """Add the column ``value``, which is null where the body cannot be decoded.

    Args:
        how: ``json:`` and the columns of a struct, in Spark SQL; ``text`` for a string; None: leave
            the rows as they are.
        drop: make the body null where there is a value.

    Raises:
        ParseException: the columns are not valid SQL.
    """
    if how is None:
        return rows
    text = f.col(BODY).cast("string")
    if how == TEXT:
        value = f.when(f.is_valid_utf8(text), text)
    else:
        # Spark ignores anything after a value. Text that is valid both as a member of this object
        # and as the only element of this array is exactly one value.
        columns = f"{VALUE} STRUCT<{how.removeprefix(JSON)}>, {_CORRUPT} STRING"
        member = f.concat(f.lit(f'{{"{VALUE}":'), text, f.lit("}"))
        found = f.from_json(member, columns, {"columnNameOfCorruptRecord": _CORRUPT})
        element = f.concat(f.lit("["), text, f.lit("]"))
        whole = f.is_valid_utf8(text) & (f.json_array_length(element) == 1)
        value = f.when(whole & found[_CORRUPT].isNull(), found[VALUE])
    rows = rows.withColumn(VALUE, value)
    return rows.withColumn(BODY, f.when(f.col(VALUE).isNull(), f.col(BODY))) if drop else rows
