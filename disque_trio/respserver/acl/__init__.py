"""Users: who may run which commands on which queues, with the rules of Redis (ACL)."""
