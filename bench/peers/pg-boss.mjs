// SPDX-License-Identifier: MIT
// pg-boss: workers that fetch in batches and continue while batches are full,
// woken by notifications. The id is the id of the job, which detects a copy as
// long as the job is kept. At 500 jobs a second the latency was lower with one
// worker than with two; in batches there was no significant difference.

import pg from 'pg';
import { PgBoss } from 'pg-boss';
import { main, mode, url } from './common.mjs';

async function start() {
  const boss = new PgBoss({
    connectionString: url, max: 10, useListenNotify: true, schedule: false,
  });
  boss.on('error', (error) => console.error(error));
  await boss.start();
  return boss;
}

await main({
  senders: 1,
  forgets: false,

  async prepare() {
    const boss = await start();
    await boss.createQueue('bench', { notify: true });
    await boss.stop({ graceful: false });
  },

  async produce() {
    const boss = await start();
    return (batch) => boss.insert('bench', batch.map(
      ({ id, body }) => ({ id, data: body })));
  },

  async consume(onStart) {
    const boss = await start();
    await boss.work('bench', {
      batchSize: 1000, burstWhenBatchFull: true,
      localConcurrency: mode === 'latency' ? 1 : 2,
      pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5,
    }, async (jobs) => {
      for (const job of jobs) {
        onStart(job.id);
      }
    });
    const pool = new pg.Pool({ connectionString: url, max: 1 });
    return async () => {
      const { rows } = await pool.query(
        "SELECT count(*)::int AS n FROM pgboss.job WHERE state < 'completed'" +
        " AND name = 'bench'");
      return rows[0].n;
    };
  },
});
