"""The report of an audit, as numbers (JSON) and as one HTML page."""

from disque_spark.report.compare import ComparisonError, read_report
from disque_spark.report.numbers import Json, make_report, write_report

__all__ = ["ComparisonError", "Json", "make_report", "read_report", "write_report"]
