// SPDX-License-Identifier: MIT
/*
 * A client of Postern, in one file with nothing but what Node.js brings.
 *
 * Send a message. It is durable when send() resolves, and the same id on every
 * try makes a repetition a duplicate, so trying again is safe:
 *
 *   import { Client, Retry, verifyWebhook } from "./postern.mjs";
 *
 *   const client = new Client("http://127.0.0.1:7420", { tokenFile: "/etc/shop/token" });
 *   await client.send("orders", { order: 7 }, { id: "order-7", type: "order.placed" });
 *
 * Work on the deliveries of a handler of the kind `pull`, until SIGTERM:
 *
 *   await client.work("charge", async (delivery) => {
 *     if (!(await chargeCard(delivery.json()))) throw new Retry("the terminal is down");
 *   }, { concurrency: 4 });
 *
 * Check a webhook that Postern sent (or anybody who signs as Standard Webhooks
 * does):
 *
 *   const id = verifyWebhook("whsec_...", request.headers, body);
 *
 * An address is http://HOST[:PORT], https://HOST[:PORT] or unix:PATH. Times are
 * in milliseconds. Needs Node.js 18 or newer.
 */

import { createHmac, randomUUID, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { setTimeout as sleep } from "node:timers/promises";
import { inspect } from "node:util";

// Pauses between tries grow from the first to the second, and are partly random.
const PAUSE_MS_MIN = 100;
const PAUSE_MS_MAX = 5000;
// What one request claims, by the default of `pull.max`, and settles: 64 KiB.
const CLAIM_COUNT_MAX = 100;
const SETTLE_COUNT_MAX = 1000;
const SETTLE_LEN_MAX = 60000;
const REASON_LEN_MAX = 1000;
// Ten years, as everywhere.
const DELAY_MS_MAX = 10 * 365 * 86400 * 1000;
// A longer body is sent after the server has agreed to read it, or has said
// nothing for a second.
const SMALL_BODY_LEN_MAX = 1024 * 1024;
const AGREE_MS = 1000;

/* A request that failed. `status` is that of HTTP, or undefined. Of this class
   itself: the server's certificate is not trusted, or this is not Postern. */
export class PosternError extends Error {
  constructor(text, { status, retryAfterMs, cause } = {}) {
    super(text, { cause });
    this.name = this.constructor.name;
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
}

/* The request breaks a rule: 400, 413, 415, 422. Do not repeat it. */
export class Invalid extends PosternError {}

/* No token, a wrong one, or one without the right: 401, 403. */
export class NotAllowed extends PosternError {}

/* No such channel or handler: 404. */
export class NotFound extends PosternError {}

/* send(): another body was accepted under this id. extend(): the lease is lost.
   409. */
export class Conflict extends PosternError {}

/* The server cannot be reached, or asks to come back later: 429, 5xx. All tries
   were used up; the request can be repeated. */
export class Unavailable extends PosternError {}

/* A webhook that was not signed with this secret, or not recently. */
export class InvalidSignature extends PosternError {}

/* What a function that works on a delivery throws instead of returning, which
   means done. Anything else that it throws is a Retry. */
export class Outcome extends Error {
  constructor(word, reason, delayMs) {
    super(reason);
    if (delayMs !== undefined && !(delayMs >= 0 && delayMs <= DELAY_MS_MAX)) {
      throw new RangeError(`a delay of ${delayMs} ms`);
    }
    this.name = this.constructor.name;
    this.word = word;
    this.delayMs = delayMs;
  }
}

/* Try again, after a delay or the handler's backoff; a failure. */
export class Retry extends Outcome {
  constructor(reason = "", delayMs = undefined) {
    super("retry", reason, delayMs);
  }
}

/* Try again after a delay; not a failure, no attempt is spent. */
export class Snooze extends Outcome {
  constructor(delayMs, reason = "") {
    super("snooze", reason, delayMs);
  }
}

/* This message will never work: keep it for a person to look at. */
export class Poison extends Outcome {
  constructor(reason = "") {
    super("poison", reason);
  }
}

/* Nothing to do for this message. */
export class Discard extends Outcome {
  constructor(reason = "") {
    super("discard", reason);
  }
}

/* The handler is at fault, not this message: hold the handler. */
export class Hold extends Outcome {
  constructor(reason = "") {
    super("hold", reason);
  }
}

/* One message for one handler. `lost` is an AbortSignal: the lease has been
   lost, somebody else may work on it, and its result will not count. */
export class Delivery {
  #lost = new AbortController();

  constructor(handler, item) {
    this.handler = handler;
    this.seq = item.seq;
    this.fence = item.fence;
    this.attempt = item.attempt;
    this.message = item.message;
    this.body = Buffer.from(
      item.body_base64 ?? item.body ?? "", item.body_base64 === undefined ? "utf8" : "base64");
    this.lost = this.#lost.signal;
  }

  /* The message's id, the same on every attempt. */
  get id() {
    return this.message.id;
  }

  json() {
    return JSON.parse(this.body.toString());
  }

  /* Called by a worker. */
  lose() {
    this.#lost.abort();
  }

  /* The delivery as a request names it. */
  where(more) {
    return { seq: this.seq, handler: this.handler, fence: this.fence, ...more };
  }
}

/* Connections to one address that are used again. */
class Connections {
  constructor(address, caFile) {
    const [scheme] = address.split(":");
    this.prefix = "";
    if (scheme === "unix") {
      this.options = { socketPath: address.slice("unix:".length), host: "postern" };
    } else if (scheme === "http" || scheme === "https") {
      const url = new URL(address);
      this.options = { hostname: url.hostname.replace(/^\[|\]$/g, ""), port: url.port || undefined };
      this.prefix = url.pathname.replace(/\/+$/, "");
    } else {
      throw new TypeError(
        `the address '${address}' is not http://HOST, https://HOST or unix:PATH`);
    }
    this.kind = scheme === "https" ? https : http;
    this.agent = new this.kind.Agent({
      keepAlive: true, ...(caFile ? { ca: readFileSync(caFile) } : {}) });
  }

  /* Resolves with status, headers and body. An idle connection may have been
     closed by the server meanwhile: then another one is used. */
  async request(path, body, headers, timeoutMs) {
    for (;;) {
      const state = {};
      try {
        return await this.#once(path, body, headers, timeoutMs, state);
      } catch (error) {
        if (!state.request?.reusedSocket || !["ECONNRESET", "EPIPE"].includes(error.code)) {
          throw error;
        }
      }
    }
  }

  #once(path, body, headers, timeoutMs, state) {
    return new Promise((resolve, reject) => {
      const big = body.length > SMALL_BODY_LEN_MAX;
      const request = this.kind.request({
        ...this.options, agent: this.agent, method: "POST", path: this.prefix + path,
        headers: { ...headers, "Content-Length": body.length,
          ...(big ? { Expect: "100-continue" } : {}) } });
      state.request = request;
      const timer = setTimeout(
        () => request.destroy(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
      const send = () => {
        if (!request.writableEnded) request.end(body);
      };
      const agreed = big ? setTimeout(send, AGREE_MS) : undefined;
      const fail = (error) => {
        clearTimeout(timer);
        clearTimeout(agreed);
        error.untrusted = Boolean(request.socket?.authorizationError);
        reject(error);
      };
      request.on("error", fail);
      request.on("response", (response) => {
        const parts = [];
        response.on("data", (part) => parts.push(part));
        response.on("error", fail);
        clearTimeout(agreed);
        response.on("end", () => {
          clearTimeout(timer);
          if (!request.writableEnded) request.destroy();
          resolve({ status: response.statusCode, headers: response.headers,
            body: Buffer.concat(parts) });
        });
      });
      if (!big) {
        send();
        return;
      }
      request.on("continue", send);
      request.flushHeaders();
    });
  }

  close() {
    this.agent.destroy();
  }
}

/* A duration as the server reads it. */
function duration(ms) {
  return `${Math.round(ms)}ms`;
}

/* Retry-After, a number or a date, from now. undefined: neither. */
function retryAfterMs(text) {
  if (text === undefined) return undefined;
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  const date = Date.parse(text);
  return Number.isNaN(date) ? undefined : Math.max(0, date - Date.now());
}

const KINDS = new Map([
  [400, Invalid], [401, NotAllowed], [403, NotAllowed], [404, NotFound], [409, Conflict],
  [413, Invalid], [415, Invalid], [422, Invalid], [429, Unavailable],
]);

/* The error for a response that is no success. */
function errorOf({ status, headers, body }) {
  let detail;
  try {
    const problem = JSON.parse(body.toString());
    detail = problem.detail ?? problem.title;
  } catch {
    // Not from Postern, but from a proxy.
  }
  const Kind = KINDS.get(status) ?? (status >= 500 ? Unavailable : PosternError);
  return new Kind(detail ?? `the server answered ${status}`, {
    status, retryAfterMs: retryAfterMs(headers["retry-after"]) });
}

/* The pauses between tries, without an end. */
function* pauses() {
  for (let pause = PAUSE_MS_MIN; ; pause = Math.min(2 * pause, PAUSE_MS_MAX)) {
    yield pause * (0.5 + Math.random() / 2);
  }
}

/* What cannot be sent would be refused, with all results of the request. */
function reasonText(text) {
  return Buffer.from(text.slice(0, REASON_LEN_MAX).replaceAll("\0", " ")).toString();
}

/* One item of a request that settles. */
function settlement(delivery, outcome) {
  if (!outcome) return delivery.where({ outcome: "done" });
  return delivery.where({
    outcome: outcome.word,
    reason: reasonText(outcome.message),
    delay: outcome.delayMs === undefined ? undefined : duration(outcome.delayMs),
  });
}

/* The items of as many requests as their length needs. */
function* requestsOf(results) {
  let [items, length] = [[], 0];
  for (const [delivery, outcome] of results) {
    const item = settlement(delivery, outcome);
    const itemLength = Buffer.byteLength(JSON.stringify(item)) + ",".length;
    if (items.length === SETTLE_COUNT_MAX
        || (items.length > 0 && length + itemLength > SETTLE_LEN_MAX)) {
      yield items;
      [items, length] = [[], 0];
    }
    items.push(item);
    length += itemLength;
  }
  if (items.length > 0) yield items;
}

/* An attribute of a CloudEvent as the value of a header. */
function encodeAttribute(text) {
  return String(text).replace(/[^!#$&-~]+/gu, encodeURIComponent);
}

/* The bytes, and a content type. */
function encodeBody(body) {
  if (typeof body === "string") return [Buffer.from(body), "text/plain; charset=utf-8"];
  if (body instanceof Uint8Array) return [Buffer.from(body), undefined];
  return [Buffer.from(JSON.stringify(body)), "application/json"];
}

// Headers of a request that are not the sender's to choose.
const OWN_HEADERS = ["authorization", "connection", "content-length", "content-type", "host",
  "transfer-encoding"];

function encodeHeaders(headers = {}) {
  const encoded = {};
  for (const [name, value] of Object.entries(headers)) {
    if (OWN_HEADERS.includes(name.toLowerCase()) || name.toLowerCase().startsWith("ce-")) {
      throw new TypeError(`'${name}' cannot be a header of a message`);
    }
    // Node.js writes one byte for each character.
    encoded[name] = Buffer.from(value).toString("latin1");
  }
  return encoded;
}

/* The date as text, also of a Date. */
function timeText(time) {
  return time instanceof Date ? time.toISOString() : time;
}

/* A server. `timeoutMs` is how long one try may take, and `retryForMs` how long
   tries are repeated while the server cannot be reached or is busy. */
export class Client {
  constructor(address, { token, tokenFile, caFile, timeoutMs = 30000, retryForMs = 60000 } = {}) {
    const secret = tokenFile ? readFileSync(tokenFile, "utf8").trim() : token;
    this.connections = new Connections(address, caFile);
    this.authorization = secret ? { Authorization: `Bearer ${secret}` } : {};
    this.timeoutMs = timeoutMs;
    this.retryForMs = retryForMs;
  }

  /* Send a message; resolves with `status` ("accepted" or "duplicate"), `id`,
     `source` and `seq` once it is durable. `body` is bytes, a string, or
     something that becomes JSON. Without an id one is made, for all tries of
     this call; only with an id of your own a later call with the same message is
     a duplicate. */
  async send(channel, body, { id = randomUUID(), type = "message", source = channel, subject,
    time, contentType, correlationId, traceparent, headers, retryForMs } = {}) {
    const [data, guess] = encodeBody(body);
    const attributes = { specversion: "1.0", id, type, source, subject, time: timeText(time),
      correlationid: correlationId, traceparent };
    const words = encodeHeaders(headers);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined) words[`ce-${name}`] = encodeAttribute(value);
    }
    if (contentType ?? guess) words["Content-Type"] = contentType ?? guess;
    return this.post(`/v1/channels/${encodeURIComponent(channel)}/messages`, data, words,
      { retryForMs });
  }

  /* Claim up to `max` deliveries, and wait for one; an array, which is empty if
     there was none. Each is yours for `leaseMs`. Is not repeated by itself. */
  async claim(handler, { max = 1, waitMs = 10000, leaseMs = 60000 } = {}) {
    const answer = await this.postJson(
      `/v1/handlers/${encodeURIComponent(handler)}/claim`,
      { max, wait: duration(waitMs), lease: duration(leaseMs) },
      { retryForMs: 0, timeoutMs: this.timeoutMs + waitMs });
    return answer.items.map((item) => new Delivery(handler, item));
  }

  /* Settle deliveries: pairs of a delivery and undefined, which is done, or an
     Outcome. Resolves with a word for each: "settled", "late" (the lease was
     lost: somebody else has the delivery) or "unknown". */
  async settle(results, options = {}) {
    const words = [];
    for (const items of requestsOf(results)) {
      try {
        const answer = await this.postJson("/v1/deliveries/settle", { items }, options);
        words.push(...answer.items.map((item) => item.status));
      } catch (error) {
        if (!(error instanceof Conflict)) throw error;
        words.push("late"); // a single one that was late
      }
    }
    return words;
  }

  /* Make a lease end in `leaseMs` from now. Conflict: it is lost. */
  async extend(delivery, leaseMs = 60000) {
    const { seq, handler, fence } = delivery;
    await this.postJson(`/v1/deliveries/${seq}/${encodeURIComponent(handler)}/extend`,
      { fence, lease: duration(leaseMs) }, { retryForMs: 0 });
  }

  /* Work on deliveries until SIGTERM or SIGINT; options of Worker. */
  async work(handler, work, options) {
    const worker = new Worker(this, handler, work, options);
    const signals = ["SIGTERM", "SIGINT"];
    const stop = () => {
      worker.stop();
      // The second signal does what it does without us.
      for (const name of signals) process.removeListener(name, stop);
    };
    for (const name of signals) process.on(name, stop);
    try {
      await worker.run();
    } finally {
      for (const name of signals) process.removeListener(name, stop);
    }
  }

  /* Close idle connections, which would keep no program alive. */
  close() {
    this.connections.close();
  }

  postJson(path, value, options) {
    return this.post(path, Buffer.from(JSON.stringify(value)),
      { "Content-Type": "application/json" }, options);
  }

  /* One request, with the tries that are allowed; resolves with the JSON. */
  async post(path, body, headers,
    { retryForMs = this.retryForMs, timeoutMs = this.timeoutMs } = {}) {
    const end = performance.now() + retryForMs;
    for (const shortest of pauses()) {
      try {
        return await this.#tryOnce(path, body, { ...headers, ...this.authorization }, timeoutMs);
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error;
        const pause = Math.max(shortest, error.retryAfterMs ?? 0);
        if (performance.now() + pause >= end) throw error;
        await sleep(pause);
      }
    }
  }

  async #tryOnce(path, body, headers, timeoutMs) {
    let answer;
    try {
      answer = await this.connections.request(path, body, headers, timeoutMs);
    } catch (cause) {
      // Headers that cannot be sent are a mistake of the caller.
      if (cause instanceof TypeError) throw cause;
      if (cause.untrusted) {
        throw new PosternError(
          `the server's certificate is not trusted: ${cause.message}; see caFile`, { cause });
      }
      throw new Unavailable(`the server cannot be reached: ${cause.message}`, { cause });
    }
    if (answer.status !== 200 && answer.status !== 202) throw errorOf(answer);
    try {
      return JSON.parse(answer.body.toString());
    } catch (cause) {
      throw new PosternError("the answer is not JSON: is this Postern?",
        { status: answer.status, cause });
    }
  }
}

/*
 * Claims deliveries of a handler and calls a function with each: `concurrency`
 * at a time, with at most `batch` deliveries (as many) claimed. Leases are
 * extended while the function runs. stop() lets what runs finish and gives the
 * rest back, which takes up to `waitMs` more. `log` gets sentences.
 */
export class Worker {
  #held = new Map(); // deliveries that are not settled, and when extended
  #waiting = []; // claimed, and not begun
  #results = [];
  #running = new Set();
  #settling = null;
  #stopping = new AbortController();
  #wake = () => {};

  constructor(client, handler, work, { concurrency = 1, batch = concurrency, leaseMs = 60000,
    waitMs = 10000, log = console.error } = {}) {
    Object.assign(this, { client, handler, work, concurrency, leaseMs, waitMs, log });
    this.batch = Math.max(batch, concurrency);
  }

  /* Ask run() to end. */
  stop() {
    this.#stopping.abort();
    this.#wake();
  }

  get stopping() {
    return this.#stopping.signal.aborted;
  }

  /* Work until stop(). Throws what no repetition would change: that there is no
     such handler, that the token may not claim. */
  async run() {
    const timer = setInterval(() => this.#extendAll(), this.leaseMs / 10);
    try {
      await this.#claimAll();
    } finally {
      this.stop();
      const begun = [...this.#running];
      for (const delivery of this.#waiting.splice(0)) {
        this.#finish(delivery, new Snooze(0, "the worker stops"));
      }
      await Promise.all(begun);
      await this.#settling;
      clearInterval(timer);
    }
  }

  async #claimAll() {
    let retries = pauses();
    while (!this.stopping) {
      const free = this.batch - this.#held.size;
      if (free <= 0) {
        await new Promise((resolve) => { this.#wake = resolve; });
        continue;
      }
      try {
        const deliveries = await this.client.claim(this.handler, {
          max: Math.min(free, CLAIM_COUNT_MAX), waitMs: this.waitMs, leaseMs: this.leaseMs });
        for (const delivery of deliveries) this.#held.set(delivery, performance.now());
        this.#waiting.push(...deliveries);
        retries = pauses();
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error;
        this.log(`cannot claim deliveries of '${this.handler}': ${error.message}`);
        const pause = Math.max(retries.next().value, error.retryAfterMs ?? 0);
        await sleep(pause, undefined, { signal: this.#stopping.signal }).catch(() => {});
      }
      this.#begin();
    }
  }

  #begin() {
    while (!this.stopping && this.#running.size < this.concurrency && this.#waiting.length > 0) {
      const delivery = this.#waiting.shift();
      const run = this.#call(delivery).then((outcome) => {
        this.#running.delete(run);
        this.#finish(delivery, outcome);
        this.#begin();
      });
      this.#running.add(run);
    }
  }

  async #call(delivery) {
    if (delivery.lost.aborted) return undefined;
    try {
      await this.work(delivery);
      return undefined;
    } catch (error) {
      if (error instanceof Outcome) return error;
      const text = inspect(error);
      this.log(`'${this.handler}' failed with message '${delivery.id}': ${text}`);
      return new Retry(text.split("\n")[0]);
    }
  }

  #finish(delivery, outcome) {
    this.#results.push([delivery, outcome]);
    this.#settling ??= this.#settleAll();
  }

  /* All results that wait are one request. */
  async #settleAll() {
    await null; // what ends now belongs to it
    while (this.#results.length > 0) {
      const results = this.#results.splice(0);
      try {
        await this.#settle(results);
      } catch (error) {
        // The leases end, and others get the deliveries.
        this.log(`cannot settle ${results.length} deliveries of '${this.handler}':`
          + ` ${error.message}`);
      }
      for (const [delivery] of results) this.#held.delete(delivery);
      this.#wake();
    }
    this.#settling = null;
  }

  async #settle(results) {
    // Later there is nothing left to settle.
    const words = await this.client.settle(results, { retryForMs: this.leaseMs });
    words.forEach((word, i) => {
      if (word !== "settled") {
        this.log(`the result of '${this.handler}' for message '${results[i][0].id}'`
          + ` does not count: ${word}`);
      }
    });
  }

  /* Each lease is extended when a third of it is over. */
  #extendAll() {
    const now = performance.now();
    for (const [delivery, extendedAt] of this.#held) {
      if (now - extendedAt >= this.leaseMs / 3 && !delivery.lost.aborted) {
        this.#held.set(delivery, now);
        this.#extend(delivery, extendedAt);
      }
    }
  }

  async #extend(delivery, extendedAt) {
    try {
      await this.client.extend(delivery, this.leaseMs);
    } catch (error) {
      if (!this.#held.has(delivery)) return;
      if (error instanceof Conflict || error instanceof NotFound) {
        this.log(`the lease of message '${delivery.id}' for '${this.handler}' is lost`);
        delivery.lose();
        return;
      }
      this.log(`cannot extend a lease of '${this.handler}': ${error.message}`);
      this.#held.set(delivery, extendedAt); // again at the next look
    }
  }
}

/* A secret: bytes as they are, a string in base64, with whsec_ or without. */
function secretBytes(secret) {
  let bytes = secret;
  if (typeof secret === "string") {
    const text = secret.replace(/^whsec_/, "");
    if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text)) {
      throw new TypeError("a secret of webhooks is base64 after 'whsec_'");
    }
    bytes = Buffer.from(text, "base64");
  }
  if (bytes.length === 0) {
    // Anybody can sign with it.
    throw new TypeError("a secret of webhooks is empty");
  }
  return bytes;
}

function isEqual(a, b) {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}

/* Check a webhook as Standard Webhooks defines; returns its id, which is the
   same each time it is sent. `secrets` is one or, while they are changed, an
   array; `headers` an object of any case or a Headers; `body` the bytes as
   received, not parsed. Throws InvalidSignature. */
export function verifyWebhook(secrets, headers, body,
  { toleranceMs = 300000, nowMs = Date.now() } = {}) {
  const entries = typeof headers.entries === "function" ? headers.entries()
    : Object.entries(headers);
  const found = new Map([...entries].map(([name, value]) => [name.toLowerCase(), String(value)]));
  for (const name of ["webhook-id", "webhook-timestamp", "webhook-signature"]) {
    if (!found.has(name)) throw new InvalidSignature(`there is no header '${name}'`);
  }
  const id = found.get("webhook-id");
  const sentAt = found.get("webhook-timestamp");
  if (!/^\d+$/.test(sentAt)) throw new InvalidSignature("the timestamp is not a number");
  if (Math.abs(nowMs - Number(sentAt) * 1000) > toleranceMs) {
    throw new InvalidSignature("the timestamp is too old or in the future");
  }
  let good = false;
  for (const secret of [secrets].flat()) {
    const digest = createHmac("sha256", secretBytes(secret)).update(`${id}.${sentAt}.`)
      .update(body).digest("base64");
    for (const each of found.get("webhook-signature").split(" ")) {
      // Compares all of them: how long it takes tells nothing.
      if (isEqual(each, `v1,${digest}`)) good = true;
    }
  }
  if (!good) throw new InvalidSignature("no signature is right for this secret");
  return id;
}
