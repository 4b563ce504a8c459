// SPDX-License-Identifier: MIT
// Calls clients/node/postern.mjs as driver.py calls the client for Python.

import { createInterface } from "node:readline";
import { Client, Poison, PosternError, verifyWebhook } from "../../clients/node/postern.mjs";

const calls = {
  send(client, { channel, body, hex, content_type: contentType,
    correlation_id: correlationId, ...options }) {
    return client.send(channel, hex === undefined ? body : Buffer.from(hex, "hex"),
      { contentType, correlationId, ...options });
  },

  async poison_all(client, { reason }) {
    const deliveries = await client.claim("job", { max: 100, waitMs: 0 });
    return client.settle(deliveries.map((each) => [each, new Poison(reason)]));
  },

  verify(client, { secrets, headers, body, now }) {
    return verifyWebhook(secrets, headers, body, { nowMs: now * 1000 });
  },
};

const [address, options] = process.argv.slice(2);
const { retry_for: retryFor, timeout, ca_file: caFile, token_file: tokenFile, ...rest } =
  JSON.parse(options);
const ms = (seconds) => (seconds === undefined ? undefined : seconds * 1000);
const client = new Client(address, { retryForMs: ms(retryFor), timeoutMs: ms(timeout), caFile,
  tokenFile, ...rest });

for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...call } = JSON.parse(line);
  let answer;
  try {
    answer = { result: await calls[name](client, call) };
  } catch (error) {
    answer = error instanceof PosternError
      ? { error: error.name, status: error.status ?? null, text: error.message }
      : { error: "mistake", text: error.message };
  }
  console.log(JSON.stringify(answer));
}
client.close();
