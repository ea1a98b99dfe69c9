"""What has failed, in a line: Spark says it in pages."""

import re

# What Python says of an exception in a worker, and what Java says of the reason of another one.
_PYTHON = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]*(?:Error|Exception): .*)$", re.MULTILINE)
_JAVA = re.compile(r"^Caused by: (?:[a-z]\w*\.)+\w+: (.+)$", re.MULTILINE)
_CALL = re.compile(r"^An error occurred while calling .*\n: (?:[a-z]\w*\.)+", re.MULTILINE)
# What PySpark's planner of a stream fails with when a source has refused its options.
_FOLLOWS = "UnboundLocalError: cannot access local variable 'reader'"
_LONGEST = 500


def text_of(failure: BaseException) -> str:
    """All that it says, or else what it is."""
    try:
        text = str(failure).strip()
    except Exception:  # what Java threw is asked for its text; the JVM may be gone
        text = ""
    return text or type(failure).__name__


def told(failure: BaseException) -> str:
    """What a person wants to know, in a line; Spark adds pages of Java's stack."""
    text = text_of(failure)
    found = _PYTHON.findall(text) or _JAVA.findall(text)
    causes = [cause for cause in found if not cause.startswith(_FOLLOWS)] or found
    line = causes[-1] if causes else _CALL.sub("", text).strip().splitlines()[0]
    return str(line)[:_LONGEST]
