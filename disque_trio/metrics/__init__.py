"""Metrics for Prometheus: a small web server, and code that makes the pages."""
