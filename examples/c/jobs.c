/* Jobs with hiredis.
 *
 *   cc -O2 -Wall -o jobs jobs.c -lhiredis -lpthread
 *
 *   ./jobs add QUEUE BODY...   adds a job for each body, and prints their ids
 *   ./jobs work QUEUE          does the jobs, until SIGTERM and the end of the current job
 *
 * DISQUE_NODES="host:port host:port" names nodes of the cluster, DISQUE_PASSWORD is their password.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { GIVE_UP = 30, MAX_NODES = 16 }; /* seconds without an answer from any node */

static const char *nodes[MAX_NODES];
static int node_count, current;
static redisContext *node;
static volatile sig_atomic_t stopping;

static int not_now(const redisReply *reply) {
    static const char *errors[] = {"LEAVING", "LOADING", "NOREPL", "NOUNIQ"};
    for (int i = 0; reply->type == REDIS_REPLY_ERROR && i < 4; i++)
        if (strncmp(reply->str, errors[i], strlen(errors[i])) == 0) return 1;
    return 0;
}

static void disconnect(void) {
    if (node) redisFree(node);
    node = NULL;
}

static void die(const char *why) {
    fprintf(stderr, "%s: %s\n", nodes[current], why);
    exit(1);
}

/* Connects to the current node; errors are in node->err. */
static void connect_node(void) {
    const struct timeval connect_limit = {5, 0}, read_limit = {10, 0}; /* longer than any wait */
    char host[256];
    int port = 7711;
    sscanf(nodes[current], "%255[^:]:%d", host, &port);
    node = redisConnectWithTimeout(host, port, connect_limit);
    if (!node) die("out of memory");
    if (node->err) return;
    redisSetTimeout(node, read_limit);
    const char *password = getenv("DISQUE_PASSWORD");
    redisReply *reply = password ? redisCommand(node, "AUTH %s", password) : NULL;
    if (reply && reply->type == REDIS_REPLY_ERROR) die(reply->str);
    if (reply) freeReplyObject(reply);
}

/* Sends a command, and tries the next node if the connection breaks or the node cannot run it now.
 * So use it only for commands that may run twice. The reply may be an error of the node. */
static redisReply *command(int count, const char **words) {
    time_t start = time(NULL);
    for (;;) {
        if (!node) connect_node();
        redisReply *reply = node->err ? NULL : redisCommandArgv(node, count, words, NULL);
        if (reply && !not_now(reply)) return reply;
        if (time(NULL) - start > GIVE_UP) die(reply ? reply->str : node->errstr);
        if (reply) freeReplyObject(reply);
        disconnect();
        current = (current + 1) % node_count;
        usleep(200000 + rand() % 200000);
    }
}

#define COMMAND(...) \
    command(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[]){__VA_ARGS__})

/* The same, for commands that must not be refused. */
static redisReply *expect(redisReply *reply) {
    if (reply->type == REDIS_REPLY_ERROR) die(reply->str);
    return reply;
}

static void add(const char *queue, const char *body) {
    /* Sending this again returns the id of the same job. */
    unsigned long long random[2];
    char key[33];
    if (getrandom(random, sizeof random, 0) != sizeof random) die("no random numbers");
    snprintf(key, sizeof key, "%016llx%016llx", random[0], random[1]);
    redisReply *reply =
        expect(COMMAND("ADDJOB", queue, body, "5000", "UNIQUE", key, "FOR", "300"));
    puts(reply->str);
    freeReplyObject(reply);
}

struct job { const char *id, *body; long long nacks, again; };

/* The work: "sleep 3" takes three seconds, "fail" fails the first time. Returns NULL or an error. */
static void *handle(void *argument) {
    const struct job *job = argument;
    double seconds;
    if (sscanf(job->body, "sleep %lf", &seconds) == 1) usleep(seconds * 1e6);
    return strcmp(job->body, "fail") == 0 && job->nacks == 0 ? "not today" : NULL;
}

/* Handles the job, and sends WORKING after every half of its retry time, so that nobody else gets
 * it. */
static const char *work_on(struct job *job) {
    pthread_t thread;
    void *failure;
    long long retry = 0; /* seconds; 0 if delivered at most once */
    if (pthread_create(&thread, NULL, handle, job)) die("no thread");
    do {
        redisReply *reply = COMMAND("WORKING", job->id);
        if (reply->type == REDIS_REPLY_ERROR)
            fprintf(stderr, "not ours any more: %s\n", reply->str);
        retry = reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
        freeReplyObject(reply);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += retry % 2 * 500000000;
        until.tv_sec += retry / 2 + until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (retry && pthread_timedjoin_np(thread, &failure, &until) == 0) return failure;
    } while (retry);
    pthread_join(thread, &failure);
    return failure;
}

static void stop(int signal) { stopping = signal; }

static void work(const char *queue) {
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    while (!stopping) {
        /* A short wait, to notice SIGTERM soon. */
        redisReply *jobs =
            expect(COMMAND("GETJOB", "TIMEOUT", "1000", "WITHCOUNTERS", "FROM", queue));
        if (jobs->type == REDIS_REPLY_ARRAY) {
            redisReply **field = jobs->element[0]->element;
            struct job job = {field[1]->str, field[2]->str, field[4]->integer, field[6]->integer};
            printf("took %s (nacks %lld, again %lld)\n", job.body, job.nacks, job.again);
            const char *failure = work_on(&job);
            if (failure) {
                char delay[8];
                snprintf(delay, sizeof delay, "%d", job.nacks < 6 ? 1 << job.nacks : 60);
                freeReplyObject(expect(COMMAND("NACK", job.id, "DELAY", delay, "REASON", failure)));
            } else {
                freeReplyObject(expect(COMMAND("ACKJOB", job.id)));
                printf("done %s\n", job.body);
            }
        }
        freeReplyObject(jobs);
    }
}

int main(int argc, char **argv) {
    const char *list = getenv("DISQUE_NODES");
    char *rest = strdup(list ? list : "127.0.0.1:7711");
    for (char *name; node_count < MAX_NODES && (name = strsep(&rest, " "));)
        nodes[node_count++] = name;
    setvbuf(stdout, NULL, _IOLBF, 0);
    srand(getpid());
    if (argc >= 3 && strcmp(argv[1], "add") == 0)
        for (int i = 3; i < argc; i++) add(argv[2], argv[i]);
    else if (argc == 3)
        work(argv[2]);
    disconnect();
}
