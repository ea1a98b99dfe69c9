"""Hints for the compiler about a class, which have no effect without it.

This module itself is not compiled: the compiler's package is needed where the node is built, not
where it runs.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_options):
        """Leave the class as it is."""
        return lambda subject: subject
