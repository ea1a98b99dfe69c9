#!/usr/bin/env bash
# Jobs with redis-cli (7 or later). Bodies are lines.
#
#   jobs.sh add QUEUE BODY...   adds a job for each body, and prints their ids
#   jobs.sh work QUEUE          does the jobs, until SIGTERM and the end of the current job
#
# DISQUE_NODES="host:port host:port" names nodes of the cluster, DISQUE_PASSWORD is their password.
set -euo pipefail

read -ra nodes <<<"${DISQUE_NODES:-127.0.0.1:7711}"
[ -z "${DISQUE_PASSWORD:-}" ] || export REDISCLI_AUTH=$DISQUE_PASSWORD
give_up=30 # seconds without an answer from any node

# Sends a command, and tries the next node if the connection breaks or the node cannot run it now.
# So use it only for commands that may run twice.
disque() {
    local start=$SECONDS reply
    until reply=$(redis-cli -e -h "${nodes[0]%:*}" -p "${nodes[0]##*:}" "$@" 2>&1); do
        case $reply in
        *"Could not connect"* | *"closed the connection"* | *"Connection reset"* | LEAVING* | LOADING* | \
            NOREPL* | NOUNIQ*)
            if ((SECONDS - start < give_up)); then
                nodes=("${nodes[@]:1}" "${nodes[0]}")
                sleep "0.$((RANDOM % 3 + 2))"
                continue
            fi
            ;;
        esac
        echo "${nodes[0]}: $reply" >&2
        return 1
    done
    printf '%s\n' "$reply"
}

add() {
    local queue=$1 body key
    for body in "${@:2}"; do
        key=$(uuidgen 2>/dev/null || cat /proc/sys/kernel/random/uuid)
        # Sending this again returns the id of the same job.
        disque ADDJOB "$queue" "$body" 5000 UNIQUE "$key" FOR 300
    done
}

work() {
    local job stopping='' result
    trap 'stopping=1' TERM
    while [ -z "$stopping" ]; do
        # A short wait, to notice SIGTERM soon.
        job=$(disque GETJOB TIMEOUT 1000 WITHCOUNTERS FROM "$1")
        [ -n "$job" ] || continue
        { read -r _; read -r id; read -r body; read -r _; read -r nacks; read -r _; read -r again; } <<<"$job"
        echo "took $body (nacks $nacks, again $again)"
        exec {result}< <(handle "$body" "$nacks" >&2 && echo done || echo "status $?")
        keep "$id" "$result"
        exec {result}<&-
        if [ "$outcome" = done ]; then
            disque ACKJOB "$id" >/dev/null
            echo "done $body"
        else
            disque NACK "$id" DELAY $((nacks < 6 ? 2 ** nacks : 60)) REASON "${outcome:-killed}" >/dev/null
        fi
    done
}

# Sends WORKING after every half of the job's retry time, so that nobody else gets it.
keep() {
    local retry
    while retry=$(disque WORKING "$1") && ((retry > 0)); do
        read -r -t "$((retry / 2)).$((retry % 2 * 5))" -u "$2" outcome || (($? <= 128)) || continue
        return # done, or killed
    done
    read -r -u "$2" outcome || true # delivered at most once, or no longer ours
}

# Does the work: "sleep 3" takes three seconds, "fail" fails the first time.
handle() {
    case $1 in
    sleep\ *) sleep "${1#sleep }" ;;
    fail) (($2 > 0)) ;;
    esac
}

role=$1
shift
"$role" "$@"
