"""How people write sizes, periods, rates and addresses: one module each, used by all programs, for
options of command lines, settings and URLs alike."""
