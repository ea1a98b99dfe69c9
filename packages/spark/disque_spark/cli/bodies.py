"""Reads the schema of ``archive --body``, in the forms that Spark users have."""

import json

from pyspark.sql.types import StructType

from disque_spark.files import location
from disque_spark.lakehouse.bodies import sql_of


def columns_of(text: str) -> str:
    """The columns, in the form that they have between ``STRUCT<`` and ``>`` in Spark SQL.

    Args:
        text: columns in that form, a whole ``STRUCT<...>``, the JSON of a ``StructType``, or ``@``
            and the path of a file that contains one of these.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not UTF-8, the JSON is not a schema, or there are no columns.
    """
    if text.startswith("@"):
        place = location(text[1:])
        try:
            text = place.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ValueError(f"{place} is not in UTF-8") from None
    text = " ".join(line.strip() for line in text.splitlines()).strip()
    if text.startswith("{"):
        try:
            text = sql_of(StructType.fromJson(json.loads(text)))
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"not a Spark schema: {type(problem).__name__}: {problem}") from None
    if text[:7].upper() == "STRUCT<" and text.endswith(">"):
        text = text[7:-1].strip()
    if not text:
        raise ValueError("no columns")
    return text
