"""When an archive is restarted."""

import pytest

from disque_spark.failures import NOT_STARTED
from disque_spark.restarts import LONGEST_PAUSE, MANY, SAME, Restarts, wait

PASSES = (
    "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect"
    " back. SQLSTATE: XXKST",
    "Python worker failed to connect back",
)
TRACE = """\
[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "disque_spark/leases/planner.py", line 128, in latest
    except WireError:
           ^^^^^^^^^
disque_spark.client.RefusedError: {}

\tat org.apache.spark.sql.WireErrorHandling.run(WireErrorHandling.java:1)
"""
ODD = ("ArchiveError: Permission denied: 'x'", "ArchiveError: Permission denied: 'x'")


def test_temporary_failures_are_retried_forever_with_growing_pauses() -> None:
    restarts = Restarts()
    pauses = [restarts.pause(*PASSES) for _ in range(20)]
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE]
    assert set(pauses[7:]) == {LONGEST_PAUSE}
    assert restarts.count == 20


@pytest.mark.parametrize("code", ["LOADING", "MISCONF", "OOM", "LEAVING", "NOREPL"])
def test_a_node_that_refuses_for_a_while_is_waited_for_without_end(code: str) -> None:
    restarts = Restarts()
    text = f"RefusedError: {code} for a while"
    failure = (text, text)
    assert None not in [restarts.pause(*failure) for _ in range(20 * SAME)]


def test_a_server_of_connect_that_waits_too_long_for_its_worker_is_tried_again() -> None:
    restarts = Restarts()
    text = "Timed out while waiting for the Python worker to connect back"
    assert None not in [restarts.pause(text, text) for _ in range(2 * SAME)]


@pytest.mark.parametrize(
    "kind",
    ["ServiceUnavailableError", "ServerError", "CommitFailedException", "CommitFailedError",
     "CommitStateUnknownException", "ConnectionError", "TooManyRequestsError"],
)  # fmt: skip
def test_a_catalog_that_is_away_is_waited_for_without_end(kind: str) -> None:
    restarts = Restarts()
    text = f"shop.orders: {kind}: for a while"
    assert None not in [restarts.pause(text, text) for _ in range(20 * SAME)]


def test_a_python_that_does_not_start_is_not_waited_for_without_end() -> None:
    text = "EOFException occurred while reading the port number from pyspark.daemon's stdout."
    line = f"{NOT_STARTED}: TypeError: unsupported operand"
    restarts = Restarts()
    pauses = [restarts.pause(text, line) for _ in range(SAME)]
    assert pauses[-1] is None
    assert None not in pauses[:-1]


def test_pauses_are_short_again_when_a_batch_was_done() -> None:
    restarts = Restarts()
    for _ in range(8):
        restarts.pause(*PASSES)
    restarts.progress()
    assert restarts.pause(*PASSES) == 1


@pytest.mark.parametrize(
    "text",
    [
        "disque_spark.options.OptionError: fetch: expected a number",
        "disque_spark.leases.store.LeaseError: /x: batch 3 is acknowledged, but the"
        " checkpoint is out of date: it knows batches up to 2",
        "disque_spark.client.RefusedError: NOAUTH Authentication required",
        "shop.orders: UnauthorizedError: who are you",
        "org.apache.spark.sql.AnalysisException: [PATH_NOT_FOUND]",
        "[PARSE_SYNTAX_ERROR] Syntax error at or near FOO",
        "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has a different version",
    ],
)
def test_failures_that_need_fixing_by_hand_are_not_retried(text: str) -> None:
    assert Restarts().pause(text, text) is None


def test_the_same_failure_again_and_again_without_a_batch_is_permanent() -> None:
    restarts = Restarts()
    failures = [(ODD[0], f"batch {number}: Permission denied") for number in range(SAME)]
    ends = [restarts.pause(*failure) is None for failure in failures]
    assert ends == [False] * (SAME - 1) + [True]


def test_the_same_failure_after_completed_batches_may_be_temporary() -> None:
    restarts = Restarts()
    for _ in range(3 * SAME):
        assert restarts.pause(*ODD) == 1
        restarts.progress()


def test_different_failures_in_a_row_may_be_temporary() -> None:
    restarts = Restarts()
    other = (ODD[0], "another")
    assert None not in [restarts.pause(*failure) for _ in range(SAME) for failure in (ODD, other)]


def test_many_different_failures_without_a_batch_are_permanent() -> None:
    restarts = Restarts()
    kinds = [(ODD[0], f"{one} failed") for one in ("this", "that")]
    pauses = [restarts.pause(*kinds[turn % 2]) for turn in range(MANY)]
    assert pauses.index(None) == MANY - 1
    for turn in range(2 * MANY):
        restarts.progress()
        assert restarts.pause(*kinds[turn % 2]) is not None


def test_temporary_failures_do_not_count_towards_the_limit_of_others() -> None:
    restarts = Restarts()
    for _ in range(2 * MANY):
        assert restarts.pause(*PASSES) is not None
    assert restarts.pause(*ODD) is not None


def test_lines_of_the_program_in_a_traceback_are_no_reason() -> None:
    text = TRACE.format("NOAUTH Authentication required")
    assert Restarts().pause(text, "RefusedError: NOAUTH Authentication required") is None
    restarts = Restarts()
    odd = (TRACE.format("strange"), "RefusedError: strange")
    assert None in [restarts.pause(*odd) for _ in range(SAME)]


def test_the_last_error_outweighs_the_ones_before_it() -> None:
    lost = ("RefusedError: ERR odd\n\nDuring handling of it:\nWireError: lost", "WireError: lost")
    assert Restarts().pause(*lost) is not None
    refused = (
        "WireError: lost\n\nDuring handling of it:\nOptionError: fetch",
        "OptionError: fetch",
    )
    assert Restarts().pause(*refused) is None


def test_there_may_be_a_limit() -> None:
    restarts = Restarts(2)
    for _ in range(2):
        assert restarts.pause(*PASSES) is not None
        restarts.progress()
    assert restarts.pause(*PASSES) is None
    assert Restarts(0).pause(*PASSES) is None


def test_a_pause_ends_at_once_when_it_is_told_to() -> None:
    asked = iter([False, False, True])
    wait(3600, lambda: next(asked))
    assert next(asked, None) is None
