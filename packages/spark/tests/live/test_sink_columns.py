"""Which columns and options the sink accepts, and which ADDJOBs it makes from them."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from disque_spark.options import OptionError
from disque_spark.sink.writer import RefusedRowError, Sink
from tests.support.harness import LiveNode

BODY = StructType().add("body", BinaryType())


@pytest.mark.parametrize(
    ("schema", "options", "reason"),
    [
        (StructType().add("queue", StringType()), {}, "no body"),
        (BODY, {}, "queue"),
        (StructType().add("body", IntegerType()), {"queue": "q"}, "binary or string"),
        (StructType().add("body", BinaryType()).add("ttl", StringType()), {"queue": "q"}, "ttl"),
        (BODY, {"queue": "q", "onRefused": "deadletter"}, "deadLetterPath"),
        (BODY, {"queue": "q", "deadLetterPath": "/x"}, "deadLetterPath"),
        (BODY, {"queue": "q", "onRefused": "ignore"}, "onRefused"),
        (BODY, {"queue": "q", "retry": "-1"}, "retry"),
    ],
)
def test_columns_and_options_that_make_no_jobs_are_refused(
    schema: StructType, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        Sink(schema, options, False)


def sink(node: LiveNode, schema: StructType = BODY, **options: object) -> Sink:
    texts = {name: str(value) for name, value in options.items()}
    return Sink(schema, {"nodes": f"127.0.0.1:{node.port}", "queue": "q", **texts}, False)


def rows(*bodies: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})


def test_columns_may_be_written_in_any_case(node: LiveNode) -> None:
    batch = pa.RecordBatch.from_pydict({"BODY": ["x"], "Queue": ["other"], "Delay": [30]})
    schema = (
        StructType()
        .add("BODY", StringType())
        .add("Queue", StringType())
        .add("Delay", IntegerType())
    )
    assert sink(node, schema).write(iter([batch])).added == 1
    reply = node.ask("JSCAN", 0, "REPLY", "all", "QUEUE", "other")
    assert isinstance(reply, list)
    [job] = reply[1]
    assert job[job.index(b"delay") + 1] == 30


def test_an_own_value_goes_before_the_option(node: LiveNode) -> None:
    schema = StructType().add("body", StringType()).add("retry", IntegerType())
    batch = pa.RecordBatch.from_pydict({"body": ["a", "b"], "retry": [7, None]})
    sink(node, schema, retry=11).write(iter([batch]))
    found = node.ask("JSCAN", 0, "REPLY", "all")
    assert isinstance(found, list)
    retries = {job[job.index(b"body") + 1]: job[job.index(b"retry") + 1] for job in found[1]}
    assert retries == {b"a": 7, b"b": 11}


def test_many_large_bodies_are_added_a_few_at_a_time(node: LiveNode) -> None:
    batch = rows(*[bytes(300_000)] * 40)
    assert sink(node).write(iter([batch])).added == 40
    assert node.ask("QLEN", "q") == 40


def test_a_row_without_a_body_is_refused(node: LiveNode, tmp_path: Path) -> None:
    with pytest.raises(RefusedRowError, match="no body"):
        sink(node).write(iter([rows(b"x", b"y", None)]))
    assert node.ask("QLEN", "q") == 0
    result = sink(node, onRefused="drop").write(iter([rows(b"x", None, b"y")]))
    assert (result.added, dict(result.refused)) == (2, {"NULL": 1})


def test_a_header_without_a_name_refuses_its_row_and_one_without_a_value_is_empty(
    node: LiveNode,
) -> None:
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = [[{"key": None, "value": b"x"}], [None], [{"key": "k", "value": None}], None]
    batch = pa.RecordBatch.from_pydict(
        {"body": ["a", "b", "c", "d"], "headers": pa.array(headers, pa.list_(pair))}
    )
    result = sink(node, onRefused="drop").write(iter([batch]))
    assert (result.added, dict(result.refused)) == (2, {"NULL": 2})
    reply = node.ask("GETJOB", "WITHHEADERS", "COUNT", 2, "FROM", "q")
    assert isinstance(reply, list)
    assert sorted((job[2], job[4]) for job in reply) == [(b"c", [b"k", b""]), (b"d", [])]


def test_dead_letters_appear_only_when_the_task_is_done(node: LiveNode, tmp_path: Path) -> None:
    letters = tmp_path / "letters"
    writer = sink(node, onRefused="deadletter", deadLetterPath=letters)

    def fails() -> None:
        def rows_and_an_error() -> object:
            yield rows(None, b"x")
            raise ZeroDivisionError

        writer.write(rows_and_an_error())  # type: ignore[arg-type]

    with pytest.raises(ZeroDivisionError):
        fails()
    assert list(letters.iterdir()) == []
    result = writer.write(iter([rows(None, b"x")]))
    assert [str(path) for path in letters.iterdir()] == [result.dead_letters]
