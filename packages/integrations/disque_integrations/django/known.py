"""Finds the task, or the exception, that a job names, without importing what a stranger chose.

Whoever may add to a queue chooses the names in its jobs. So a module is imported only if the
project says that it has tasks: it is named in the option ``modules``, or is the module ``tasks`` of
an installed app or of the project's own package. In modules that the program has imported itself,
any task can be found.
"""

import sys
from collections.abc import Sequence
from importlib import import_module

from django.apps import apps
from django.conf import settings

from disque_integrations.django.framework import Task, TaskError


class KnownError(TaskError):
    """An error in the record of a task that has ended."""

    @property
    def exception_class(self) -> type[BaseException]:
        """The class of the exception.

        Raises:
            ImportError: this program has not imported its module.
            ValueError: it is no exception.
        """
        name = self.exception_class_path.rpartition(".")[0]
        if name not in sys.modules:
            raise ImportError(
                f"{self.exception_class_path!r}, which a record names, is in a module that this "
                "program has not imported"
            )
        found: type[BaseException] = super().exception_class
        return found


def find_task(path: str, modules: Sequence[str]) -> Task:
    """Return the task at ``path``. modules: the names of further modules that have tasks; modules
    in a package of this name have, too.

    Raises:
        ImportError: the module is missing, or cannot be imported.
        ValueError: there is no such task, or not in a module that is known to have some.
    """
    name, _, attribute = path.rpartition(".")
    if name not in sys.modules and not _has_tasks(name, modules):
        raise ValueError(f"no tasks are known in {name!r}: name it in OPTIONS, in modules")
    module = import_module(name)  # which waits while another thread imports it
    task = vars(module).get(attribute)
    if not isinstance(task, Task):
        raise ValueError(f"{path} is not a task")
    return task


def _has_tasks(name: str, modules: Sequence[str]) -> bool:
    """Whether the module ``name`` is known to have tasks."""
    packages = [app.name for app in apps.get_app_configs()]
    project, dot, _ = (getattr(settings, "SETTINGS_MODULE", None) or "").rpartition(".")
    if dot:
        packages.append(project)
    known = [*modules, *[f"{package}.tasks" for package in packages]]
    return any(name == module or name.startswith(f"{module}.") for module in known)
