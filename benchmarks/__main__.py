"""What ``python -m benchmarks`` measures."""

from typing import Final

from tools.bench.command import start

RUNS: Final = {
    "compare": "comparison with Redis, beanstalkd, RabbitMQ and NATS",
    "backlog": "cost of a backlog larger than memory, compared with RabbitMQ and NATS",
    "tenants": "waiting time of a quiet tenant's jobs beside a noisy one, with and without groups",
    "queues": "cost of taking a job from several kinds of queue, short and long",
    "push": "cost of a pushed job, compared with a requested one",
    "frameworks": "cost of a Dramatiq message, compared with its Redis broker",
    "client": "cost of the Python client on Trio, on asyncio and in threads",
    "tls": "cost of TLS per command, compared with redis-server's TLS",
    "scrapes": "cost of a scrape with many queues, and how long clients wait for it",
    "turns": "longest turn of commands about many jobs or queues",
    "sizing": "memory, disk and start of jobs of several sizes, with and without paging",
    "trailers": "memory of jobs with features that C Disque lacks",
    "cores": "gain from two nodes on one machine",
    "cluster": "cost of a replicated job for the whole cluster",
    "hints": "cost of a job whose producer and consumer start at different nodes of a cluster",
    "bus": "cost of a secret or TLS on the cluster bus",
    "persistence": "memory and latency during a rewrite of the AOF, and loading speed",
    "eventlog": "cost of the event log",
    "bananaq": "cost of an event in bananaq, compared with Redis Streams",
    "celery": "cost of a Celery task, compared with its Redis transport",
    "pressure": "cost of a pressure queue, compared with a list in the same Redis",
    "spark": "speed of Spark reading and writing jobs",
    "audit": "speed of auditing an event log",
    "audit-increments": "cost of auditing an hour of events, the first and the hundredth",
    "console": "response time of the console with a million jobs in 10,000 queues",
}


if __name__ == "__main__":
    start("benchmarks", RUNS)
