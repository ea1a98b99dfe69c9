"""Figures for Prometheus: a small web server, and what makes pages of figures."""
