"""Shared by the console's tests: consoles, browsers, and the story that docs/console.md tells."""
