"""Which tasks a worker of Django's tasks finds, and which modules it imports for that."""

import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.test import override_settings

from disque_integrations.django.known import KnownError, find_task
from disque_integrations.django.options import BackendOptions
from packages.integrations.tests.support.django_world import tasks, tasks_on

MODULE = """
try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

@task
def mail():
    pass

def plain():
    pass
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Packages that can be imported: ``shop_of_tests``, the project's, and ``more_of_tests``."""
    for package in ("shop_of_tests", "more_of_tests"):
        for name in (package, f"{package}/tasks", f"{package}/jobs"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text(MODULE if "/" in name else "")
        (tmp_path / package / "jobs" / "deep.py").write_text(MODULE)
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    changed = {"SETTINGS_MODULE": "shop_of_tests.settings", "TASKS": tasks_on("disque://127.0.0.1")}
    with override_settings(**changed):
        yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("path", ["this.s", "test.__main__.x", "more_of_tests.tasks.mail", "x", ""])
def test_no_module_is_imported_because_a_job_names_it(project: None, path: str) -> None:
    before = set(sys.modules)
    with pytest.raises(ValueError, match=r"known|not a task"):
        find_task(path, ["shop_of_tests.jobs", "more_of_tests.jobs"])
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    "path",
    ["shop_of_tests.tasks.mail", "more_of_tests.jobs.mail", "more_of_tests.jobs.deep.mail"],
)
def test_modules_that_the_project_names_are_imported(project: None, path: str) -> None:
    assert find_task(path, ["more_of_tests.jobs"]).module_path == path


def test_what_looks_like_a_named_module_is_not_one(project: None) -> None:
    with pytest.raises(ValueError, match="no tasks are known"):
        find_task("more_of_tests.jobs.mail", ["more_of_tests.job", "more_of_tests.tasks"])


def test_an_installed_app_has_its_tasks(project: None) -> None:
    with override_settings(INSTALLED_APPS=["disque_integrations.django", "more_of_tests"]):
        assert find_task("more_of_tests.tasks.mail", []).name == "mail"


def test_tasks_are_found_in_what_the_program_has_imported() -> None:
    path = tasks.add.module_path
    assert find_task(path, []).module_path == path


@pytest.mark.parametrize("path", ["shop_of_tests.tasks.plain", "shop_of_tests.tasks.gone"])
def test_what_is_not_a_task_is_not_found(project: None, path: str) -> None:
    with pytest.raises(ValueError, match="is not a task"):
        find_task(path, [])


@pytest.mark.parametrize("modules", ["shop.jobs", [""], [5], None])
def test_modules_are_a_list_of_names(modules: object) -> None:
    with pytest.raises(ValueError, match="modules must be"):
        BackendOptions.read({"modules": modules})


def test_a_module_that_another_thread_imports_is_waited_for(
    project: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = SimpleNamespace(begun=threading.Event(), open=threading.Event())
    monkeypatch.setattr(sys, "gate_of_tests", gate, raising=False)
    wait = "import sys\nsys.gate_of_tests.begun.set()\nsys.gate_of_tests.open.wait()\n"
    (tmp_path / "shop_of_tests" / "jobs" / "slow.py").write_text(wait + MODULE)
    path = "shop_of_tests.jobs.slow.mail"
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(find_task, path, ["shop_of_tests.jobs"])
        gate.begun.wait()
        second = pool.submit(find_task, path, ["shop_of_tests.jobs"])
        with pytest.raises(TimeoutError):
            second.result(0.05)
        gate.open.set()
        assert first.result() is second.result()


def test_nor_because_the_record_of_a_task_names_an_exception_in_it(project: None) -> None:
    before = set(sys.modules)
    for path in ("this.s", "more_of_tests.tasks.mail", "x"):
        with pytest.raises(ImportError, match="has not imported"):
            _ = KnownError(exception_class_path=path, traceback="").exception_class
    assert set(sys.modules) == before
    with pytest.raises(ValueError, match="valid exception"):
        _ = KnownError(exception_class_path="os.path.join", traceback="").exception_class
    error = KnownError(exception_class_path="json.decoder.JSONDecodeError", traceback="")
    assert error.exception_class is json.JSONDecodeError
