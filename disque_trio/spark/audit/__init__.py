"""The audit: from the event logs of all nodes to tables of jobs, queues and findings.

The modules, in the order of the work:

- ``unread``: the segments that no run has read; ``gaps``: stretches of time a log is silent about.
- ``trace``: an event as a number; ``partial_jobs``: from lines to partial jobs; ``jobs``: from
  partial jobs to rows of the table ``jobs``; ``stages``: both as stages of Spark.
- ``ticks``, ``ticks_table``: those of schedules, and what is wrong with them.
- ``queue_minutes``: from jobs to the table of the same name.
- ``clocks``, ``classify``, ``redelivery``, ``findings``: from jobs to the table ``findings``, by
  the ``rules``; ``held``: what append-only files add to it.
- ``store``: the versions of the tables; ``run``: makes one (``audit``), and shows Spark's plan for
  it (``explain_audit``).
"""
