"""Changes to jobs on all nodes: UPDATEJOB, QMOVE, REDRIVE, QPURGE; counts for QSTAT FULL."""
