<?php
// Jobs with phpredis.
//
//   php jobs.php add QUEUE BODY...   adds a job for each body, and prints their ids
//   php jobs.php work QUEUE          does the jobs, until SIGTERM and the end of the current job
//
// DISQUE_NODES="host:port host:port" names nodes of the cluster, DISQUE_PASSWORD is their password.

declare(strict_types=1);

const GIVE_UP = 30; // seconds without an answer from any node

class Refused extends Exception {}

class Disque
{
    private ?Redis $redis = null;

    public function __construct(private array $nodes, private string $password) {}

    /**
     * Sends a command, and tries the next node if the connection breaks or the node cannot run it
     * now. So use it only for commands that may run twice.
     */
    public function command(string ...$words): mixed
    {
        for ($start = time(); ; ) {
            $broken = null;
            try {
                $this->redis ??= $this->connect();
                $this->redis->clearLastError();
                $reply = $this->redis->rawCommand(...$words);
            } catch (RedisException $broken) {
            }
            $refusal = $this->redis?->getLastError(); // some are also thrown
            if ($refusal !== null && !preg_match('/^(LEAVING|LOADING|NOREPL|NOUNIQ)/', $refusal)) {
                throw new Refused($refusal);
            }
            if ($refusal === null && $broken === null) {
                return $reply;
            }
            if (time() - $start > GIVE_UP) {
                throw new Exception("{$this->nodes[0]}: " . ($refusal ?? $broken->getMessage()));
            }
            $this->redis = null;
            $this->nodes[] = array_shift($this->nodes);
            usleep(random_int(200_000, 400_000));
        }
    }

    private function connect(): Redis
    {
        [$host, $port] = explode(':', $this->nodes[0]);
        $redis = new Redis();
        $redis->connect($host, (int) $port, 5.0);
        $redis->setOption(Redis::OPT_READ_TIMEOUT, 10.0); // longer than any command waits
        $redis->setOption(Redis::OPT_MAX_RETRIES, 0); // `command` tries the next node
        $redis->setOption(Redis::OPT_REPLY_LITERAL, true); // ADDJOB returns the id, not `true`
        if ($this->password !== '' && !$redis->auth($this->password)) {
            throw new Refused($redis->getLastError());
        }
        return $redis;
    }
}

function add(Disque $disque, string $queue, array $bodies): void
{
    foreach ($bodies as $body) {
        $key = bin2hex(random_bytes(16)); // sending this again returns the id of the same job
        $id = $disque->command('ADDJOB', $queue, $body, '5000', 'UNIQUE', $key, 'FOR', '300');
        echo "$id\n";
    }
}

function work(Disque $disque, string $queue): void
{
    $stopping = false;
    pcntl_async_signals(true);
    pcntl_signal(SIGTERM, function () use (&$stopping) { $stopping = true; });
    while (!$stopping) {
        // A short wait, to notice SIGTERM soon.
        $jobs = $disque->command('GETJOB', 'TIMEOUT', '1000', 'WITHCOUNTERS', 'FROM', $queue);
        if (!$jobs) {
            continue;
        }
        [[, $id, $body, , $nacks, , $again]] = $jobs;
        echo "took $body (nacks $nacks, again $again)\n";
        try {
            keep($disque, $id);
            handle($body, $nacks);
        } catch (Exception $error) {
            pcntl_alarm(0);
            $delay = (string) min(2 ** $nacks, 60);
            $disque->command('NACK', $id, 'DELAY', $delay, 'REASON', $error->getMessage());
            continue;
        }
        pcntl_alarm(0);
        $disque->command('ACKJOB', $id);
        echo "done $body\n";
    }
}

/** Sends WORKING after every half of the job's retry time, so that nobody else gets it. */
function keep(Disque $disque, string $id): void
{
    pcntl_signal(SIGALRM, fn () => keep($disque, $id));
    try {
        $retry = $disque->command('WORKING', $id); // seconds; 0 if delivered at most once
        pcntl_alarm(intdiv($retry + 1, 2));
    } catch (Refused $error) {
        fwrite(STDERR, "not ours any more: {$error->getMessage()}\n");
    }
}

/** Does the work: "sleep 3" takes three seconds, "fail" fails the first time. */
function handle(string $body, int $nacks): void
{
    [$verb, $seconds] = explode(' ', "$body 0");
    $end = microtime(true) + ($verb === 'sleep' ? (float) $seconds : 0);
    while (($left = $end - microtime(true)) > 0) {
        usleep((int) ($left * 1e6)); // the alarm wakes it up
    }
    if ($verb === 'fail' && $nacks === 0) {
        throw new Exception('not today');
    }
}

$disque = new Disque(
    explode(' ', getenv('DISQUE_NODES') ?: '127.0.0.1:7711'),
    getenv('DISQUE_PASSWORD') ?: '',
);
[, $role, $queue] = $argv;
try {
    $role === 'add' ? add($disque, $queue, array_slice($argv, 3)) : work($disque, $queue);
} catch (Exception $error) {
    fwrite(STDERR, $error->getMessage() . "\n");
    exit(1);
}
