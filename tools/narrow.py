"""A plugin for mypy: no field of 32 bits or fewer is compared, or reckoned, with a number that may
be larger.

Compiled, the other side of an operator beside an i16, i32 or u8 is made as narrow, and a number too
large for that raises ValueError, although the same code works uncompiled. So the other side must be
a constant, a length, or narrow itself; ``int(job.nacks)`` goes with anything.
"""

from collections.abc import Callable
from typing import Final

from mypy.errorcodes import ErrorCode
from mypy.nodes import CallExpr, ComparisonExpr, Expression, NameExpr
from mypy.plugin import MethodContext, Plugin
from mypy.types import Instance, Type, get_proper_type

_NARROW: Final = ("mypy_extensions.i16", "mypy_extensions.i32", "mypy_extensions.u8")
_COMPARISONS: Final = ("lt", "le", "gt", "ge", "eq", "ne")
_REST: Final = ("add", "sub", "mul", "floordiv", "mod", "lshift", "rshift")
_OPERATORS: Final = frozenset(
    f"__{form}{name}__" for form in ("", "r", "i") for name in (*_COMPARISONS, *_REST)
)
NARROW: Final = ErrorCode("narrow", "A narrow number beside any number", "Compiling")


class NarrowNumbers(Plugin):
    """Looks at the operators between numbers."""

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """Return what looks at calls of the method ``fullname``; None: nothing does."""
        owner, _, method = fullname.rpartition(".")
        return _check if method in _OPERATORS and owner in ("builtins.int", *_NARROW) else None


def _check(context: MethodContext) -> Type:
    """Report the operator if one side is narrow, and the other may be large."""
    other = context.arg_types[0][0] if context.arg_types and context.arg_types[0] else None
    if other is not None and _is_narrow(context.type) != _is_narrow(other):
        wide = context.type if _is_narrow(other) else other
        if not _is_constant(wide) and not _is_length(context, wide is context.type):
            context.api.fail(
                "A number of 32 bits or fewer beside any number: use int()",
                context.context,
                code=NARROW,
            )
    return context.default_return_type


def _is_narrow(found: Type) -> bool:
    found = get_proper_type(found)
    return isinstance(found, Instance) and found.type.fullname in _NARROW


def _is_constant(found: Type) -> bool:
    """Whether the value is known from the source."""
    found = get_proper_type(found)
    return not isinstance(found, Instance) or found.last_known_value is not None


def _is_length(context: MethodContext, left: bool) -> bool:
    """Whether the left, or the right, side is a call of len."""
    side: Expression = context.args[0][0]
    if left:
        compared = context.context
        if not isinstance(compared, ComparisonExpr):
            return False
        at = next((i for i, found in enumerate(compared.operands) if found is side), 0)
        side = compared.operands[at - 1]
    return (
        isinstance(side, CallExpr)
        and isinstance(side.callee, NameExpr)
        and side.callee.fullname == "builtins.len"
    )


def plugin(version: str) -> type[Plugin]:
    """Return the plugin, for mypy."""
    return NarrowNumbers
