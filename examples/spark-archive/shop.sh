#!/usr/bin/env bash
# From a web shop's orders to a table and a report: the commands of packages/spark/docs/spark-pipelines.md, with a
# node of their own on port 7791.
set -euo pipefail

mkdir -p /tmp/shop/node
.venv/bin/disque-server --port 7791 --bind 127.0.0.1 --dir /tmp/shop/node --appendonly yes --event-log yes --event-log-segment-seconds 10 --loglevel warning &
node=$!
trap 'kill "$node" 2> /dev/null && wait "$node" || true' EXIT
# If another server has the port, it answers, but this node ends.
until redis-cli -p 7791 INFO server 2>&1 | grep -q "^process_id:$node\b"; do
    kill -0 "$node"
    sleep 0.1
done

for n in $(seq 1000); do echo "ADDJOB orders order-$n 1000 RETRY 300"; done | redis-cli -p 7791 | tail -1
.venv/bin/disque-pipeline archive --nodes 127.0.0.1:7791 --queue orders --output /tmp/shop/archive --available-now
redis-cli -p 7791 SHUTDOWN
.venv/bin/disque-pipeline audit /tmp/shop/node/events --output /tmp/shop/audit --check
.venv/bin/disque-pipeline report /tmp/shop/audit --html /tmp/shop/report.html --json /tmp/shop/report.json
