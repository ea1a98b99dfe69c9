"""Jobs in processes of their own."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
import trio

from disque_integrations.alone import Alone, Died, NotAloneError
from tests.support import PYTHONPATH

MODULE = "packages.integrations.tests.support.alone_jobs"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)


def children() -> set[int]:
    """The processes that this one has started."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


async def test_a_job_runs_in_another_process_and_says_what_came_of_it() -> None:
    before = children()
    said = await Alone(MODULE).run(what="say")
    assert not isinstance(said, Died)
    assert said["pid"] != os.getpid()
    assert said["argv"] == sys.argv
    assert children() == before


@pytest.mark.parametrize(
    ("what", "how"), [("kill", "killed by SIGKILL"), ("exit", "status 3"), ("close", "status 1")]
)
async def test_how_a_process_died_is_known(what: str, how: str) -> None:
    said = await Alone(MODULE).run(what=what)
    assert isinstance(said, Died)
    assert how in said.how
    assert ", memory " in said.how


async def test_what_it_says_may_be_long() -> None:
    said = await Alone(MODULE).run(what="long")
    assert not isinstance(said, Died)
    assert len(said["text"]) == 10_000_000


async def test_a_child_that_a_job_has_forked_says_nothing_in_its_place() -> None:
    said = await Alone(MODULE).run(what="fork")
    assert not isinstance(said, Died)
    assert said["pid"] == said["started"]


async def test_a_program_that_has_no_such_job_says_so() -> None:
    with pytest.raises(NotAloneError, match="it is not there"):
        await Alone(MODULE).run(what="cannot")


async def test_a_program_that_would_run_again_is_not_imported_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    main = ModuleType("__main__")
    main.__file__ = str(tmp_path / "worker.py")
    Path(main.__file__).write_text("worker.start()")
    monkeypatch.setitem(sys.modules, "__main__", main)
    with pytest.raises(NotAloneError, match="would run again"):
        await Alone(MODULE).run(what="say")


async def test_a_job_that_is_cancelled_leaves_no_process() -> None:
    before = children()
    with trio.move_on_after(0.3) as scope:
        await Alone(MODULE).run(what="wait")
    assert scope.cancelled_caught
    assert children() == before
