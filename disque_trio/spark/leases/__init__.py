"""Leases: jobs that a query of Spark has fetched and not acknowledged yet.

``planner`` decides who fetches how many jobs from which node, ``fetch`` fetches them into leases,
``directory`` keeps the leases on disk, and ``keeper`` acknowledges their jobs in the end and keeps
nodes from delivering them again until then.
"""
