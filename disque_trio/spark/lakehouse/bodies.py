"""Decodes the bodies of jobs, by Spark's own functions, into a column ``value``."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from disque_trio.spark.lakehouse.columns import BODY, VALUE

JSON, TEXT = "json:", "text"
_CORRUPT = "_disque_corrupt"


def decoded(rows: DataFrame, how: str | None, drop: bool = False) -> DataFrame:
    """Rows with a column ``value``, null where the body is not what it should be.

    Args:
        how: ``json:`` and the columns of a struct, in Spark's SQL; ``text``: a string; None: as
            the rows are.
        drop: the body becomes null where there is a value.

    Raises:
        ParseException: the columns are wrong.
    """
    if how is None:
        return rows
    text = f.col(BODY).cast("string")
    if how == TEXT:
        value = f.when(f.is_valid_utf8(text), text)
    else:
        # Spark ignores what follows a value. Within others it has to be all there is: what fits
        # into both of these is one value, and nothing else.
        columns = f"{VALUE} STRUCT<{how.removeprefix(JSON)}>, {_CORRUPT} STRING"
        member = f.concat(f.lit(f'{{"{VALUE}":'), text, f.lit("}"))
        found = f.from_json(member, columns, {"columnNameOfCorruptRecord": _CORRUPT})
        element = f.concat(f.lit("["), text, f.lit("]"))
        whole = f.is_valid_utf8(text) & (f.json_array_length(element) == 1)
        value = f.when(whole & found[_CORRUPT].isNull(), found[VALUE])
    rows = rows.withColumn(VALUE, value)
    return rows.withColumn(BODY, f.when(f.col(VALUE).isNull(), f.col(BODY))) if drop else rows
