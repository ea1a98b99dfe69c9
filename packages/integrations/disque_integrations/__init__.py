"""Disque for other frameworks. Each module needs the extra of the same name."""
