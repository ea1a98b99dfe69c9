"""Runs tests under Trio and under asyncio, because clients support both."""

import asyncio
import gc
import inspect
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any

import pytest
import trio

Test = Callable[..., Coroutine[Any, Any, None]]


def run_asyncio(
    function: Callable[[], Coroutine[Any, Any, None]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    *,
    debug: bool = True,
) -> None:
    """Run a function under asyncio. Errors that the loop would only log are raised."""
    problems: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: problems.append(context))
        await function()

    with asyncio.Runner(debug=debug, loop_factory=loop_factory) as runner:
        runner.run(main())
        gc.collect()  # finalizers report exceptions that nobody has retrieved
    gc.collect()
    assert problems == []


def _with(run: Callable[[Callable[[], Coroutine[Any, Any, None]]], None], test: Test) -> Any:
    @wraps(test)
    def on_loop(**fixtures: Any) -> None:
        run(partial(test, **fixtures))

    return on_loop


def on_asyncio(test: Test) -> Callable[..., None]:
    """Run a test under asyncio in debug mode."""
    test_on_asyncio: Callable[..., None] = _with(run_asyncio, test)
    return test_on_asyncio


def on_both(test: Test) -> Callable[..., None]:
    """Run a test twice, under Trio and under asyncio."""
    runs = {"trio": trio.run, "asyncio": partial(run_asyncio, debug=False)}

    @wraps(test)
    def on_loop(*, loop: str, **fixtures: Any) -> None:
        runs[loop](partial(test, **fixtures))

    parameters = list(inspect.signature(test).parameters.values())
    parameters.append(inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY))
    on_loop.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    both: Callable[..., None] = pytest.mark.parametrize("loop", runs)(on_loop)
    return both
