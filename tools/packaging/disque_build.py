"""The build backend: setuptools, and the decision which form of the state machine a wheel has.

Rule 1: a wheel is compiled by mypyc where a C compiler and Python's headers are there.
Rule 2: where they are not, or compiling fails, the same sources are installed as they are, and
        one line says why. ``disque-server --version`` and ``bananaq --version`` say which form it
        became.
Rule 3: ``DISQUE_TRIO_COMPILE=0`` asks for the pure form, ``DISQUE_TRIO_COMPILE=1`` for the compiled
        one; it is then an error if that cannot be had.
Rule 4: an editable install is pure: what runs is what was edited last.

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from setuptools import build_meta

Settings: TypeAlias = Mapping[str, str | list[str] | None] | None

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


def _compiler_problem() -> str:
    """What is wrong with the C compiler, found out by a file that needs Python's headers and, as
    those do, the headers of the C library."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
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


@contextmanager
def _form(value: str) -> Iterator[None]:
    """What setup.py is to do."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def _forget_earlier_builds() -> None:
    """setuptools puts all that is there into the wheel, also modules that are compiled or exist no
    more. What mypyc goes on from is elsewhere."""
    for directory in Path("build").glob("lib*"):
        shutil.rmtree(directory)


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Make a wheel of the form that can be had; returns its name."""
    must = os.environ.get(VARIABLE) == "1"
    problem = why_pure()
    _forget_earlier_builds()
    if not problem:
        try:
            with _form("1"):
                name = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
            return str(name)
        except (Exception, SystemExit) as failure:
            if must:
                raise
            problem = f"compiling failed ({type(failure).__name__}: {failure})"
    if must:
        raise SystemExit(f"disque-trio: {VARIABLE}=1, but {problem}")
    print(f"disque-trio: not compiled, pure Python is installed: {problem}", file=sys.stderr)
    with _form("0"):
        return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What ``build_wheel`` needs beside setuptools."""
    with _form("0"):
        requires = list(build_meta.get_requires_for_build_wheel(config_settings))
    return requires if why_pure() else [*requires, *TO_COMPILE]


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    """The wheel's metadata, which is the same for both forms."""
    with _form("0"):
        return str(build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings))


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Make an editable wheel, which is pure; returns its name."""
    with _form("0"):
        return str(build_meta.build_editable(wheel_directory, config_settings, metadata_directory))


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """What ``build_editable`` needs beside setuptools."""
    with _form("0"):
        return list(build_meta.get_requires_for_build_editable(config_settings))


def prepare_metadata_for_build_editable(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    """The metadata of the editable wheel."""
    with _form("0"):
        return str(
            build_meta.prepare_metadata_for_build_editable(metadata_directory, config_settings)
        )


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Make the source distribution; returns its name."""
    with _form("0"):
        return str(build_meta.build_sdist(sdist_directory, config_settings))


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    """What ``build_sdist`` needs beside setuptools."""
    with _form("0"):
        return list(build_meta.get_requires_for_build_sdist(config_settings))
