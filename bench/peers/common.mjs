// SPDX-License-Identifier: MIT
// Shared code of the peers' programs: the messages of the job and its result.
// It is the job of `postern bench`, see src/cli/bench_feed.c.
//
//   node PEER.mjs URL together MESSAGES     sent in batches by another process,
//                                           and delivered meanwhile
//   node PEER.mjs URL apart MESSAGES        sent first, and then delivered
//   node PEER.mjs URL latency MESSAGES RATE one by one, so many per second
//
// Every tenth message is a copy of one of the last thousand of its sender. A
// message counts when its completion is in the database, a copy never.
//
// Each peer has
//   prepare()        creates the tables
//   produce()        returns a function that sends a batch and resolves when
//                    it is durable
//   consume(onStart) starts to deliver and calls onStart(id) for each message
//                    when its handler starts; returns a function that returns
//                    how many are not completed yet
//   senders          how many senders send batches at the same time: the number
//                    with which the peer is fastest
//   forgets          the peer detects a copy only while the first one waits, so
//                    no copies are sent while it delivers

import { fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';

const BATCH = 1000;
const COPIES_PERCENT = 10;
const WINDOW = 1000;
const BODY_LEN = 256;
// The longest time without progress.
const PATIENCE_MS = 30000;
// How late the last message may be when sending at a rate.
const LATE_MS = 500;
const PADDING = 'x'.repeat(
  BODY_LEN - JSON.stringify({ id: randomUUID(), padding: '' }).length);

const [url, mode, count, rate, copiesPercent] = process.argv.slice(2);
export { mode, url };
const total = Number(count);

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
// A clock that two processes share.
const now = () => Number(process.hrtime.bigint()) / 1e6;
const messageFrom = (who) => new Promise((resolve) => who.once('message', resolve));

function percentile(values, percent) {
  return values[Math.max(0, Math.ceil((values.length * percent) / 100) - 1)];
}

// The messages of one sender, one after the other.
class Feed {
  constructor(percent) {
    this.percent = percent;
    this.sent = 0;
    this.made = 0;
    this.recent = [];
  }

  next() {
    const copies = (sent) => Math.floor((sent * this.percent) / 100);
    let id;
    if (copies(this.sent + 1) > copies(this.sent)) {
      id = this.recent[Math.floor(Math.random() * this.recent.length)];
    } else {
      id = randomUUID();
      this.recent[this.made++ % WINDOW] = id;
    }
    this.sent++;
    return { id, body: { id, padding: PADDING } };
  }

  // No peer accepts the same id twice in one call, so the sender omits the
  // second one.
  nextBatch(size) {
    const batch = new Map();
    for (let i = 0; i < size; i++) {
      const message = this.next();
      batch.set(message.id, message);
    }
    return [...batch.values()];
  }
}

async function sendAll(send, messages) {
  const feed = new Feed(Number(copiesPercent));
  while (feed.sent < messages) {
    await send(feed.nextBatch(Math.min(BATCH, messages - feed.sent)));
  }
  return feed.made;
}

// Returns when each message was sent. A message does not wait for the result of
// those before it. Timers are late by a millisecond, so the time of the call is
// recorded, not the time when it was due. The messages of the first second open
// connections and let Node.js compile; they are not counted.
async function sendAtRate(send, messages) {
  const feed = new Feed(Number(copiesPercent));
  const seen = new Set();
  const times = {};
  const waiting = [];
  const begun = now() + 1000;
  for (let i = -Number(rate); i < messages; i++) {
    const due = begun + (i * 1000) / Number(rate);
    const early = due - now();
    if (early > 0) {
      await sleep(early);
    }
    const message = feed.next();
    if (i >= 0 && !seen.has(message.id)) {
      times[message.id] = now();
    }
    seen.add(message.id);
    waiting.push(send([message]));
  }
  await Promise.all(waiting);
  const late = now() - begun - (messages * 1000) / Number(rate);
  if (late > LATE_MS) {
    // The messages queue up then, and the latency grows without limit.
    throw new Error(
      `the machine is too slow or too busy for ${rate} messages a second, ` +
      `the last one was accepted ${Math.round(late)} ms late`);
  }
  return { times, made: feed.made };
}

// The process that sends. It reports when it is ready, and its result; it ends
// with the process that delivers.
async function runSender(peer) {
  process.on('disconnect', () => process.exit(1));
  const send = await peer.produce();
  process.send('ready');
  await messageFrom(process);
  let result;
  if (mode === 'send-at-rate') {
    result = await sendAtRate(send, total);
  } else {
    const each = Array.from({ length: peer.senders }, (_, i) =>
      sendAll(send, Math.floor((total + i) / peer.senders)));
    result = (await Promise.all(each)).reduce((a, b) => a + b);
  }
  process.send(result, () => process.exit(0));
}

// Starts the process that sends. Returns a function that starts the sending and
// returns a promise of the result.
async function startSender(how, copies) {
  const child = fork(process.argv[1], [url, how, count, rate ?? '', copies]);
  child.on('exit', (code) => code && process.exit(code));
  await messageFrom(child);
  return () => {
    const result = messageFrom(child);
    child.send('go');
    return result;
  };
}

// The messages that the handler received, and when first.
class Seen {
  constructor() {
    this.first = new Map();
    this.runs = 0;
  }

  record(id) {
    this.runs++;
    if (!this.first.has(id)) {
      this.first.set(id, now());
    }
  }

  async until(messages) {
    let before = -1;
    let changed = now();
    while (this.first.size < messages) {
      if (this.runs !== before) {
        before = this.runs;
        changed = now();
      } else if (now() - changed > PATIENCE_MS) {
        throw new Error(`no more than ${before} of ${messages} were delivered`);
      }
      await sleep(2);
    }
    if (this.runs !== messages) {
      throw new Error(`${messages} messages were run ${this.runs} times`);
    }
  }
}

async function runTogether(peer) {
  const seen = new Seen();
  const left = await peer.consume((id) => seen.record(id));
  const send = await startSender('send', peer.forgets ? 0 : COPIES_PERCENT);
  const begun = now();
  const made = await send();
  await seen.until(made);
  while ((await left()) > 0) {
    await sleep(2);
  }
  return { completed: made, ms: now() - begun };
}

async function runApart(peer) {
  const seen = new Seen();
  const send = await startSender('send', COPIES_PERCENT);
  const begun = now();
  const made = await send();
  const sent = now();
  const left = await peer.consume((id) => seen.record(id));
  await seen.until(made);
  while ((await left()) > 0) {
    await sleep(2);
  }
  return { completed: made, ms: now() - begun, send_ms: sent - begun };
}

async function runLatency(peer) {
  const seen = new Seen();
  await peer.consume((id) => seen.record(id));
  const send = await startSender(
    'send-at-rate', peer.forgets ? 0 : COPIES_PERCENT);
  const { times, made } = await send();
  await seen.until(made);
  const waits = Object.entries(times).map(
    ([id, at]) => seen.first.get(id) - at);
  waits.sort((a, b) => a - b);
  return {
    completed: waits.length,
    p50: percentile(waits, 50), p99: percentile(waits, 99),
  };
}

async function runJob(peer) {
  const run = { together: runTogether, apart: runApart, latency: runLatency };
  await peer.prepare();
  const result = await run[mode](peer);
  if (result.ms) {
    result.messages_per_second = (result.completed * 1000) / result.ms;
  }
  console.log(JSON.stringify(result));
}

export async function main(peer) {
  try {
    if (mode.startsWith('send')) {
      await runSender(peer);
    } else {
      await runJob(peer);
      process.exit(0);
    }
  } catch (error) {
    console.error(error.message);
    process.exit(1);
  }
}
