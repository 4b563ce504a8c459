// SPDX-License-Identifier: MIT
// Publishes to a queue of RabbitMQ with amqplib: publish_amqp.js URL QUEUE.
//
// Each line of standard input is a number: so many messages may be published
// in all. When the broker has confirmed them, the number is printed. Message i
// has the id "m<i>"; every tenth is published twice, and again if its confirm
// was lost. By turns they are plain, CloudEvents in headers, and in JSON.
"use strict";

const amqp = require("amqplib");
const readline = require("readline");

const [url, queue] = process.argv.slice(2);
const BATCH = 200;
let channel = null;

function message(i) {
  const id = `m${i}`;
  const event = { specversion: "1.0", id, source: "in", type: "order.placed" };
  switch (i % 3) {
    case 0:
      return [Buffer.from(JSON.stringify({ order: i })),
        { messageId: id, type: "order.placed", contentType: "application/json",
          timestamp: 1700000000 + i, headers: { count: i, nested: { list: [1, "x"] } } }];
    case 1: {
      const headers = {};
      const prefix = i % 2 ? "cloudEvents_" : "cloudEvents:";
      for (const [name, value] of Object.entries(event)) {
        headers[prefix + name] = value;
      }
      return [Buffer.from(`{"order":${i}}`), { headers, contentType: "application/json" }];
    }
    default:
      return [Buffer.from(JSON.stringify({ ...event, data: { order: i } })),
        { contentType: "application/cloudevents+json" }];
  }
}

async function connect() {
  for (;;) {
    try {
      const connection = await amqp.connect(url);
      connection.on("error", () => {});
      const made = await connection.createConfirmChannel();
      made.setMaxListeners(0);
      made.on("error", () => {});
      return made;
    } catch (error) {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

// The messages first to last - 1, until the broker has confirmed them all.
async function publish(first, last) {
  for (;;) {
    try {
      channel = channel || await connect();
      for (let i = first; i < last; i++) {
        const [body, properties] = message(i);
        for (let copy = 0; copy < (i % 10 === 0 ? 2 : 1); copy++) {
          channel.sendToQueue(queue, body, { ...properties, persistent: true });
        }
      }
      await Promise.race([
        channel.waitForConfirms(),
        new Promise((_, reject) => channel.once("close", () => reject(new Error("closed")))),
      ]);
      return;
    } catch (error) {
      channel = null;
    }
  }
}

async function main() {
  let done = 0;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const wanted = Number(line);
    while (done < wanted) {
      const last = Math.min(done + BATCH, wanted);
      await publish(done, last);
      done = last;
    }
    console.log(done);
  }
  process.exit(0);
}

main();
