"""What a job has been through travels in the reason of its last NACK."""

import pytest

from disque_trio.job_past import MOST, NOTHING, Past, death, split_trace, with_trace
from disque_trio.tracebacks import traceback_of


def read(reason: bytes) -> Past:
    return Past.read(reason.decode())


def test_a_reason_tells_what_a_job_has_been_through() -> None:
    past = Past(4, 2, 1, "its process died: exit status 3")
    assert read(past.reason()) == past
    after = read(past.reason("ValueError: no [such] number"))
    assert after == Past(4, 2, 1, "ValueError: no [such] number")


def test_the_reason_of_a_job_that_only_failed_is_the_error() -> None:
    assert NOTHING.reason("ValueError: x") == b"ValueError: x"
    assert read(b"ValueError: x") == Past(said="ValueError: x")


def test_a_long_error_does_not_push_the_counts_out() -> None:
    past = Past(1, 1, 0)
    assert len(past.reason("ä" * 5000)) <= 4096
    assert read(past.reason("ä" * 5000)).crashes == 1
    assert len(NOTHING.reason("ä" * 5000)) <= 4096


def test_a_job_that_is_handed_back_any_number_of_times_is_no_suspect() -> None:
    past = NOTHING
    for _ in range(100):
        past = read(past.stopped().reason())
    assert (past.returned, past.crashes) == (100, 0)
    assert not past.is_suspect
    assert not past.is_guilty


def test_the_last_failure_is_still_known_after_a_stop() -> None:
    assert Past.read("ValueError: x").stopped().said == "ValueError: x"


def test_a_job_that_was_in_two_processes_that_died_is_a_suspect_and_not_guilty() -> None:
    past = NOTHING.crashed("killed", alone=False)
    assert not past.is_suspect
    past = past.crashed("killed", alone=False)
    assert past.is_suspect
    for _ in range(10):
        past = past.crashed("killed", alone=False)
    assert not past.is_guilty


def test_a_job_is_guilty_after_three_processes_that_ran_nothing_else() -> None:
    past = NOTHING.crashed("killed", alone=False)
    for _ in range(MOST):
        assert not past.is_guilty
        past = past.crashed("killed", alone=True)
    assert past.is_guilty


def test_pauses_grow() -> None:
    pauses = [Past(crashes=crashes).pause for crashes in (1, 2, 3, 4, 1000)]
    assert pauses == [0.5, 1, 2, 4, 60]


def test_a_death_is_told_with_the_memory_if_that_is_known() -> None:
    assert death("exit status 3", 40 << 20) == "its process died: exit status 3, memory 40 MiB"
    assert death("killed by SIGKILL", None) == "its process died: killed by SIGKILL"


def fail(text: str) -> None:
    raise ValueError(text)


def trace_of(text: str) -> str:
    """The traceback of an exception from ``fail``."""
    try:
        fail(text)
    except ValueError as error:
        return traceback_of(error)
    raise AssertionError


def test_a_reason_has_the_last_calls_before_the_error() -> None:
    reason = NOTHING.stopped().reason(with_trace("ValueError: no", trace_of("no"))).decode()
    error, trace = split_trace(Past.read(reason).said)
    assert error == "ValueError: no"
    assert trace.count('  File "') == 2
    assert trace.endswith("in fail\n    raise ValueError(text)")
    assert "ValueError: no" not in trace


def test_a_long_traceback_is_cut_at_its_start_and_leaves_room_for_the_counts() -> None:
    calls = "".join(
        f'  File "/app/{number:090d}.py", line 1, in f\n    f()\n' for number in range(99)
    )
    text = f"Traceback (most recent call last):\n{calls}KeyError: 'x'\n"
    reason = NOTHING.stopped().reason(with_trace("KeyError: 'x'", text))
    assert 1_500 < len(reason) < 4_000
    assert split_trace(reason.decode())[1].splitlines()[-2].endswith('98.py", line 1, in f')
    assert Past.read(reason.decode()).returned == 1


def test_of_a_group_the_last_member_is_kept() -> None:
    error = ExceptionGroup("two", [ValueError("first"), KeyError("x" * 3_000)])
    _, trace = split_trace(with_trace("ExceptionGroup: two", traceback_of(error)))
    assert "KeyError" not in trace.splitlines()[0]
    assert trace.splitlines()[-1].strip(" +-") == ""


def test_causes_go_with_a_job_if_there_is_room() -> None:
    try:
        try:
            fail("first")
        except ValueError as error:
            raise KeyError("then") from error
    except KeyError as error:
        _, trace = split_trace(with_trace("KeyError: 'then'", traceback_of(error)))
    assert "ValueError: first" in trace
    assert "KeyError: 'then'" not in trace


@pytest.mark.parametrize("trace", ["", "\n", "no traceback", "OSError: x\n"])
def test_without_calls_there_is_just_the_error(trace: str) -> None:
    assert with_trace("OSError: x", trace) == "OSError: x"
    assert split_trace("OSError: x") == ("OSError: x", "")
