"""The build backend: setuptools, and the decision whether a wheel is compiled.

Rule 1: a wheel is compiled by mypyc if there are a C compiler and Python's headers.
Rule 2: if there are not, or compilation fails, the sources are installed instead, and one line
        says why. ``disque-server --version`` and ``bananaq --version`` show which build it is.
Rule 3: ``DISQUE_TRIO_COMPILE=0`` asks for the pure build, ``DISQUE_TRIO_COMPILE=1`` for the
        compiled one; then a failure to compile is an error.
Rule 4: an editable install is pure, so that edits take effect at once.
Rule 5: what a checkout requires of the other distributions in it is taken from there: pip asks for
        the metadata first. A wheel names them as an index does, and so does the metadata with
        ``DISQUE_TRIO_CHECKOUT=0``, for who installs several of them together.

``build/compiled-by`` records the compilers of a wheel: instruction counts depend on them.

mypy is required only if compilation is possible. This module controls ``setup.py`` through the
environment: ``DISQUE_TRIO_COMPILE=1`` compiles, everything else does not.
"""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
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

_TRIAL = "#include <Python.h>\nint trial(void) { return PY_MAJOR_VERSION; }\n"


def why_pure() -> str:
    """Why compilation is impossible here; empty if it is possible."""
    if os.environ.get(VARIABLE) == "0":
        return f"{VARIABLE}=0"
    if sys.implementation.name != "cpython":
        return f"mypyc does not compile for {sys.implementation.name}"
    return _compiler_problem()


def _compiler() -> list[str]:
    """The command of the C compiler."""
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def _note_compilers() -> None:
    """Record the compilers of a wheel, and their Python and flags. When any of these changes,
    ``setup.py`` compiles everything again."""
    said = subprocess.run([*_compiler(), "--version"], capture_output=True, text=True, check=False)
    _note("compiled-by", f"mypy {version('mypy')}, {said.stdout.partition(chr(10))[0]}\n")
    options = f"{sysconfig.get_config_var('CFLAGS')} {os.environ.get('CFLAGS', '')}"
    _note("compiled-for", f"{sys.version}\n{options}\n")


def _note(name: str, text: str) -> None:
    """Write a file in ``build``, but leave its time alone if it has this text already."""
    path = Path("build", name)
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def _compiler_problem() -> str:
    """The problem with the C compiler, found by compiling a file that needs the headers of Python
    and of the C library; empty if there is none."""
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
            return f"there are no Python headers in {include}"
        return f"the C compiler ({compiler[0]}) does not compile"
    return ""


def _form(value: str) -> AbstractContextManager[object]:
    """Sets the environment for ``setup.py`` while the block runs."""
    return patch.dict(os.environ, {VARIABLE: value})


def _pure(hook: Callable[P, T]) -> Callable[P, T]:
    """A setuptools hook for which ``setup.py`` compiles nothing."""

    @wraps(hook)
    def run(*args: P.args, **options: P.kwargs) -> T:
        with _form("0"):
            return hook(*args, **options)

    return run


def _forget_earlier_builds() -> None:
    """Remove earlier builds: setuptools puts everything there into the wheel, even modules that no
    longer exist. Compiled modules stay, which saves compiling: ``setup.py`` removes the old ones.
    """
    for path in Path("build").glob("lib*/**/*"):
        if path.is_file() and path.suffix != ".so":
            path.unlink()


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel, compiled if possible; returns its name."""
    must = os.environ.get(VARIABLE) == "1"
    problem = why_pure()
    _forget_earlier_builds()
    if not problem:
        try:
            _note_compilers()
            with _form("1"):
                return str(
                    build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
                )
        except (Exception, SystemExit) as failure:
            if must:
                raise
            problem = f"compilation failed ({type(failure).__name__}: {failure})"
    if must:
        raise SystemExit(f"disque-trio: {VARIABLE}=1, but {problem}")
    print(f"disque-trio: installing pure Python, not compiled: {problem}", file=sys.stderr)
    return str(_pure(build_meta.build_wheel)(wheel_directory, config_settings, metadata_directory))


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """The requirements of ``build_wheel`` besides setuptools."""
    requires = list(_pure(build_meta.get_requires_for_build_wheel)(config_settings))
    if why_pure():
        return requires
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    return [*requires, *project["optional-dependencies"]["compile"]]


def _beside(metadata: Path) -> None:
    """Take the requirements in ``metadata`` that are distributions of this checkout from there."""
    lines = metadata.read_text(encoding="utf-8").splitlines(keepends=True)
    for number, line in enumerate(lines):
        found = re.match(r"Requires-Dist: (disque-(\w+)(?:\[[\w,]+\])?)==\S+; (.*)", line)
        if found and (folder := Path("packages", found[2]).resolve()).is_dir():
            lines[number] = f"Requires-Dist: {found[1]} @ {folder.as_uri()} ; {found[3]}\n"
    metadata.write_text("".join(lines), encoding="utf-8")


def _of_checkout(hook: Callable[..., str]) -> Callable[[str, Settings], str]:
    """A hook that prepares metadata, for an installation from this checkout."""

    def run(metadata_directory: str, config_settings: Settings = None) -> str:
        name = _pure(hook)(metadata_directory, config_settings)
        if os.environ.get("DISQUE_TRIO_CHECKOUT") != "0":
            _beside(Path(metadata_directory, name, "METADATA"))
        return name

    return run


# The wheel's metadata is the same for both builds.
prepare_metadata_for_build_wheel = _of_checkout(build_meta.prepare_metadata_for_build_wheel)
build_editable = _pure(build_meta.build_editable)
get_requires_for_build_editable = _pure(build_meta.get_requires_for_build_editable)
prepare_metadata_for_build_editable = _of_checkout(build_meta.prepare_metadata_for_build_editable)
build_sdist = _pure(build_meta.build_sdist)
get_requires_for_build_sdist = _pure(build_meta.get_requires_for_build_sdist)
