"""The jobs from GETJOB become rows."""

import pyarrow as pa

from disque_spark.leases.fetch import fitted, job_rows

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("queue", pa.string()),
        ("body", pa.binary()),
        ("nacks", pa.int32()),
        ("additional", pa.int32()),
        ("node", pa.string()),
        ("ctime", pa.timestamp("us")),
    ]
)


def test_a_dead_letter_is_a_job_as_any_other() -> None:
    job = [b"q", b"D-1", b"body", b"nacks", 1, b"additional-deliveries", 2]
    letter = [*job, b"dead-from", b"mail", b"dead-why", b"attempts"]
    rows = job_rows([job, letter], "n1", None, SCHEMA)
    assert rows.num_rows == 2
    assert rows.slice(1).to_pylist() == rows.slice(0, 1).to_pylist()


def with_headers() -> pa.Schema:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return SCHEMA.append(pa.field("headers", pa.list_(header)))


def test_headers_are_a_column_and_null_where_there_are_none() -> None:
    job = [b"q", b"D-1", b"body", b"nacks", 0, b"additional-deliveries", 0]
    given = [*job, b"priority", 7, b"headers", [b"a", b"\xff", b"b", b""], b"dead-from", b"mail"]
    rows = job_rows([given, [*job, b"headers", []], job], "n1", None, with_headers())
    first, *others = rows.column("headers").to_pylist()
    assert first == [{"key": "a", "value": b"\xff"}, {"key": "b", "value": b""}]
    assert others == [None, None]


def test_a_lease_of_before_is_read_with_other_columns() -> None:
    job = [b"q", b"D-1", b"body", b"nacks", 0, b"additional-deliveries", 0]
    old = job_rows([job], "n1", None, SCHEMA)
    new = job_rows([[*job, b"headers", [b"a", b"b"]]], "n1", None, with_headers())
    assert fitted(old, with_headers()).column("headers").to_pylist() == [None]
    assert fitted(new, SCHEMA) == old
