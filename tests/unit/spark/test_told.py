"""What a person is told of a failure of Spark's."""

from disque_trio.spark.failures import told

REFUSED = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Traceback:
  File "runner.py", line 1, in main
disque_trio.spark.options.OptionError: fetch: expected a number, not abc

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "runner.py", line 2, in main
UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value
"""


def test_an_option_that_is_refused_is_named_and_not_what_pyspark_stumbles_over_then() -> None:
    assert told(Exception(REFUSED)) == "OptionError: fetch: expected a number, not abc"
