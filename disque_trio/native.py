"""What can be said to the compiler about a class, and means nothing without it.

This module is not compiled itself: the compiler's own package is needed where the node is built,
and not where it runs.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_options):
        """Leave the class as it is."""
        return lambda subject: subject
