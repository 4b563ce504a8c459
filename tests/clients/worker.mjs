// SPDX-License-Identifier: MIT
// Works as worker.py does, with the client for Node.js.

import { existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Discard, Poison, Retry, Snooze } from "../../clients/node/postern.mjs";

const first = {
  fail: () => new Error("no terminal"),
  retry: () => new Retry("later", 100),
  snooze: () => new Snooze(100, "not yet"),
  odd: () => new Retry("\0 \ud800", 100),
  wrong: () => new Snooze(-1),
  poison: () => new Poison("never"),
  discard: () => new Discard("not wanted"),
};
const begun = new Set();

async function work(delivery) {
  console.log(`begin ${delivery.id} ${delivery.attempt}`);
  const task = delivery.json();
  while (task.until && !existsSync(task.until)) {
    await sleep(20);
    if (delivery.lost.aborted) {
      console.log(`lost ${delivery.id}`);
      return;
    }
  }
  if (task.first && !begun.has(delivery.id)) {
    begun.add(delivery.id);
    throw first[task.first]();
  }
  console.log(`end ${delivery.id}`);
}

const [address, options] = process.argv.slice(2);
const { lease, wait, ...rest } = JSON.parse(options);
const ms = (seconds) => (seconds === undefined ? undefined : seconds * 1000);
await new Client(address).work("job", work, { leaseMs: ms(lease), waitMs: ms(wait), ...rest });
console.log("stopped");
