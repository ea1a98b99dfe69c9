"""A traceback has the calls of the program, and not those of what runs it."""

import json
import re
from collections.abc import Callable

import pytest
import trio

from disque_trio.respclient.foreign import in_thread
from disque_trio.tracebacks import MOST, sole, traceback_of


def raised_by(function: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        function()
    return caught.value


def calls_in(text: str) -> list[str]:
    """The functions that a traceback names."""
    return re.findall(r'File ".*", line \d+, in (\S+)', text)


def files_in(text: str) -> set[str]:
    return set(re.findall(r'File "(.*)", line', text))


def fail(text: str = "no such address") -> None:
    raise ValueError(text)


async def fail_in_a_loop() -> None:
    fail()


def test_calls_of_the_loop_and_of_threads_are_left_out() -> None:
    async def main() -> None:
        await trio.to_thread.run_sync(fail)

    text = traceback_of(raised_by(lambda: trio.run(main)))
    assert files_in(text) == {__file__}
    assert calls_in(text)[-2:] == ["main", "fail"]
    assert text.endswith("\nValueError: no such address\n")


def test_calls_of_this_package_are_left_out_also_between_those_of_the_program() -> None:
    async def main() -> None:
        await in_thread(fail)

    text = traceback_of(raised_by(lambda: trio.run(main)))
    assert files_in(text) == {__file__}


def test_calls_of_other_libraries_are_kept() -> None:
    text = traceback_of(raised_by(lambda: json.loads("[")))
    assert calls_in(text)[-1] == "raw_decode"


def test_a_mistake_in_the_call_itself_has_no_calls() -> None:
    error = raised_by(lambda: trio.run(trio.to_thread.run_sync, fail, 1, 2))
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next.tb_next  # without those of this file
    assert traceback_of(error) == f"TypeError: {error}\n"


def test_causes_are_kept_each_with_its_own_calls() -> None:
    def parse() -> None:
        try:
            fail("3 apples")
        except ValueError as error:
            raise KeyError("no number") from error

    def main() -> None:
        try:
            parse()
        except KeyError:
            fail("at the end")

    async def run() -> None:
        await trio.to_thread.run_sync(main)

    text = traceback_of(raised_by(lambda: trio.run(run)))
    said = [line for line in text.splitlines() if line.startswith(("ValueError", "KeyError"))]
    assert said == ["ValueError: 3 apples", "KeyError: 'no number'", "ValueError: at the end"]
    assert "direct cause" in text
    assert "another exception occurred" in text
    assert files_in(text) == {__file__}


def test_a_hidden_cause_stays_hidden() -> None:
    def main() -> None:
        try:
            fail("secret")
        except ValueError:
            raise KeyError("shown") from None

    assert "secret" not in traceback_of(raised_by(main))


def test_a_group_of_one_is_shown_as_that_one_behind_the_calls_of_the_group() -> None:
    async def inner() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_in_a_loop)

    async def outer() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inner)

    error = raised_by(lambda: trio.run(outer))
    assert isinstance(error, ExceptionGroup)
    text = traceback_of(error)
    assert calls_in(text)[-4:] == ["outer", "inner", "fail_in_a_loop", "fail"]
    assert "Group" not in text
    assert isinstance(sole(error), ValueError)


def test_the_members_of_a_group_are_shown_each_with_its_own_calls() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_in_a_loop)
            nursery.start_soon(fail_in_a_loop)

    error = raised_by(lambda: trio.run(main, strict_exception_groups=True))
    text = traceback_of(error)
    assert text.count("ValueError: no such address") == 2
    assert files_in(text) == {__file__}
    assert sole(error) is error


def test_a_cause_behind_a_group_of_one_is_kept() -> None:
    def main() -> None:
        try:
            fail("first")
        except ValueError as error:
            raise ExceptionGroup("", [KeyError("then")]) from error

    text = traceback_of(raised_by(main))
    assert text.index("ValueError: first") < text.index("KeyError: 'then'")


@pytest.mark.parametrize("depth", [10, 10_000])
def test_a_long_traceback_is_cut_at_its_start(depth: int) -> None:
    def one(left: int) -> None:
        two(left - 1) if left else fail("x" * 100_000)

    def two(left: int) -> None:
        one(left - 1) if left else fail("x" * 100_000)

    text = traceback_of(raised_by(lambda: one(depth)))
    assert len(text) < MOST + 100
    assert calls_in(text)[-1] in ("fail", "one", "two")


def test_an_exception_that_says_a_lot_does_not_push_its_calls_out() -> None:
    text = traceback_of(raised_by(lambda: fail("x\n" * 50_000)))
    assert len(text) < MOST
    assert "fail" in calls_in(text)


def test_a_long_chain_of_causes_is_cut_at_its_start() -> None:
    def main() -> None:
        error: Exception = ValueError("first")
        for number in range(200):
            try:
                raise KeyError(number) from error
            except KeyError as next:
                error = next
        raise error

    text = traceback_of(raised_by(main))
    assert len(text) < MOST + 100
    assert text.startswith("...\n")
    assert text.endswith("KeyError: 199\n")
