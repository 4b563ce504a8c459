// SPDX-License-Identifier: MIT
// What the programs of the peers share: the messages of the job, and what it
// comes to.
//
//   node PEER.mjs URL bulk MESSAGES         sent in batches by a process of its
//                                           own, delivered meanwhile
//   node PEER.mjs URL latency MESSAGES RATE one by one, so many per second
//
// Copies are left out: two of the three have no memory of what is done, so
// nothing would be refused. It is in their favour.

import { fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';

export const BATCH = 1000;

const [url, mode, count, rate] = process.argv.slice(2);
export { url };
export const total = Number(count);

// 256 bytes, as JSON.
export function makeBody(id) {
  const head = `{"id":"${id}","padding":"`;
  return { id, padding: 'x'.repeat(256 - head.length - 2) };
}

export function makeBatch(size) {
  return Array.from({ length: size }, () => {
    const id = randomUUID();
    return { id, body: makeBody(id) };
  });
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function percentile(values, percent) {
  return values[Math.max(0, Math.ceil((values.length * percent) / 100) - 1)];
}

// peer: prepare() makes the tables; produce() returns a function that sends a
// batch; consume(onStart) begins to deliver, calls onStart(id) for each, and
// returns a function that tells how many are not completed yet.
export async function main(peer) {
  if (mode === 'produce') {
    const send = await peer.produce();
    process.send('ready');
    await new Promise((resolve) => process.once('message', resolve));
    for (let sent = 0; sent < total; sent += BATCH) {
      await send(makeBatch(Math.min(BATCH, total - sent)));
    }
    process.exit(0);
  }
  await peer.prepare();
  if (mode === 'bulk') {
    await runBulk(peer);
  } else {
    await runLatency(peer);
  }
  process.exit(0);
}

async function runBulk(peer) {
  let started = 0;
  const left = await peer.consume(() => started++);
  const child = fork(process.argv[1], [url, 'produce', count]);
  child.on('exit', (code) => code && process.exit(code));
  await new Promise((resolve) => child.once('message', resolve));
  const begun = performance.now();
  child.send('go');
  while (started < total) {
    await sleep(5);
  }
  while ((await left()) > 0) {
    await sleep(5);
  }
  const seconds = (performance.now() - begun) / 1000;
  console.log(JSON.stringify({
    completed: total, seconds, messages_per_second: total / seconds,
  }));
}

async function runLatency(peer) {
  const due = new Map();
  const waits = [];
  await peer.consume((id) => waits.push(performance.now() - due.get(id)));
  const send = await peer.produce();
  await sleep(1000);
  const begun = performance.now();
  for (let i = 0; i < total; i++) {
    const at = begun + (i * 1000) / Number(rate);
    while (performance.now() < at) {
      await sleep(at - performance.now() > 1 ? 1 : 0);
    }
    const [message] = makeBatch(1);
    due.set(message.id, at);
    void send([message]);
  }
  while (waits.length < total) {
    await sleep(5);
  }
  waits.sort((a, b) => a - b);
  console.log(JSON.stringify({
    p50: percentile(waits, 50), p99: percentile(waits, 99),
  }));
}
