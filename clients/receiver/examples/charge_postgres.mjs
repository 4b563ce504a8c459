#!/usr/bin/env node
// SPDX-License-Identifier: MIT
// A program of an exec handler that charges each order once in PostgreSQL, with
// the package `pg`:
//
//   charge: {exec: [charge_postgres.mjs, postgres://payments@db/payments]}

import { text } from "node:stream/consumers";
import pg from "pg";

const { CE_ID, POSTERN_HANDLER, POSTERN_FENCE } = process.env;
const database = new pg.Client(process.argv[2]);
await database.connect();
await database.query("BEGIN"); // what throws from here on is rolled back
const { rows: [{ word }] } = await database.query(
  "SELECT postern_once($1, $2, $3) AS word", [CE_ID, POSTERN_HANDLER, POSTERN_FENCE]);
if (word === "run") {
  await database.query("INSERT INTO charges (order_id) VALUES ($1)",
    [await text(process.stdin)]);
}
await database.query("COMMIT");
await database.end();
console.log(word);
