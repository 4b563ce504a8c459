#!/usr/bin/env node
// SPDX-License-Identifier: MIT
/*
 * Receives webhooks and verifies them: receiver.mjs PORT SECRET_FILE
 *
 * The file has the line whsec_… that the handler has as its secret_file.
 */

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { buffer } from "node:stream/consumers";
import { InvalidSignature, verifyWebhook } from "../postern.mjs";

if (process.argv.length !== 4) {
  console.error("usage: receiver.mjs PORT SECRET_FILE");
  process.exit(1);
}
const [port, file] = process.argv.slice(2);
const secret = readFileSync(file, "utf8").trim();

createServer(async (request, response) => {
  const body = await buffer(request);
  try {
    const id = verifyWebhook(secret, request.headers, body);
    console.log(`received ${id}: ${body}`);
    response.writeHead(204).end();
  } catch (error) {
    if (!(error instanceof InvalidSignature)) throw error;
    console.log(`refused: ${error.message}`);
    response.writeHead(401).end();
  }
}).listen(Number(port), "127.0.0.1");
