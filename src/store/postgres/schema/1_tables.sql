-- The tables of Postern in PostgreSQL.
-- Times are milliseconds since 1970, by the clock of the database.
--
-- What changes often is narrow and lives apart from what does not: a message
-- is written once and never updated, an open delivery is a small row that is
-- deleted when it ends and appended to a ledger.

-- version: of these tables. hash_key: the secret of the hashes in seen.
CREATE TABLE @meta (
	name text PRIMARY KEY,
	value bytea NOT NULL
);

-- The only clock that anything is judged by.
CREATE FUNCTION @now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
	$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- Message numbers are handed out in blocks, so that a node knows the numbers
-- of what it writes before it writes it.
CREATE SEQUENCE @message_seq INCREMENT BY 1000 MINVALUE 1 START 1;

-- max_size: the most bytes that a body may have.
CREATE TABLE @channel (
	id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name text NOT NULL UNIQUE,
	max_size bigint NOT NULL
);

-- What was counted of a channel: summed up now and then. Appended, so that
-- nodes do not wait for each other.
CREATE TABLE @channel_tally (
	channel integer NOT NULL,
	accepted bigint NOT NULL DEFAULT 0,
	duplicates bigint NOT NULL DEFAULT 0,
	conflicts bigint NOT NULL DEFAULT 0,
	dropped bigint NOT NULL DEFAULT 0
);

-- owner: itself, or the handler this one is an alias of. key: the one it was
-- last enrolled by.
CREATE TABLE @handler (
	id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	owner integer NOT NULL,
	key text NOT NULL,
	paused boolean NOT NULL DEFAULT false,
	in_process boolean NOT NULL DEFAULT false,
	max_crashes integer NOT NULL DEFAULT 0
);
CREATE INDEX handler_owner ON @handler (owner);
-- Those that an accept must not take as they are: there are seldom any.
CREATE INDEX handler_special ON @handler (id) WHERE owner <> id OR paused;

-- Deliveries that ended well, as channel_tally.
CREATE TABLE @handler_tally (
	handler integer NOT NULL,
	done bigint NOT NULL DEFAULT 0,
	discarded bigint NOT NULL DEFAULT 0
);

-- Every key a handler ever had.
CREATE TABLE @handler_key (
	key text PRIMARY KEY,
	handler integer NOT NULL REFERENCES @handler
);

-- The nodes that are there, and what they register. host, pid: where it is, for
-- people. works: it leases, under the lock of this name or (NULL) without one;
-- all that do so at a time do it under the same. round: what it sent in an
-- earlier one and was not carried out in it never will be.
CREATE TABLE @node (
	node bigint PRIMARY KEY,
	host text NOT NULL,
	pid integer NOT NULL,
	works boolean NOT NULL DEFAULT false,
	lock_name text,
	round bigint NOT NULL DEFAULT 0
);
-- Until when a node lives unless it renews itself (NULL: until it ends).
-- late_since: when another node first found that it is late. A table of its own:
-- a renewal must not wait for any other transaction of the node, whose client
-- may have fallen silent.
CREATE TABLE @node_term (
	node bigint PRIMARY KEY REFERENCES @node ON DELETE CASCADE,
	renewed_at bigint NOT NULL,
	lives_until bigint,
	late_since bigint
);
-- sleeps: the node's last claim left nothing that is due, so it wants a
-- notification of new work. rests: the same for staged messages.
CREATE TABLE @node_sleep (
	node bigint PRIMARY KEY REFERENCES @node ON DELETE CASCADE,
	sleeps boolean NOT NULL DEFAULT true,
	rests boolean NOT NULL DEFAULT true
);
-- Nodes that were found gone and whose leases are not all taken back yet.
CREATE TABLE @gone (
	node bigint PRIMARY KEY
);
CREATE TABLE @node_handler (
	node bigint NOT NULL REFERENCES @node ON DELETE CASCADE,
	handler integer NOT NULL,
	PRIMARY KEY (node, handler)
);
-- The channels that a node accepts messages for, staged ones included.
CREATE TABLE @node_channel (
	node bigint NOT NULL REFERENCES @node ON DELETE CASCADE,
	channel integer NOT NULL,
	PRIMARY KEY (node, channel)
);

-- node: who holds it, 0 for nobody. fence: raised whenever another takes it.
-- late_since: when another node first found that its term is over.
CREATE TABLE @lock (
	name text PRIMARY KEY,
	node bigint NOT NULL,
	fence bigint NOT NULL,
	renewed_at bigint NOT NULL,
	held_until bigint NOT NULL,
	late_since bigint
);

-- source: NULL if it is the channel's name. transport: NULL for 'api'.
-- headers: name, zero byte, value, zero byte, …
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

-- The memory of what was seen, which may outlive the messages. The key is 8
-- bytes of the hash of the id, then 16 of the hash of channel, scope, source
-- and id. digest: of the body.
CREATE TABLE @seen (
	k0 bigint NOT NULL,
	k1 bigint NOT NULL,
	k2 bigint NOT NULL,
	seq bigint NOT NULL,
	at bigint NOT NULL,
	digest uuid NOT NULL,
	channel integer NOT NULL,
	PRIMARY KEY (k0, k1, k2)
);

-- Deliveries that are pending (node IS NULL) or leased, and since when.
-- suspect: the group of deliveries one of which may have taken its process
-- down, 0 for none; solo: leased alone, so that its loss is a crash.
-- order_hash: for channels that keep an order.
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

-- Deliveries that have ended. state: 3 done, 4 poisoned, 5 discarded.
-- handler: 0 for a parked message that was discarded. duration: of the last
-- run in ms, NULL if it was not run.
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
	PRIMARY KEY (seq, handler)
);
CREATE INDEX ledger_not_done ON @ledger (state, seq) WHERE state <> 3;

-- The last runs of a delivery that did not simply end as done.
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

-- Messages that nobody wanted when they came.
CREATE TABLE @parked (
	seq bigint PRIMARY KEY
);

-- Messages that came more than once, with the same or another body.
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

-- A row is here while a transaction of handlers is under way; it must be gone
-- when the transaction commits. So a handler that commits by itself fails, and
-- nothing of what it wrote stays. SET CONSTRAINTS ALL IMMEDIATE, which a handler
-- may say, asks early: then the question is put again. What asks for the answer
-- to that, too, before the next command comes, is the commit.
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
