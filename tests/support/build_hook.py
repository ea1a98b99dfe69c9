"""Calls a hook of the build backend as pip does, in the tree that is to be built.

``python -m tests.support.build_hook DIRECTORY HOOK ARGUMENT...`` prints what it returns. DIRECTORY
may have a package that stands in for mypyc.
"""

import sys
from importlib import import_module

if __name__ == "__main__":
    stand_in, hook, *arguments = sys.argv[1:]
    sys.path[:0] = ["tools/packaging", stand_in]
    print(getattr(import_module("disque_build"), hook)(*arguments))
