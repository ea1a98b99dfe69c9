"""What GETJOB gives becomes rows."""

import pyarrow as pa

from disque_trio.spark.leases.fetch import job_rows

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
