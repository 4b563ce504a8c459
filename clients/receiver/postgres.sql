-- SPDX-License-Identifier: MIT
-- For receivers of webhooks and programs that Postern runs, in their own
-- PostgreSQL database: psql -f postgres.sql, once, in the schema of your tables.
-- README.md explains it.

CREATE TABLE IF NOT EXISTS postern_handled (
	handler text NOT NULL,
	message_id text NOT NULL,
	fence bigint NOT NULL,               -- the highest that was seen
	copies bigint NOT NULL DEFAULT 0,    -- calls after the first
	handled_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (handler, message_id)
);

-- To remove what is old.
CREATE INDEX IF NOT EXISTS postern_handled_at ON postern_handled (handled_at);

-- The first statement of your transaction. Returns
--   run     handle the message and commit
--   done    it was handled and committed before: report success
--   fenced  so it was, and by a later attempt than this one, whose result no
--           longer counts: end
-- While another transaction handles the message the call waits for its end.
CREATE OR REPLACE FUNCTION postern_once(message_id text, handler text, fence bigint)
RETURNS text
LANGUAGE sql
AS $$
	INSERT INTO postern_handled AS h (message_id, handler, fence)
	VALUES ($1, $2, $3)
	ON CONFLICT ON CONSTRAINT postern_handled_pkey DO UPDATE
	SET copies = h.copies + 1, fence = greatest(h.fence, excluded.fence)
	RETURNING CASE
		WHEN h.copies = 0 THEN 'run'
		WHEN h.fence > $3 THEN 'fenced'
		ELSE 'done'
	END
$$;
