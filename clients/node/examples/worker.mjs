#!/usr/bin/env node
// SPDX-License-Identifier: MIT
/*
 * Charges orders until it is stopped (SIGTERM, control-C): worker.mjs
 *
 * The configuration of the server has a handler that is pulled:
 *
 *   charge: {types: [order.placed], pull: {}}
 */

import { Client, Poison } from "../postern.mjs";

/* Resolves: done. Throws: tried again later, with the handler's backoff. May run
   twice for an order, if the worker dies in between: pass the message's id on as
   idempotency key, or see clients/receiver. */
async function charge(delivery) {
  const order = delivery.json();
  if (order.cents <= 0) throw new Poison(`${order.cents} is no amount`);
  console.log(`charge ${delivery.id}: ${order.cents}, attempt ${delivery.attempt}`);
}

if (process.argv.length > 2) {
  console.error("usage: worker.mjs; $POSTERN_SERVER, $POSTERN_TOKEN_FILE");
  process.exit(1);
}
const client = new Client(process.env.POSTERN_SERVER ?? "http://127.0.0.1:7420",
  { tokenFile: process.env.POSTERN_TOKEN_FILE });
await client.work("charge", charge, { concurrency: 4 });
