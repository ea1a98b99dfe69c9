"""Programs for maintainers and operators, run from a checkout."""
