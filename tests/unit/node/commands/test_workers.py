"""WORKER: reports of worker processes, and what they are asked to do."""

from tests.support.node_bench import Bench


def test_a_report_is_listed_until_its_connection_ends(bench: Bench) -> None:
    worker = bench.client()
    bench.send(worker, "CLIENT", "SETNAME", "disque-worker:host:7")
    bench.send(worker, "WORKER", "REPORT", "slots", 4, "queue", "mail", "queue", "images")
    assert bench.replies(worker) == [b"OK", b"OK"]
    bench.advance(2)
    fields = [b"slots", b"4", b"queue", b"mail", b"queue", b"images"]
    assert bench("WORKER", "LIST") == [[worker.id, b"disque-worker:host:7", 2_000, b"", fields]]
    bench.send(worker, "WORKER", "REPORT", "slots", 5)
    assert bench("WORKER", "LIST") == [
        [worker.id, b"disque-worker:host:7", 0, b"", [b"slots", b"5"]]
    ]
    bench.node.forget_client(worker)
    assert bench("WORKER", "LIST") == []


def test_the_reply_to_a_report_tells_what_was_asked(bench: Bench) -> None:
    worker = bench.client()
    assert bench("WORKER", "STOP", worker.id) == 0  # it would not hear of it
    bench.send(worker, "WORKER", "REPORT", "slots", 4)
    assert bench("WORKER", "STOP", worker.id) == 1
    bench.send(worker, "WORKER", "REPORT", "slots", 4)
    assert bench("WORKER", "STOP", worker.id, "handback") == 1
    assert bench("WORKER", "STOP", worker.id) == 1  # which takes nothing back
    bench.send(worker, "WORKER", "REPORT", "slots", 4)
    assert bench.replies(worker) == [b"OK", b"STOP", b"HANDBACK"]
    assert bench("WORKER", "LIST") == [[worker.id, b"", 0, b"handback", [b"slots", b"4"]]]


def test_reports_are_bounded(bench: Bench) -> None:
    assert bench.error("WORKER", "REPORT", "slots").startswith("ERR wrong number")
    too_much = "ERR a report may have 32 fields, and 4096 bytes"
    assert bench.error("WORKER", "REPORT", *["a", "b"] * 33) == too_much
    assert bench.error("WORKER", "REPORT", "a", "x" * 4_096) == too_much
    assert bench.error("WORKER", "STOP", 1, "now").startswith("ERR syntax")
    assert bench.error("WORKER", "STOP").startswith("ERR syntax")
    assert bench("WORKER", "LIST") == []
