"""Defaults that commands and data sources share. Imports nothing."""

DEFAULT_NODES = "127.0.0.1:7711"
