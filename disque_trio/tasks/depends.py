"""What tasks get from functions: ``db: Annotated[Session, Depends(get_session)] = injected``."""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, get_origin


class _Injected:
    """Stands for what a worker injects. Using it is an error: the function was called directly."""

    def __repr__(self) -> str:
        return "injected"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TypeError("this is injected when the task runs as a job: pass it in a direct call")


injected: Final[Any] = _Injected()
"""The default of a parameter that is injected, so that type checkers let callers leave it out."""


@dataclass(frozen=True, slots=True)
class Depends:
    """Where the value of a parameter comes from.

    Attributes:
        function: returns the value, or is a generator that yields it and cleans up after the run;
            ``async`` or not. Its own parameters may be injected, too. It is called once in a run.
    """

    function: Callable[..., Any]


@lru_cache(maxsize=1000)
def needs_of(function: Callable[..., Any]) -> Mapping[str, Depends]:
    """Return the parameters of a function that are injected. Raises TypeError if its annotations
    cannot be read, and one of them seems to be such a parameter."""
    written = getattr(inspect.unwrap(function), "__annotations__", {})
    if not any(isinstance(one, str) or get_origin(one) is Annotated for one in written.values()):
        return {}
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        if any("Depends" in str(one) for one in written.values()):
            raise TypeError(f"the annotations of {function!r} cannot be read: {error}") from error
        return {}
    found: dict[str, Depends] = {}
    for name, hint in hints.items():
        if get_origin(hint) is Annotated and name != "return":
            for one in hint.__metadata__:
                if isinstance(one, Depends):
                    found[name] = one
    return found


@lru_cache(maxsize=1000)
def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function for those who call it as a task: without the parameters
    that are injected."""
    signature = inspect.signature(function)
    needs = needs_of(function)
    if not needs:
        return signature
    kept = [one for name, one in signature.parameters.items() if name not in needs]
    return signature.replace(parameters=kept)
