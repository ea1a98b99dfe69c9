"""docs/tasks.md and docs/tasks-reference.md show valid code, and list all options of a task."""

import ast
import inspect
import re

from disque_trio.tasks import Disque, Options, TaskOptions
from disque_trio.tasks.app import Timeouts
from tests.support import ROOT

DOCS = ROOT / "docs"
PAGE = (DOCS / "tasks.md").read_text(encoding="utf-8")
REFERENCE = (DOCS / "tasks-reference.md").read_text(encoding="utf-8")


def test_its_code_is_code() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE + REFERENCE, re.DOTALL | re.MULTILINE)
    assert len(blocks) > 5
    for block in blocks:
        compile(block, "tasks.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_it_has_all_arguments_of_the_app_and_of_tasks() -> None:
    signature = re.search(r"^`Disque\((.*)\)`$", REFERENCE, re.MULTILINE)
    assert signature is not None
    said = re.findall(r"(\w+)=", signature[1])
    named = [*inspect.signature(Disque).parameters, *Timeouts.__optional_keys__]
    assert sorted([*said, "timeouts", "retry_for"]) == sorted(named)
    table = REFERENCE.partition("| argument | |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)(?:=[^`]*)?`", " ".join(re.findall(r"^\| (.*?) \|", table, re.M)))
    assert sorted(named) == sorted(TaskOptions.__optional_keys__)


def test_it_has_all_options_of_jobs() -> None:
    row = re.search(r"with other options: (.*) \|", PAGE)
    assert row is not None
    assert set(re.findall(r"`(\w+)`", row[1])) == Options.__optional_keys__
