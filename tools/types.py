"""Runs mypy on the package and the tools.

    python -m tools.types [ARGUMENT OF MYPY...]

With a plugin of its own (see ``tools.narrow``), which compiling the package does not need.

In the small environment of ``make check`` most libraries of the extras are not installed. There,
errors in modules that import one of these are not reported, and a line says which: without the
library's types, its classes are ``Any``. ``make test`` reports them.
"""

import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tools.affected.names import module_name

_IMPORT = re.compile(
    r"^\s*(?:from ([a-z_]\w*)[\w.]* import |import ([a-z_]\w*)[\w.]*(?: as \w+)?$)", re.MULTILINE
)
_FOLDERS = ("benchmarks", "disque_trio", "packages", "tests", "tools")
_CONFIG = Path("build", "mypy.toml")


def missing(text: str) -> set[str]:
    """The packages that a module's source imports and that are not installed."""
    return {name for found in _IMPORT.findall(text) if _is_missing(name := "".join(found))}


@cache
def _is_missing(name: str) -> bool:
    return find_spec(name) is None


def _module(path: Path) -> str:
    return module_name(path.as_posix())


def _quoted(names: set[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names))


def configuration(text: str, packages: set[str], modules: set[str]) -> str:
    """pyproject.toml's ``text``, extended: mypy uses the plugin ``tools.narrow``, looks for no
    ``packages``, and reports nothing about ``modules``."""
    text = text.replace("[tool.mypy]\n", '[tool.mypy]\nplugins = ["tools.narrow"]\n', 1)
    if not packages:
        return text
    wildcards = {pattern for name in packages for pattern in (name, f"{name}.*")}
    return (
        f"{text}\n[[tool.mypy.overrides]]\nmodule = [{_quoted(wildcards)}]\n"
        "ignore_missing_imports = true\n"
        f"\n[[tool.mypy.overrides]]\nmodule = [{_quoted(modules)}]\nignore_errors = true\n"
    )


def main() -> int:
    """Run mypy; returns its exit status."""
    packages: set[str] = set()
    modules: set[str] = set()
    paths = [path for folder in _FOLDERS for path in Path(folder).rglob("*.py")]
    for path in [*paths, *Path().glob("*.py")]:
        if found := missing(path.read_text()):
            packages |= found
            modules.add(_module(path))
    command = [sys.executable, "-m", "mypy", *sys.argv[1:]]
    _CONFIG.parent.mkdir(exist_ok=True)
    _CONFIG.write_text(configuration(Path("pyproject.toml").read_text(), packages, modules))
    command += ["--config-file", str(_CONFIG)]
    if packages:
        names = ", ".join(sorted(packages))
        print(f"types: {len(modules)} modules are not checked: they import {names}", flush=True)
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
