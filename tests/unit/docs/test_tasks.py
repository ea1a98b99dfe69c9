"""docs/tasks.md shows valid code, and lists all options of a task."""

import ast
import inspect
import re

from disque_trio.tasks import Disque, Options, TaskOptions
from disque_trio.tasks.app import Timeouts
from tests.support import ROOT

PAGE = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")


def test_its_code_is_code() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) > 5
    for block in blocks:
        compile(block, "tasks.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_it_has_all_arguments_of_the_app_and_of_tasks() -> None:
    signature = re.search(r"^`Disque\((.*)\)`$", PAGE, re.MULTILINE)
    assert signature is not None
    said = re.findall(r"(\w+)=", signature[1])
    named = [*inspect.signature(Disque).parameters, *Timeouts.__optional_keys__]
    assert sorted([*said, "timeouts", "retry_for"]) == sorted(named)
    table = PAGE.partition("| argument | |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)(?:=[^`]*)?`", " ".join(re.findall(r"^\| (.*?) \|", table, re.M)))
    assert sorted(named) == sorted(TaskOptions.__optional_keys__)


def test_it_has_all_options_of_jobs() -> None:
    row = re.search(r"with other options: (.*) \|", PAGE)
    assert row is not None
    assert set(re.findall(r"`(\w+)`", row[1])) == Options.__optional_keys__
