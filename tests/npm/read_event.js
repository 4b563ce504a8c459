// SPDX-License-Identifier: MIT
// Reads a request of our webhook handler with the SDK for JavaScript.
//
//   read_event.js < {"headers": {…}, "body": "base64"}
//
// Prints the event as the SDK understands it, with its data in base64.
"use strict";

const fs = require("fs");
const { HTTP } = require("cloudevents");

const { headers, body } = JSON.parse(fs.readFileSync(0, "utf8"));
const bytes = Buffer.from(body, "base64");
// As receivers do with express and its parsers: JSON is text, all else bytes.
const isText = /json|text/.test(headers["content-type"]);
const event = HTTP.toEvent({ headers, body: isText ? bytes.toString("utf8") : bytes });
event.validate();
const data = event.data_base64
	|| Buffer.from(typeof event.data === "string" || Buffer.isBuffer(event.data)
		? event.data : JSON.stringify(event.data)).toString("base64");
const { id, source, type, subject, time, specversion, datacontenttype, region } = event;
console.log(JSON.stringify(
	{ id, source, type, subject, time, specversion, datacontenttype, region, data }));
