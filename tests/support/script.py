"""``python -m tests.support.script FILE ARGUMENT ...`` is ``python FILE ARGUMENT ...``, for
programs that use clients of this project; a module can be forked."""

import sys
from pathlib import Path


def main() -> None:
    """Run the file as the main program."""
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent.resolve())
    names = vars(sys.modules["__main__"])
    names["__file__"] = sys.argv[0]
    names["__spec__"] = None
    exec(compile(Path(sys.argv[0]).read_bytes(), sys.argv[0], "exec"), names)


if __name__ == "__main__":
    main()
