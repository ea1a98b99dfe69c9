"""A drill: incidents of the night, caused in a real cluster that works, to see who tells of them,
how soon, and whether what the documentation says cures them. ``python -m tools.drill`` runs it."""
