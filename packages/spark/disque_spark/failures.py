"""Condenses Spark's errors, which are pages long, to one line."""

import os
import re

# How Python reports an exception in a worker, and Java the cause of another exception.
_PYTHON = re.compile(
    r"^(?:\[PYTHON_DATA_SOURCE_ERROR\] [^:\n]*: )?(?:[A-Za-z_]\w*\.)*"
    r"([A-Za-z_]*(?:Error|Exception): .*)$",
    re.MULTILINE,
)
_JAVA = re.compile(r"^Caused by: (?:[a-z]\w*\.)+\w+: (.+)$", re.MULTILINE)
_CALL = re.compile(r"^An error occurred while calling .*\n: (?:[a-z]\w*\.)+", re.MULTILINE)
# How PySpark's planner of a stream fails after a source has rejected its options.
_FOLLOWS = "UnboundLocalError: cannot access local variable 'reader'"
_LONGEST = 500

# A Python that does not exist, and one that ends before it is a worker: its traceback is indented.
_NO_PROGRAM = re.compile(r'Cannot run program "[^"\n]+"[^\n]*')
_ENDED = "reading the port number from pyspark.daemon's stdout"
_WHY_ENDED = re.compile(r"^ +(?:[A-Za-z_]\w*\.)*([A-Za-z_]*Error: .*)$", re.MULTILINE)
NOT_STARTED = "Python workers do not start"
# Failures of a Python that Spark has started. They need to say which Python.
_OF_PYTHON = re.compile(
    rf"(?:ModuleNotFoundError: No module named \S+|{NOT_STARTED}.*|Cannot run program .*)"
)
# Failures of a Python beside the driver, where sources plan what they read.
_PLANNED = re.compile(r"PYTHON_DATA_SOURCE_ERROR|PythonPlannerRunner")
_PLACE = re.compile(r"\(TID \d+\) \((\S+) executor (\w+)\)")


def text_of(failure: BaseException) -> str:
    """The full text of an exception, or its type if it has no text."""
    try:
        text = str(failure).strip()
    except Exception:  # a Java exception asks the JVM for its text; the JVM may be gone
        text = ""
    return text or type(failure).__name__


def one_line(failure: BaseException) -> str:
    """The essence of an exception in one line, without Java's stack. If a Python that Spark has
    started lacks something, the line says which Python."""
    text = text_of(failure)
    line = _line(text)
    if _OF_PYTHON.fullmatch(line) and type(failure).__module__.startswith(("pyspark.", "py4j.")):
        line = f"{line} (Python of {_whose(failure, text)})"
    return line[:_LONGEST]


def _line(text: str) -> str:
    if _ENDED in text:
        why = _WHY_ENDED.findall(text)
        return f"{NOT_STARTED}: {why[-1]}" if why else f"{NOT_STARTED}: they exit at once"
    if (missing := _NO_PROGRAM.search(text)) is not None:
        return missing[0]
    found = _PYTHON.findall(text) or _JAVA.findall(text)
    causes = [cause for cause in found if not cause.startswith(_FOLLOWS)] or found
    return str(causes[-1]) if causes else _CALL.sub("", text).strip().splitlines()[0]


def _whose(failure: BaseException, text: str) -> str:
    if type(failure).__module__.startswith("pyspark.errors.exceptions.connect"):
        return "the Spark Connect server or its executors"
    program = os.environ.get("PYSPARK_PYTHON", "python3")
    if (place := _PLACE.search(text)) is not None:
        who = f"executor {place[2]} on {place[1]}"
    else:
        who = "Spark beside the driver" if _PLANNED.search(text) else "the executors"
    return f"{who}: PYSPARK_PYTHON={program}"
