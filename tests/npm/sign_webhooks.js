// SPDX-License-Identifier: MIT
// Signs webhooks with the libraries of those who send them.
//
// stdin: a JSON array of {scheme, secret, id, time, body}; body in base64, time
// in seconds. stdout: an array of objects of headers, in the same order.
"use strict";

const crypto = require("node:crypto");
const fs = require("node:fs");
const { Webhook } = require("standardwebhooks");
const Stripe = require("stripe");

const stripe = new Stripe("sk_test_of_nothing");

const schemes = {
	standard({ secret, id, time, body }) {
		const signature = new Webhook(secret).sign(
			id, new Date(time * 1000), body.toString());
		return {
			"webhook-id": id,
			"webhook-timestamp": String(time),
			"webhook-signature": signature,
		};
	},
	stripe({ secret, time, body }) {
		return {
			"Stripe-Signature": stripe.webhooks.generateTestHeaderString({
				payload: body.toString(), secret, timestamp: time,
			}),
		};
	},
	github({ secret, id, body }) {
		const digest =
			crypto.createHmac("sha256", secret).update(body).digest("hex");
		return {
			"X-GitHub-Delivery": id,
			"X-GitHub-Event": "push",
			"X-Hub-Signature-256": `sha256=${digest}`,
		};
	},
};

const webhooks = JSON.parse(fs.readFileSync(0));
process.stdout.write(JSON.stringify(webhooks.map((webhook) =>
	schemes[webhook.scheme](
		{ ...webhook, body: Buffer.from(webhook.body, "base64") }))));
