"""bananaq: events in queues, read by groups of consumers, over the Redis protocol."""
