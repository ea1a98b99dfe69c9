"""Disque under other people's frameworks. Each module needs the extra of its name."""
