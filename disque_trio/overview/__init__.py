"""The state of a whole cluster, and a poller that keeps it up to date."""
