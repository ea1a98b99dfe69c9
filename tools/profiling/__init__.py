"""Where the time of a loaded node goes: ``make profile``."""
