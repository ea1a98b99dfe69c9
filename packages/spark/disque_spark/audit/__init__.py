"""The audit: turns the event logs of all nodes into tables of jobs, queues and findings.

The modules, in the order of the work:

- ``unread``: the segments that no run has read; ``gaps``: periods that a log does not cover.
- ``trace``: an event as a number; ``partial_jobs``: from lines to partial jobs; ``jobs``: from
  partial jobs to rows of the table ``jobs``; ``stages``: both as tasks and steps of an engine.
- ``engine``: runs tasks and steps in this process; ``spark_engine``: runs them on Spark.
- ``ticks``, ``ticks_table``: ticks of schedules, and findings about them.
- ``queue_minutes``: from jobs to the table of the same name.
- ``clocks``, ``classify``, ``redelivery``, ``findings``: from jobs to the table ``findings``, by
  the ``rules``; ``held``: what append-only files add to it.
- ``store``: the versions of the tables; ``run``: makes a version (``audit``), and shows Spark's
  plan for it (``explain_audit``).
"""
