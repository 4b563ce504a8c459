#!/usr/bin/env node
// SPDX-License-Identifier: MIT
// Sends an order: send.mjs [ORDER]. However often it runs, the order counts once.

import { Client, Conflict, Unavailable } from "../postern.mjs";

const args = process.argv.slice(2);
if (args.length > 1 || ["-h", "--help"].includes(args[0])) {
  console.error("usage: send.mjs [ORDER]; $POSTERN_SERVER, $POSTERN_TOKEN_FILE");
  process.exit(1);
}
const order = args[0] ?? "7";
const client = new Client(process.env.POSTERN_SERVER ?? "http://127.0.0.1:7420",
  { tokenFile: process.env.POSTERN_TOKEN_FILE });
try {
  const receipt = await client.send("orders", { order, cents: 1250 },
    { id: `order-${order}`, type: "order.placed" });
  console.log(`order ${order}: ${receipt.status}`);
} catch (error) {
  if (error instanceof Conflict) {
    console.error(`order ${order} was sent before, with another body`);
  } else if (error instanceof Unavailable) {
    console.error(`try again later: ${error.message}`);
  } else {
    throw error;
  }
  process.exitCode = 1;
}
