-- The tables of Postern in PostgreSQL. Times are milliseconds since 1970, by
-- the clock of the database.
--
-- Rows that change often are narrow and separate from those that do not: a
-- message is written once and never updated, an open delivery is a small row
-- that is deleted when it ends and appended to a ledger.

-- version: of these tables. hash_key: the secret of the hashes in seen.
CREATE TABLE @meta (
	name text PRIMARY KEY,
	value bytea NOT NULL
);

-- The only clock of the store.
CREATE FUNCTION @now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
	$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- Message numbers are allocated in blocks, so that a node knows the numbers of
-- its messages before it writes them.
CREATE SEQUENCE @message_seq INCREMENT BY 1000 MINVALUE 1 START 1;

-- name: the present one. max_size: the limit of a body, in bytes. first_name:
-- the one it was created with, NULL if that is still its name. payload_ms,
-- dedupe_ms: its last retention, NULL for none. closed:
-- by an operator; no message is accepted.
CREATE TABLE @channel (
	id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name text NOT NULL UNIQUE,
	max_size bigint NOT NULL,
	closed boolean NOT NULL DEFAULT false,
	closed_at bigint NOT NULL DEFAULT 0,
	closed_reason text,
	closed_by text,
	first_name text,
	payload_ms bigint,
	dedupe_ms bigint
);

-- Every name a channel ever had.
CREATE TABLE @channel_name (
	name text PRIMARY KEY,
	channel integer NOT NULL REFERENCES @channel
);
-- Channels that an accept must be checked against: rarely any.
CREATE INDEX channel_closed ON @channel (id) WHERE closed;

-- Counters of a channel. Rows are appended, so that nodes do not wait for each
-- other, and now and then replaced by their sum.
CREATE TABLE @channel_tally (
	channel integer NOT NULL,
	accepted bigint NOT NULL DEFAULT 0,
	duplicates bigint NOT NULL DEFAULT 0,
	conflicts bigint NOT NULL DEFAULT 0,
	dropped bigint NOT NULL DEFAULT 0
);

-- owner: itself, or the handler this one is an alias of. key: the one of its
-- last enrolment. paused_until: 0 if the pause has no end; once it is past, the
-- handler is not paused any more. dedupe_ms: how long the owner's keys are
-- remembered, NULL: as the channel's retention says.
CREATE TABLE @handler (
	id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	owner integer NOT NULL,
	key text NOT NULL,
	paused boolean NOT NULL DEFAULT false,
	in_process boolean NOT NULL DEFAULT false,
	max_crashes integer NOT NULL DEFAULT 0,
	paused_at bigint NOT NULL DEFAULT 0,
	paused_until bigint NOT NULL DEFAULT 0,
	pause_reason text,
	pause_by text,
	dedupe_ms bigint
);
CREATE INDEX handler_owner ON @handler (owner);
-- Handlers that an accept must resolve first: rarely any.
CREATE INDEX handler_special ON @handler (id) WHERE owner <> id OR paused;

-- Deliveries that ended as done or discarded, and leases that were returned to
-- idle nodes; appended as in channel_tally.
CREATE TABLE @handler_tally (
	handler integer NOT NULL,
	done bigint NOT NULL DEFAULT 0,
	discarded bigint NOT NULL DEFAULT 0,
	returned bigint NOT NULL DEFAULT 0
);

-- The starts that were granted to handlers with a rate, in one slot and the 21
-- before it, the latest first. width: of a slot, in ms.
CREATE TABLE @rate (
	handler integer PRIMARY KEY,
	width bigint NOT NULL,
	slot bigint NOT NULL,
	counts integer[] NOT NULL
);

-- Every key a handler ever had.
CREATE TABLE @handler_key (
	key text PRIMARY KEY,
	handler integer NOT NULL REFERENCES @handler
);

-- The nodes that have not ended or expired. host, pid: its process, for people.
-- works: it leases, under the lock of this name or (NULL) without one; all
-- nodes that lease at the same time use the same. round: statements that the
-- node sent in an earlier round and the server has not executed yet are
-- refused.
CREATE TABLE @node (
	node bigint PRIMARY KEY,
	host text NOT NULL,
	pid integer NOT NULL,
	works boolean NOT NULL DEFAULT false,
	lock_name text,
	round bigint NOT NULL DEFAULT 0
);
-- The lease of a node: lives_until is its end (NULL: it does not expire).
-- late_since: when another node first found it late. A table of its own: a
-- renewal must not wait for another transaction of the node, whose client may
-- be silent.
CREATE TABLE @node_term (
	node bigint PRIMARY KEY REFERENCES @node ON DELETE CASCADE,
	renewed_at bigint NOT NULL,
	lives_until bigint,
	late_since bigint
);
-- sleeps: the node's last claim left nothing that is due, so it needs a
-- notification of new work. rests: the same for staged messages.
CREATE TABLE @node_sleep (
	node bigint PRIMARY KEY REFERENCES @node ON DELETE CASCADE,
	sleeps boolean NOT NULL DEFAULT true,
	rests boolean NOT NULL DEFAULT true
);
-- What a node has been running for longer than a second, when it was renewed
-- last; written if that changed. started: when; lease: how long it may run, in
-- ms, before it is shown as stuck.
CREATE TABLE @node_run (
	node bigint PRIMARY KEY REFERENCES @node ON DELETE CASCADE,
	seq bigint[] NOT NULL,
	handler integer[] NOT NULL,
	fence bigint[] NOT NULL,
	started bigint[] NOT NULL,
	lease bigint[] NOT NULL
);
-- Requests to end the run of a delivery that is leased under this fence. One
-- whose lease has ended has no effect, and is removed by whoever reads. A table
-- of its own: a settlement must find the row of its lease unchanged.
CREATE TABLE @cancel (
	seq bigint NOT NULL,
	handler integer NOT NULL,
	fence bigint NOT NULL,
	uncounted boolean NOT NULL,
	reason text,
	PRIMARY KEY (seq, handler)
);
-- Nodes that ended or expired and whose leases are not all recovered yet.
CREATE TABLE @gone (
	node bigint PRIMARY KEY
);
-- idle: the node would start a delivery of the handler at once; written about
-- once a second, if it changed.
CREATE TABLE @node_handler (
	node bigint NOT NULL REFERENCES @node ON DELETE CASCADE,
	handler integer NOT NULL,
	idle boolean NOT NULL DEFAULT false,
	PRIMARY KEY (node, handler)
);
-- The channels that a node accepts messages for, staged ones included.
CREATE TABLE @node_channel (
	node bigint NOT NULL REFERENCES @node ON DELETE CASCADE,
	channel integer NOT NULL,
	PRIMARY KEY (node, channel)
);

-- node: the owner of the lock, 0 for none. fence: raised by every acquisition
-- by another node. late_since: when another node first found the lock overdue.
CREATE TABLE @lock (
	name text PRIMARY KEY,
	node bigint NOT NULL,
	fence bigint NOT NULL,
	renewed_at bigint NOT NULL,
	held_until bigint NOT NULL,
	late_since bigint
);

-- source: NULL if it is the channel's first name. transport: NULL for 'api'. headers:
-- name, zero byte, value, zero byte, …
CREATE TABLE @message (
	seq bigint PRIMARY KEY,
	received_at bigint NOT NULL,
	channel integer NOT NULL,
	id text NOT NULL,
	source text,
	type text NOT NULL,
	subject text,
	time text,
	content_type text,
	correlation_id text,
	traceparent text,
	transport text,
	headers bytea,
	body bytea NOT NULL
);

-- The dedupe memory, which may outlive the messages. The key is 8 bytes of the
-- hash of the id, then 16 of the hash of channel, source and id, combined with
-- the scope: k2 is that of the scope 0, # scope (src/core/identity.h). scope: 0
-- for the message itself, else the handler that has this key. digest: of the
-- body.
CREATE TABLE @seen (
	k0 bigint NOT NULL,
	k1 bigint NOT NULL,
	k2 bigint NOT NULL,
	seq bigint NOT NULL,
	at bigint NOT NULL,
	digest uuid NOT NULL,
	channel integer NOT NULL,
	scope integer NOT NULL DEFAULT 0,
	PRIMARY KEY (k0, k1, k2)
);

-- Open deliveries: pending (node IS NULL) or leased; since: when that began.
-- node -1: a pull lease, which ends at due_at.
-- suspect: the group of deliveries one of which may have crashed its process, 0
-- for none; solo: leased as the only suspect, so that losing its node is a
-- crash. order_hash: for channels that keep an order. error_group: of the last
-- error (src/core/error_group.h), NULL if none was stored since it was opened.
-- breaks: how often the connection broke under it, NULL for never. returns: how
-- often its lease was returned to idle nodes, NULL for never; returned_by: the
-- node that did that last and does not claim it for a second, NULL once claimed.
CREATE TABLE @open (
	seq bigint NOT NULL,
	fence bigint NOT NULL,
	node bigint,
	due_at bigint NOT NULL,
	since bigint NOT NULL,
	suspect bigint NOT NULL,
	order_hash bigint,
	handler integer NOT NULL,
	failures integer NOT NULL,
	starts integer NOT NULL,
	crashes integer NOT NULL,
	solo boolean NOT NULL,
	error_group bigint,
	breaks integer,
	returns integer,
	returned_by bigint,
	PRIMARY KEY (seq, handler)
) WITH (
	fillfactor = 80,
	autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_threshold = 20000,
	autovacuum_vacuum_insert_scale_factor = 0,
	autovacuum_vacuum_insert_threshold = 100000,
	autovacuum_analyze_scale_factor = 0,
	autovacuum_analyze_threshold = 50000,
	autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX open_due ON @open (handler, due_at, seq)
	WHERE node IS NULL AND suspect = 0;
CREATE INDEX open_suspect ON @open (suspect) WHERE suspect > 0;
CREATE INDEX open_group ON @open (error_group, seq, handler)
	WHERE error_group IS NOT NULL;
CREATE INDEX open_pull ON @open (handler, due_at) WHERE node = -1;

-- Deliveries that have ended. state: 3 done, 4 poisoned, 5 discarded. handler:
-- 0 for a parked message that was discarded. duration: of the last run in ms,
-- NULL if it was not run. error_group: of poisoned ones.
CREATE TABLE @ledger (
	seq bigint NOT NULL,
	fence bigint NOT NULL,
	finished_at bigint NOT NULL,
	duration bigint,
	handler integer NOT NULL,
	failures integer NOT NULL,
	starts integer NOT NULL,
	crashes integer NOT NULL,
	state smallint NOT NULL,
	error_group bigint,
	PRIMARY KEY (seq, handler)
);
CREATE INDEX ledger_not_done ON @ledger (state, seq) WHERE state <> 3;
CREATE INDEX ledger_group ON @ledger (error_group, seq, handler)
	WHERE error_group IS NOT NULL;

-- An example of each group of errors, at most 1,000. Group 0 of a handler: all
-- that exceed this; handler 0: when unused examples were last removed.
CREATE TABLE @sample (
	error_group bigint NOT NULL,
	first_at bigint NOT NULL,
	last_at bigint NOT NULL,
	handler integer NOT NULL,
	text text NOT NULL,
	PRIMARY KEY (error_group, handler)
);

-- The last attempts of a delivery, except one that ended as done.
CREATE TABLE @attempt (
	id bigint GENERATED ALWAYS AS IDENTITY,
	seq bigint NOT NULL,
	fence bigint NOT NULL,
	started_at bigint NOT NULL,
	finished_at bigint NOT NULL,
	handler integer NOT NULL,
	outcome text NOT NULL,
	error text,
	PRIMARY KEY (seq, handler, id)
);

-- Messages for which no handler was configured when they were accepted.
CREATE TABLE @parked (
	seq bigint PRIMARY KEY
);

-- Messages of which copies arrived, with the same or another body.
CREATE TABLE @duplicate (
	seq bigint PRIMARY KEY,
	duplicates bigint NOT NULL,
	duplicate_at bigint NOT NULL,
	conflicts bigint NOT NULL
);
CREATE TABLE @conflict (
	seq bigint NOT NULL,
	number integer NOT NULL,
	at bigint NOT NULL,
	body_len bigint NOT NULL,
	transport text,
	PRIMARY KEY (seq, number)
);

-- What handlers have done, by hashes of the handler's key and of the key with it
-- (src/store/marker.h). lease_until: 0 if it is done, else until when it is
-- running under the fence; 1: nothing yet.
CREATE TABLE @marker (
	handler bigint NOT NULL,
	key uuid NOT NULL,
	fence bigint NOT NULL,
	lease_until bigint NOT NULL,
	at bigint NOT NULL,
	PRIMARY KEY (handler, key)
);

-- A row exists while a transaction of handlers is running; it must be deleted
-- before the transaction commits. So a COMMIT by a handler fails, and what it
-- wrote is rolled back. SET CONSTRAINTS ALL IMMEDIATE, which a handler may
-- execute, fires the trigger early: the trigger then defers itself again. If it
-- fires once more within the same command, that is the commit.
CREATE UNLOGGED TABLE @pledge (
	id bigint PRIMARY KEY,
	asked timestamptz
);
CREATE FUNCTION @pledge_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM 1 FROM @pledge WHERE id = NEW.id;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	IF NEW.asked = statement_timestamp() THEN
		RAISE 'handler ended the transaction itself'
			USING ERRCODE = 'invalid_transaction_termination';
	END IF;
	SET CONSTRAINTS @pledge_kept DEFERRED;
	UPDATE @pledge SET asked = statement_timestamp() WHERE id = NEW.id;
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER pledge_kept AFTER INSERT OR UPDATE ON @pledge
	DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION @pledge_kept();

-- Staging in a transaction: a message that commits, or is rolled back, with the
-- data of its publisher, and is accepted by a node a moment later.
--
-- The table has no key and no index: it has few rows, which are soon removed,
-- and a publisher never waits. Nodes skip rows that another node has locked; a
-- row whose transaction is open is not visible to them, and is found after its
-- commit. channel: its id. headers as in message. refused: why the row cannot
-- be accepted; publish never writes such a row.
CREATE TABLE @staged (
	n bigint GENERATED ALWAYS AS IDENTITY,
	channel integer NOT NULL,
	id text NOT NULL,
	source text,
	type text NOT NULL,
	subject text,
	content_type text,
	correlation_id text,
	traceparent text,
	headers bytea,
	body bytea NOT NULL,
	refused text,
	time text
) WITH (
	autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_threshold = 10000,
	autovacuum_vacuum_insert_scale_factor = 0,
	autovacuum_vacuum_insert_threshold = 100000,
	autovacuum_vacuum_cost_delay = 0
);
