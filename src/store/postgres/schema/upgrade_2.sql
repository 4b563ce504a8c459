-- Changes the tables of version 1 to those of version 2. All functions but
-- those of 1_tables.sql are created again after it.

-- IF NOT EXISTS: some schemas of version 1 had it.
CREATE TABLE IF NOT EXISTS @rate (
	handler integer PRIMARY KEY,
	width bigint NOT NULL,
	slot bigint NOT NULL,
	counts integer[] NOT NULL
);

-- Pauses with a reason and an end, closed channels.
ALTER TABLE @channel
	ADD COLUMN closed boolean NOT NULL DEFAULT false,
	ADD COLUMN closed_at bigint NOT NULL DEFAULT 0,
	ADD COLUMN closed_reason text,
	ADD COLUMN closed_by text;
CREATE INDEX channel_closed ON @channel (id) WHERE closed;
ALTER TABLE @handler
	ADD COLUMN paused_at bigint NOT NULL DEFAULT 0,
	ADD COLUMN paused_until bigint NOT NULL DEFAULT 0,
	ADD COLUMN pause_reason text,
	ADD COLUMN pause_by text,
	ADD COLUMN dedupe_ms bigint;

CREATE TABLE @marker (
	handler bigint NOT NULL,
	key uuid NOT NULL,
	fence bigint NOT NULL,
	lease_until bigint NOT NULL,
	at bigint NOT NULL,
	PRIMARY KEY (handler, key)
);

CREATE TABLE @node_run (
	node bigint PRIMARY KEY REFERENCES @node ON DELETE CASCADE,
	seq bigint[] NOT NULL,
	handler integer[] NOT NULL,
	fence bigint[] NOT NULL,
	started bigint[] NOT NULL,
	lease bigint[] NOT NULL
);

-- Groups of errors.
ALTER TABLE @open ADD COLUMN error_group bigint, ADD COLUMN breaks integer,
	ADD COLUMN returns integer, ADD COLUMN returned_by bigint;
ALTER TABLE @handler_tally ADD COLUMN returned bigint NOT NULL DEFAULT 0;
ALTER TABLE @node_handler ADD COLUMN idle boolean NOT NULL DEFAULT false;
ALTER TABLE @ledger ADD COLUMN error_group bigint;
CREATE INDEX open_group ON @open (error_group, seq, handler)
	WHERE error_group IS NOT NULL;
CREATE INDEX open_pull ON @open (handler, due_at) WHERE node = -1;
CREATE INDEX ledger_group ON @ledger (error_group, seq, handler)
	WHERE error_group IS NOT NULL;
CREATE TABLE @sample (
	error_group bigint NOT NULL,
	first_at bigint NOT NULL,
	last_at bigint NOT NULL,
	handler integer NOT NULL,
	text text NOT NULL,
	PRIMARY KEY (error_group, handler)
);

CREATE TABLE @cancel (
	seq bigint NOT NULL,
	handler integer NOT NULL,
	fence bigint NOT NULL,
	uncounted boolean NOT NULL,
	reason text,
	PRIMARY KEY (seq, handler)
);

ALTER TABLE @staged ADD time text;
ALTER TABLE @channel ADD first_name text, ADD payload_ms bigint,
	ADD dedupe_ms bigint;
CREATE TABLE @channel_name (
	name text PRIMARY KEY,
	channel integer NOT NULL REFERENCES @channel
);
INSERT INTO @channel_name SELECT name, id FROM @channel;
