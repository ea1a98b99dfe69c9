"""``python -m tests.support.program TEXT ARGUMENT ...`` is ``python -c TEXT ARGUMENT ...``, for
programs that use clients of this project; a module can be forked."""

import sys


def main() -> None:
    """Run the text as the main program."""
    text = sys.argv.pop(1)
    sys.argv[0] = "-c"
    exec(compile(text, "<string>", "exec"), vars(sys.modules["__main__"]))


if __name__ == "__main__":
    main()
