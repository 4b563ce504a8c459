// SPDX-License-Identifier: MIT
// Sends CloudEvents to a server with the SDK for JavaScript, and fetch.
//
// arguments: the URL of a channel's messages, a token.
// stdout: a JSON array of {name, status, answer}.
"use strict";

const { CloudEvent, HTTP } = require("cloudevents");

const [url, token] = process.argv.slice(2);
const bytes = Buffer.from([0, 1, 254, 255, 0x80]);
const subject = "Größe ✓ 漢字 \u{1f512}";

// As text, because a number of JavaScript would lose its last digits.
const large = '{"n":9007199254740993,"f":1.0,"e":1e400}';

const common = { source: "/npm", type: "npm.event", subject, grund: "für Ästhetik" };
const event = (id, more) => new CloudEvent({ ...common, id, ...more });

// The SDK leaves it to its caller to encode attributes as headers.
const binary = (event) => {
	const message = HTTP.binary(event);
	for (const [name, value] of Object.entries(message.headers)) {
		message.headers[name] =
			String(value).replace(/[^\x20-\x7e]|["%]/gu, encodeURIComponent);
	}
	return message;
};

const json = { datacontenttype: "application/json" };
const requests = {
	binary: binary(event("binary", { ...json, data: { a: [1, "ü"] } })),
	"binary text": binary(event("binary text", { ...json, data: large })),
	"binary bytes": binary(event("binary bytes", {
		datacontenttype: "application/octet-stream", data: bytes })),
	structured: HTTP.structured(event("structured", { ...json, data: { a: [1, "ü"] } })),
	"structured bytes": HTTP.structured(event("structured bytes", {
		datacontenttype: "application/octet-stream", data: new Uint8Array(bytes) })),
	"structured text": {
		headers: { "content-type": "application/cloudevents+json" },
		// What is in the place of data stays as it is written.
		body: JSON.stringify(event("structured text", { ...json, data: 0 }))
			.replace('"data":0', `"data":${large}`),
	},
	batch: {
		headers: { "content-type": "application/cloudevents-batch+json" },
		body: JSON.stringify([1, 2, 3].map(
			(n) => event(`batch ${n}`, { ...json, data: { n } }))),
	},
};

async function main() {
	const results = [];
	for (const [name, message] of Object.entries(requests)) {
		for (let copy = 0; copy < 2; copy++) {
			const response = await fetch(url, {
				method: "POST",
				headers: { ...message.headers, authorization: `Bearer ${token}` },
				body: message.body,
			});
			results.push({ name, status: response.status, answer: await response.json() });
		}
	}
	console.log(JSON.stringify(results));
}

main();
