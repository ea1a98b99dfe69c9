"""Imports the app named on the command line."""

import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path


class AppError(Exception):
    """The app cannot be imported. The text says why, in one line.

    Attributes:
        details: a traceback, if the fault is in the app's code; else empty.
        files: the files that may have to be fixed.
        place: file and line of the fault, if it is in the app's code; else empty.
    """

    def __init__(
        self, text: str, details: str = "", files: Sequence[str] = (), place: str = ""
    ) -> None:
        super().__init__(text)
        self.details = details
        self.files = list(files)
        self.place = place

    def line(self, *, debug: bool) -> str:
        """Return the text, with where the fault is; ``debug``: a traceback is shown, too."""
        more = [self.place] if self.place else []
        if self.details and not debug:
            more.append("--debug shows the traceback")
        return f"{self} ({'; '.join(more)})" if more else str(self)


def load(target: str, app_dir: str) -> object:
    """Return the object named by ``target``: ``module:app``, ``app:module`` or ``module``.

    Args:
        app_dir: a directory to put at the front of the module search path.

    Raises:
        AppError: the object cannot be imported.
    """
    if not Path(app_dir).is_dir():
        raise AppError(f"--app-dir: {app_dir} is not a directory")
    directory = str(Path(app_dir).resolve())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    module, colon, name = target.partition(":")
    name = name or "app"
    if not module:
        raise AppError(f"{target!r} names no module: use module:app")
    try:
        found = _import(module)
    except _NoModuleError:
        # Try it the other way round, as app:module.
        if not colon:
            raise
        try:
            found = _import(name)
        except _NoModuleError:
            raise AppError(f"there is no module {module!r} (for {target!r})") from None
        module, name = name, module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise AppError(f"module {module!r} has no {name!r} (for {target!r})") from None
    return found


class _NoModuleError(AppError):
    """There is no module of that name."""


def _import(name: str) -> object:
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        # If a module that this one imports is missing, that is something else.
        if missing.name is not None and (name + ".").startswith(missing.name + "."):
            raise _NoModuleError(f"there is no module {name!r}") from None
        raise _broken(name, missing) from missing
    except (ValueError, TypeError) as wrong:
        if "." not in name.strip(".") and (not name.isidentifier()):
            raise _NoModuleError(f"{name!r} is not the name of a module") from None
        raise _broken(name, wrong) from wrong
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> AppError:
    text = " ".join(str(error).split())
    said = f"module {name!r} cannot be imported: {type(error).__name__}: {text}".removesuffix(": ")
    stack = traceback.extract_tb(error.__traceback__)
    frames = [frame.filename for frame in stack]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append(error.filename)
    files = [frame for frame in frames if Path(frame).is_file()]
    place = ""
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{error.filename}:{error.lineno}"
    elif known := [frame for frame in stack if Path(frame.filename).is_file()]:
        place = f"{known[-1].filename}:{known[-1].lineno}"
    return AppError(said, "".join(traceback.format_exception(error)), files, place)


def files(*, but: tuple[str, ...]) -> list[str]:
    """Return the source files of all imported modules, except those in the directories ``but``."""
    found: set[str] = set()
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if isinstance(name, str) and name.endswith(".py") and not name.startswith(but):
            found.add(name)
    return sorted(found)
