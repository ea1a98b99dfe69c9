"""The build backend: setuptools, and the decision which form of the state machine a wheel has.

Rule 1: a wheel is compiled by mypyc where a C compiler and Python's headers are there.
Rule 2: where they are not, or compiling fails, the same sources are installed as they are, and
        one line says why. ``disque-server --version`` and ``bananaq --version`` say which form it
        became.
Rule 3: ``DISQUE_TRIO_COMPILE=0`` asks for the pure form, ``DISQUE_TRIO_COMPILE=1`` for the compiled
        one; it is then an error if that cannot be built.
Rule 4: an editable install is pure: what runs is what was edited last.

What compiled a wheel is told in ``build/compiled-by``: counts of instructions depend on it.

mypy is asked for only when there is something to compile with. ``setup.py`` does as this module
says in the environment: ``DISQUE_TRIO_COMPILE=1`` compiles, everything else does not.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import ParamSpec, TypeAlias, TypeVar
from unittest.mock import patch

from setuptools import build_meta

Settings: TypeAlias = Mapping[str, str | list[str] | None] | None
P = ParamSpec("P")
T = TypeVar("T")

VARIABLE = "DISQUE_TRIO_COMPILE"
# mypy has to see the types of what the compiled modules import.
TO_COMPILE = ("mypy>=2.4", "types-PyYAML", "hiredis>=3.1", "structlog")

_TRIAL = "#include <Python.h>\nint trial(void) { return PY_MAJOR_VERSION; }\n"


def why_pure() -> str:
    """Why nothing can be compiled here; empty: it can."""
    if os.environ.get(VARIABLE) == "0":
        return f"{VARIABLE}=0"
    if sys.implementation.name != "cpython":
        return f"mypyc does not compile for {sys.implementation.name}"
    return _compiler_problem()


def _compiler() -> list[str]:
    """The command of the C compiler."""
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def _note_compilers() -> None:
    said = subprocess.run([*_compiler(), "--version"], capture_output=True, text=True, check=False)
    Path("build", "compiled-by").write_text(
        f"mypy {version('mypy')}, {said.stdout.partition(chr(10))[0]}\n"
    )


def _compiler_problem() -> str:
    """What is wrong with the C compiler, found out by a file that needs Python's headers and, as
    those do, the headers of the C library."""
    compiler = _compiler()
    include = sysconfig.get_path("include")
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "trial.c")
        source.write_text(_TRIAL)
        command = [*compiler, "-I", include, "-c", str(source), "-o", str(source.with_suffix(".o"))]
        try:
            done = subprocess.run(command, capture_output=True, check=False)
        except OSError:
            return f"there is no C compiler ({compiler[0]})"
    if done.returncode:
        if not Path(include, "Python.h").exists():
            return f"there are no headers of Python in {include}"
        return f"the C compiler ({compiler[0]}) does not compile"
    return ""


def _form(value: str) -> AbstractContextManager[object]:
    """What ``setup.py`` is to do while the block runs."""
    return patch.dict(os.environ, {VARIABLE: value})


def _pure(hook: Callable[P, T]) -> Callable[P, T]:
    """A hook of setuptools for which ``setup.py`` compiles nothing."""

    @wraps(hook)
    def run(*args: P.args, **options: P.kwargs) -> T:
        with _form("0"):
            return hook(*args, **options)

    return run


def _forget_earlier_builds() -> None:
    """setuptools puts all that is there into the wheel, also modules that are compiled or exist no
    more. What mypyc goes on from is elsewhere."""
    for directory in Path("build").glob("lib*"):
        shutil.rmtree(directory)


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Make a wheel of the form that can be built; returns its name."""
    must = os.environ.get(VARIABLE) == "1"
    problem = why_pure()
    _forget_earlier_builds()
    if not problem:
        try:
            with _form("1"):
                name = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
            _note_compilers()
            return str(name)
        except (Exception, SystemExit) as failure:
            if must:
                raise
            problem = f"compiling failed ({type(failure).__name__}: {failure})"
    if must:
        raise SystemExit(f"disque-trio: {VARIABLE}=1, but {problem}")
    print(f"disque-trio: not compiled, pure Python is installed: {problem}", file=sys.stderr)
    return str(_pure(build_meta.build_wheel)(wheel_directory, config_settings, metadata_directory))


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What ``build_wheel`` needs beside setuptools."""
    requires = list(_pure(build_meta.get_requires_for_build_wheel)(config_settings))
    return requires if why_pure() else [*requires, *TO_COMPILE]


# The wheel's metadata is the same for both forms.
prepare_metadata_for_build_wheel = _pure(build_meta.prepare_metadata_for_build_wheel)
build_editable = _pure(build_meta.build_editable)
get_requires_for_build_editable = _pure(build_meta.get_requires_for_build_editable)
prepare_metadata_for_build_editable = _pure(build_meta.prepare_metadata_for_build_editable)
build_sdist = _pure(build_meta.build_sdist)
get_requires_for_build_sdist = _pure(build_meta.get_requires_for_build_sdist)
