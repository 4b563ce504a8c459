// SPDX-License-Identifier: MIT
// Verifies a request of our webhook handler with `standardwebhooks`.
//
//   verify-webhook.js SECRET < {"headers": {…}, "body": "base64"}
//
// Prints "ok", or why the library refuses it.
"use strict";

const fs = require("fs");
const { Webhook } = require("standardwebhooks");

const request = JSON.parse(fs.readFileSync(0, "utf8"));
try {
	const body = Buffer.from(request.body, "base64").toString("utf8");
	new Webhook(process.argv[2]).verify(body, request.headers);
	console.log("ok");
} catch (error) {
	console.log(error.message);
}
