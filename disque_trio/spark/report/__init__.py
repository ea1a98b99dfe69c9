"""The report of an audit, as numbers (JSON) and as one HTML page."""

from disque_trio.spark.report.numbers import Json, make_report, write_report

__all__ = ["Json", "make_report", "write_report"]
