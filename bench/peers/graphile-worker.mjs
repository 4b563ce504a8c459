// SPDX-License-Identifier: MIT
// graphile-worker, with the settings of its page on performance: jobs are
// fetched in batches for a local queue, and completed in batches. The id is the
// key of the job. That detects a copy while the job waits; a copy that arrives
// while it runs is run as well, and may deadlock with its completion, which ends
// the worker.

import { Logger, makeWorkerUtils, run, runMigrations } from 'graphile-worker';
import pg from 'pg';
import { main, url } from './common.mjs';

const logger = new Logger(() => () => {});
const preset = {
  worker: {
    connectionString: url,
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};

await main({
  senders: 1,
  forgets: true,

  async prepare() {
    await runMigrations({ preset, logger });
  },

  async produce() {
    const utils = await makeWorkerUtils({ connectionString: url, logger });
    return (batch) => utils.addJobs(batch.map(
      ({ id, body }) => ({ identifier: 'bench', payload: body, jobKey: id })));
  },

  async consume(onStart) {
    await run({
      preset, logger, noHandleSignals: true,
      taskList: { bench: async (payload) => { onStart(payload.id); } },
    });
    const pool = new pg.Pool({ connectionString: url, max: 1 });
    return async () => {
      const { rows } = await pool.query(
        'SELECT count(*)::int AS n FROM graphile_worker._private_jobs');
      return rows[0].n;
    };
  },
});
