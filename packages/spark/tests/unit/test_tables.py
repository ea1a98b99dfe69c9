"""The columns of the tables of a live cluster."""

import re

from disque_spark.datasources.tables import JOBS_SCHEMA
from disque_trio.client.shown import ShownJob


def test_the_columns_of_jobs_are_fields_of_show() -> None:
    columns = re.findall(r"(\w+) [A-Z<>]+", JOBS_SCHEMA.replace(" NOT NULL", ""))
    assert len(columns) == JOBS_SCHEMA.count(",") + 1
    assert set(columns) - ShownJob.__dataclass_fields__.keys() == {"node"}
