// Jobs with node-redis.
//
//   node node-redis.js add QUEUE BODY...   adds a job for each body, and prints their ids
//   node node-redis.js work QUEUE          does the jobs, until SIGTERM and the end of the current job
//
// DISQUE_NODES="host:port host:port" names nodes of the cluster, DISQUE_PASSWORD is their password.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient, ErrorReply } from "redis";

const nodes = (process.env.DISQUE_NODES ?? "127.0.0.1:7711").split(" ");
const GIVE_UP = 30_000; // ms without an answer from any node
let client;

async function connect() {
  client = createClient({
    url: `redis://${nodes[0]}`,
    password: process.env.DISQUE_PASSWORD,
    disableOfflineQueue: true, // fail at once if a command cannot be sent
    socket: { connectTimeout: 5000, reconnectStrategy: false }, // `command` tries the next node
  });
  client.on("error", () => {}); // the command also fails with it
  await client.connect();
}

// Sends a command, and tries the next node if the connection breaks or the node cannot run it now.
// So use it only for commands that may run twice.
async function command(...words) {
  for (const start = Date.now(); ; ) {
    try {
      if (!client?.isReady) await connect();
      return await client.sendCommand(words);
    } catch (error) {
      const notNow = /^(LEAVING|LOADING|NOREPL|NOUNIQ)/.test(error.message);
      const refused = error instanceof ErrorReply && !notNow;
      if (refused || Date.now() - start > GIVE_UP) throw error;
      if (client.isOpen) client.destroy();
      nodes.push(nodes.shift());
      await sleep(200 + 200 * Math.random());
    }
  }
}

async function add(queue, bodies) {
  for (const body of bodies) {
    // Sending this again returns the id of the same job.
    const key = randomUUID();
    console.log(await command("ADDJOB", queue, body, "5000", "UNIQUE", key, "FOR", "300"));
  }
}

async function work(queue) {
  let stopping = false;
  process.on("SIGTERM", () => (stopping = true));
  while (!stopping) {
    // A short wait, to notice SIGTERM soon.
    const jobs = await command("GETJOB", "TIMEOUT", "1000", "WITHCOUNTERS", "FROM", queue);
    if (!jobs) continue;
    const [[, id, body, , nacks, , again]] = jobs;
    console.log(`took ${body} (nacks ${nacks}, again ${again})`);
    const done = new AbortController();
    const alive = keep(id, done.signal);
    const failure = await handle(body, nacks).catch((error) => error);
    done.abort();
    await alive;
    if (failure) {
      const delay = Math.min(2 ** nacks, 60);
      await command("NACK", id, "DELAY", `${delay}`, "REASON", `${failure}`);
    } else {
      await command("ACKJOB", id);
      console.log(`done ${body}`);
    }
  }
}

// Sends WORKING after every half of the job's retry time, so that nobody else gets it.
async function keep(id, signal) {
  try {
    let retry; // seconds; 0 if delivered at most once
    while ((retry = await command("WORKING", id))) await sleep(retry * 500, undefined, { signal });
  } catch (error) {
    if (!signal.aborted) console.error(`not ours any more: ${error.message}`);
  }
}

// Does the work: "sleep 3" takes three seconds, "fail" fails the first time.
async function handle(body, nacks) {
  const [verb, seconds] = body.split(" ");
  if (verb === "sleep") await sleep(1000 * seconds);
  if (verb === "fail" && nacks === 0) throw new Error("not today");
}

const [role, queue, ...bodies] = process.argv.slice(2);
try {
  await (role === "add" ? add(queue, bodies) : work(queue));
  client?.destroy();
} catch (error) {
  console.error(`${nodes[0]}: ${error.message}`);
  process.exit(1);
}
