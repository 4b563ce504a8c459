// SPDX-License-Identifier: MIT
// pg-transactional-outbox: the inbox with the polling listener, messages that
// may be handled in parallel, and its default protections. The id is the id of
// the message, which detects a copy as long as the message is kept. Each poll
// sorts all open messages, and by default it polls whenever one message is done;
// so it is configured to wait until all that it has fetched are done.

import pg from 'pg';
import outbox from 'pg-transactional-outbox';
import { main, url } from './common.mjs';

const FETCHED = 500;
const logger = outbox.getDisabledLogger();
const setup = {
  outboxOrInbox: 'inbox', database: 'bench', schema: 'public',
  table: 'inbox', listenerRole: 'postern', nextMessagesSchema: 'public',
  nextMessagesName: 'next_inbox_messages',
};
const config = {
  outboxOrInbox: 'inbox',
  dbListenerConfig: { connectionString: url, max: 20 },
  dbHandlerConfig: { connectionString: url, max: 20 },
  settings: {
    dbSchema: 'public', dbTable: 'inbox',
    nextMessagesFunctionSchema: 'public',
    nextMessagesFunctionName: 'next_inbox_messages',
    nextMessagesBatchSize: FETCHED, nextMessagesPollingIntervalInMs: 5,
    nextMessagesLockInMs: 30000,
    enableMaxAttemptsProtection: true, enablePoisonousMessageProtection: true,
  },
};

async function batchSizeStrategy(busy) {
  if (busy === 0) {
    return FETCHED;
  }
  await new Promise((resolve) => setTimeout(resolve, 1));
  return 0;
}

await main({
  senders: 2,
  forgets: false,

  async prepare() {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query(outbox.DatabaseSetup.dropAndCreateTable(setup));
    await client.query(outbox.DatabaseSetup.createPollingFunction(setup));
    await client.query(outbox.DatabaseSetup.setupPollingIndexes(setup));
    await client.end();
  },

  async produce() {
    const store = outbox.initializeMessageStorage(config, logger);
    const pool = new pg.Pool({ connectionString: url, max: 10 });
    // A batch in one transaction.
    return async (batch) => outbox.executeTransaction(
      await pool.connect(), async (client) => {
        await Promise.all(batch.map(({ id, body }) => store({
          id, aggregateType: 'bench', aggregateId: id, messageType: 'bench',
          concurrency: 'parallel', payload: body, metadata: {},
        }, client)));
      });
  },

  async consume(onStart) {
    outbox.initializePollingMessageListener(config, [{
      aggregateType: 'bench', messageType: 'bench',
      handle: async (message) => { onStart(message.id); },
    }], logger, { batchSizeStrategy });
    const pool = new pg.Pool({ connectionString: url, max: 1 });
    return async () => {
      const { rows } = await pool.query(
        'SELECT count(*)::int AS n FROM inbox WHERE processed_at IS NULL');
      return rows[0].n;
    };
  },
});
