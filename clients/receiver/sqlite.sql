-- SPDX-License-Identifier: MIT
-- For receivers of webhooks and programs that Postern runs, in their own SQLite
-- file (3.35 or newer). README.md explains it.

CREATE TABLE IF NOT EXISTS postern_handled (
	handler TEXT NOT NULL,
	message_id TEXT NOT NULL,
	fence INTEGER NOT NULL,             -- the highest that was seen
	copies INTEGER NOT NULL DEFAULT 0,  -- calls after the first
	handled_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
	PRIMARY KEY (handler, message_id)
);
