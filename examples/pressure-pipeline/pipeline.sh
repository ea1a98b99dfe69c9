#!/usr/bin/env bash
# Adds up numbers that pass through a bounded queue in Redis: pipeline.sh COUNT
set -euo pipefail

pressure=${PRESSURE:-.venv/bin/pressure}
queue=numbers-$$
bound=100

"$pressure" create "$queue" --bound "$bound"
trap '"$pressure" delete "$queue"' EXIT

# The producer, perhaps on another machine. It closes the queue, which ends the consumer.
seq "$1" | "$pressure" --quiet put "$queue" --close &

# Nobody reads yet, so the producer waits for space.
while kill -0 $! 2>/dev/null && [ "$("$pressure" length "$queue")" -lt "$bound" ]; do sleep 0.05; done
echo "$("$pressure" length "$queue") lines wait for a reader"

"$pressure" --quiet get "$queue" | awk '{ sum += $1 } END { print NR " lines, their sum is " sum }'
wait
