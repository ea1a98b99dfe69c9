"""Programs for maintainers and operators that are run from a checkout."""
