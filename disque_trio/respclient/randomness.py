"""Random numbers for clients."""

from random import SystemRandom

RANDOM = SystemRandom()
"""Not the module's own functions: they share one sequence, which a program may have seeded to
repeat a run. Clients in other threads must not draw from it, nor processes repeat it after a fork.
"""
