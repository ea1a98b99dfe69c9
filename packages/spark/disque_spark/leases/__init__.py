"""Leases: jobs that a Spark query has fetched but not acknowledged yet.

``planner`` decides which task fetches how many jobs from which node, ``fetch`` fetches them into
leases, ``queue`` stores the leases in Disque, and ``keeper`` keeps nodes from delivering the jobs
again, and acknowledges them in the end.
"""
