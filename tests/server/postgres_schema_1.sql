-- A store of version 1 of the schema, as a node that was killed left it: one
-- message is done, one waits for its third try, one is parked, one is poisoned,
-- one is leased by the node, whose lease does not end for years, and one is
-- staged. Frozen: the upgrade is tested with it.
CREATE SCHEMA postern;
CREATE TABLE postern.meta (
	name text PRIMARY KEY,
	value bytea NOT NULL
);
CREATE FUNCTION postern.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
	$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;
CREATE SEQUENCE postern.message_seq INCREMENT BY 1000 MINVALUE 1 START 1;
CREATE TABLE postern.channel (
	id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name text NOT NULL UNIQUE,
	max_size bigint NOT NULL
);
CREATE TABLE postern.channel_tally (
	channel integer NOT NULL,
	accepted bigint NOT NULL DEFAULT 0,
	duplicates bigint NOT NULL DEFAULT 0,
	conflicts bigint NOT NULL DEFAULT 0,
	dropped bigint NOT NULL DEFAULT 0
);
CREATE TABLE postern.handler (
	id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	owner integer NOT NULL,
	key text NOT NULL,
	paused boolean NOT NULL DEFAULT false,
	in_process boolean NOT NULL DEFAULT false,
	max_crashes integer NOT NULL DEFAULT 0
);
CREATE INDEX handler_owner ON postern.handler (owner);
CREATE INDEX handler_special ON postern.handler (id) WHERE owner <> id OR paused;
CREATE TABLE postern.handler_tally (
	handler integer NOT NULL,
	done bigint NOT NULL DEFAULT 0,
	discarded bigint NOT NULL DEFAULT 0
);
CREATE TABLE postern.handler_key (
	key text PRIMARY KEY,
	handler integer NOT NULL REFERENCES postern.handler
);
CREATE TABLE postern.node (
	node bigint PRIMARY KEY,
	host text NOT NULL,
	pid integer NOT NULL,
	works boolean NOT NULL DEFAULT false,
	lock_name text,
	round bigint NOT NULL DEFAULT 0
);
CREATE TABLE postern.node_term (
	node bigint PRIMARY KEY REFERENCES postern.node ON DELETE CASCADE,
	renewed_at bigint NOT NULL,
	lives_until bigint,
	late_since bigint
);
CREATE TABLE postern.node_sleep (
	node bigint PRIMARY KEY REFERENCES postern.node ON DELETE CASCADE,
	sleeps boolean NOT NULL DEFAULT true,
	rests boolean NOT NULL DEFAULT true
);
CREATE TABLE postern.gone (
	node bigint PRIMARY KEY
);
CREATE TABLE postern.node_handler (
	node bigint NOT NULL REFERENCES postern.node ON DELETE CASCADE,
	handler integer NOT NULL,
	PRIMARY KEY (node, handler)
);
CREATE TABLE postern.node_channel (
	node bigint NOT NULL REFERENCES postern.node ON DELETE CASCADE,
	channel integer NOT NULL,
	PRIMARY KEY (node, channel)
);
CREATE TABLE postern.lock (
	name text PRIMARY KEY,
	node bigint NOT NULL,
	fence bigint NOT NULL,
	renewed_at bigint NOT NULL,
	held_until bigint NOT NULL,
	late_since bigint
);
CREATE TABLE postern.message (
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
CREATE TABLE postern.seen (
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
CREATE TABLE postern.open (
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
CREATE INDEX open_due ON postern.open (handler, due_at, seq)
	WHERE node IS NULL AND suspect = 0;
CREATE INDEX open_suspect ON postern.open (suspect) WHERE suspect > 0;
CREATE TABLE postern.ledger (
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
CREATE INDEX ledger_not_done ON postern.ledger (state, seq) WHERE state <> 3;
CREATE TABLE postern.attempt (
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
CREATE TABLE postern.parked (
	seq bigint PRIMARY KEY
);
CREATE TABLE postern.duplicate (
	seq bigint PRIMARY KEY,
	duplicates bigint NOT NULL,
	duplicate_at bigint NOT NULL,
	conflicts bigint NOT NULL
);
CREATE TABLE postern.conflict (
	seq bigint NOT NULL,
	number integer NOT NULL,
	at bigint NOT NULL,
	body_len bigint NOT NULL,
	transport text,
	PRIMARY KEY (seq, number)
);
CREATE UNLOGGED TABLE postern.pledge (
	id bigint PRIMARY KEY,
	asked timestamptz
);
CREATE FUNCTION postern.pledge_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM 1 FROM postern.pledge WHERE id = NEW.id;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	IF NEW.asked = statement_timestamp() THEN
		RAISE 'handler ended the transaction itself'
			USING ERRCODE = 'invalid_transaction_termination';
	END IF;
	SET CONSTRAINTS postern.pledge_kept DEFERRED;
	UPDATE postern.pledge SET asked = statement_timestamp() WHERE id = NEW.id;
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER pledge_kept AFTER INSERT OR UPDATE ON postern.pledge
	DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION postern.pledge_kept();
CREATE FUNCTION postern.holds_lock_1(p_node bigint, p_lock text, p_lock_fence bigint)
	RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared(hashtext('postern.lock'), hashtext(p_lock));
	PERFORM 1 FROM postern.lock
		WHERE name = p_lock AND node = p_node AND fence = p_lock_fence;
	RETURN FOUND;
END $$;
CREATE FUNCTION postern.holds_1(p_node bigint, p_lock text, p_lock_fence bigint)
	RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared(p_node);
	PERFORM 1 FROM postern.node WHERE node = p_node;
	RETURN FOUND
		AND (p_lock IS NULL OR postern.holds_lock_1(p_node, p_lock, p_lock_fence));
END $$;
CREATE FUNCTION postern.halt_1(p_nodes bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(node), pg_advisory_xact_lock(-node)
		FROM (SELECT unnest(p_nodes) AS node ORDER BY 1 OFFSET 0) AS n;
END $$;
CREATE FUNCTION postern.bell_1() RETURNS text LANGUAGE sql STABLE AS
	$$ SELECT 'postern_' || 'postern.node'::regclass::oid $$;
CREATE FUNCTION postern.wake_1(p_node bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM 1 FROM postern.node_sleep WHERE sleeps AND node <> p_node LIMIT 1;
	IF FOUND THEN
		PERFORM pg_notify(postern.bell_1(), '');
	END IF;
END $$;
CREATE FUNCTION postern.keep_attempts_1(p_seq bigint[], p_handler integer[],
	p_fence bigint[], p_started_at bigint[], p_finished_at bigint[],
	p_outcome text[], p_error text[], p_kept integer)
	RETURNS void LANGUAGE plpgsql
	SET enable_hashjoin = off SET enable_mergejoin = off
	SET enable_material = off
	SET enable_seqscan = off SET jit = off AS $$
BEGIN
	INSERT INTO postern.attempt (seq, handler, fence, started_at, finished_at,
			outcome, error)
		SELECT * FROM unnest(p_seq, p_handler, p_fence, p_started_at,
			p_finished_at, p_outcome, p_error);
	DELETE FROM postern.attempt WHERE ctid = ANY (ARRAY(
		SELECT old.place FROM unnest(p_seq, p_handler) AS u (seq, handler)
		CROSS JOIN LATERAL (SELECT a.ctid AS place FROM postern.attempt a
			WHERE a.seq = u.seq AND a.handler = u.handler
			ORDER BY a.id DESC OFFSET p_kept) AS old));
END $$;
CREATE FUNCTION postern.settle_1(p_node bigint, p_now bigint, p_again boolean,
	p_seq bigint[], p_handler integer[], p_fence bigint[], p_to smallint[],
	p_delay bigint[], p_failures integer[], p_duration bigint[],
	p_lag bigint[], p_outcome text[], p_error text[], p_kept integer)
	RETURNS integer[] LANGUAGE plpgsql
	SET enable_hashjoin = off SET enable_mergejoin = off
	SET enable_material = off
	SET enable_seqscan = off SET jit = off
	SET plan_cache_mode = force_generic_plan AS $$
DECLARE
	v_gone bigint[];
	v_ended integer[];
	v_others integer[] := '{}';
	v_all integer[];
BEGIN
	IF p_to = '{3}' AND cardinality(p_handler) = 1
			AND cardinality(p_fence) = 1 AND cardinality(p_failures) = 1
			AND cardinality(p_duration) = 1 AND cardinality(p_lag) = 1 THEN
		WITH gone AS (
			DELETE FROM postern.open o
			WHERE o.seq = ANY (p_seq) AND o.handler = p_handler[1]
				AND o.fence = p_fence[1] AND o.node = p_node
			RETURNING o.seq, o.starts
		), ended AS (
			INSERT INTO postern.ledger (seq, fence, finished_at, duration, handler,
					failures, starts, crashes, state)
			SELECT seq, p_fence[1], p_now - p_lag[1], p_duration[1],
				p_handler[1], p_failures[1], starts, 0, 3
			FROM gone
		)
		SELECT array_agg(seq) INTO v_gone FROM gone;
		IF v_gone IS NOT NULL THEN
			INSERT INTO postern.handler_tally (handler, done)
				VALUES (p_handler[1], cardinality(v_gone));
		END IF;
		IF cardinality(v_gone) = cardinality(p_seq) THEN
			RETURN NULL;
		END IF;
		SELECT array_agg(n::integer) INTO v_ended
			FROM unnest(p_seq) WITH ORDINALITY AS s (seq, n)
			WHERE seq = ANY (v_gone);
	ELSE
		WITH gone AS (
			DELETE FROM postern.open o USING unnest(p_seq) WITH ORDINALITY AS s (seq, n)
			CROSS JOIN LATERAL (SELECT k.ctid AS place FROM postern.open k
				WHERE k.seq = s.seq
					AND k.handler = coalesce(p_handler[n], p_handler[1])
				OFFSET 0) AS k
			WHERE coalesce(p_to[n], p_to[1]) > 2 AND o.ctid = k.place
				AND o.fence = coalesce(p_fence[n], p_fence[1]) AND o.node = p_node
			RETURNING n, coalesce(p_to[n], p_to[1]) AS state, o.seq, o.handler,
				o.fence, o.starts
		), ended AS (
			INSERT INTO postern.ledger (seq, fence, finished_at, duration, handler,
					failures, starts, crashes, state)
			SELECT seq, fence, p_now - coalesce(p_lag[n], p_lag[1]),
				coalesce(p_duration[n], p_duration[1]), handler,
				coalesce(p_failures[n], p_failures[1]), starts, 0, state
			FROM gone
		), tally AS (
			INSERT INTO postern.handler_tally (handler, done, discarded)
			SELECT handler, count(*) FILTER (WHERE state = 3),
				count(*) FILTER (WHERE state = 5)
			FROM gone WHERE state <> 4 GROUP BY handler
		)
		SELECT array_agg(n::integer) INTO v_ended FROM gone;
	END IF;
	IF cardinality(v_ended) = cardinality(p_seq)
			AND NOT p_to && ARRAY[4, 5]::smallint[] THEN
		RETURN NULL;
	END IF;
	IF p_to && ARRAY[1, 2]::smallint[] THEN
		WITH back AS (
			UPDATE postern.open o SET node = NULL, since = p_now,
				due_at = p_now + CASE kind WHEN 1 THEN s.delay ELSE 0 END,
				failures = CASE kind WHEN 1 THEN s.failures ELSE o.failures END,
				starts = o.starts - CASE kind WHEN 2 THEN 1 ELSE 0 END,
				crashes = 0, suspect = 0, solo = false
			FROM (SELECT seq, coalesce(handler, p_handler[1]) AS handler,
					coalesce(fence, p_fence[1]) AS fence,
					coalesce(kind, p_to[1]) AS kind,
					coalesce(delay, p_delay[1]) AS delay,
					coalesce(failures, p_failures[1]) AS failures, n
				FROM unnest(p_seq, p_handler, p_fence, p_to, p_delay,
					p_failures) WITH ORDINALITY
					AS u (seq, handler, fence, kind, delay, failures, n)) AS s
			CROSS JOIN LATERAL (SELECT k.ctid AS place FROM postern.open k
				WHERE k.seq = s.seq AND k.handler = s.handler OFFSET 0) AS k
			WHERE s.kind < 3 AND o.ctid = k.place
				AND o.fence = s.fence AND o.node = p_node
			RETURNING s.n
		)
		SELECT coalesce(array_agg(n::integer), '{}') INTO v_others FROM back;
	END IF;
	v_all := coalesce(v_ended, '{}') || v_others;
	IF p_to && ARRAY[1, 4, 5]::smallint[] THEN
		PERFORM postern.keep_attempts_1(array_agg(seq),
			array_agg(coalesce(handler, p_handler[1])),
			array_agg(coalesce(fence, p_fence[1])),
			array_agg(p_now - coalesce(lag, p_lag[1])
				- coalesce(duration, p_duration[1])),
			array_agg(p_now - coalesce(lag, p_lag[1])),
			array_agg(outcome), array_agg(error), p_kept)
		FROM unnest(p_seq, p_handler, p_fence, p_to, p_duration, p_lag,
			p_outcome, p_error) WITH ORDINALITY AS u (seq, handler, fence, kind,
			duration, lag, outcome, error, n)
		WHERE coalesce(kind, p_to[1]) IN (1, 4, 5) AND n = ANY (v_all)
		HAVING count(*) > 0;
	END IF;
	IF p_again AND cardinality(v_all) < cardinality(p_seq) THEN
		SELECT v_all || coalesce(array_agg(n::integer), '{}') INTO v_all
			FROM (SELECT seq, coalesce(handler, p_handler[1]) AS handler,
					coalesce(fence, p_fence[1]) AS fence,
					coalesce(kind, p_to[1]) AS kind, n
				FROM unnest(p_seq, p_handler, p_fence, p_to) WITH ORDINALITY
					AS u (seq, handler, fence, kind, n)) AS s
			WHERE EXISTS (SELECT 1 FROM postern.ledger l
					WHERE l.seq = s.seq AND l.handler = s.handler
						AND l.fence = s.fence AND l.state = s.kind OFFSET 0)
				OR (s.kind < 3 AND EXISTS (SELECT 1 FROM postern.open o
					WHERE o.seq = s.seq AND o.handler = s.handler
						AND o.fence = s.fence AND o.node IS NULL OFFSET 0)
					AND (s.kind = 2 OR EXISTS (SELECT 1 FROM postern.attempt t
						WHERE t.seq = s.seq AND t.handler = s.handler
							AND t.fence = s.fence OFFSET 0)));
	END IF;
	RETURN v_all;
END $$;
CREATE FUNCTION postern.add_route_1(p_now bigint, p_seq bigint, p_handler integer,
	p_retry boolean)
	RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	v_handler integer;
	v_row record;
BEGIN
	FOR v_handler IN SELECT id FROM postern.handler WHERE owner = p_handler
			ORDER BY id <> p_handler, id LOOP
		SELECT * INTO v_row FROM (
			SELECT 0::smallint AS state, fence, starts FROM postern.open
				WHERE seq = p_seq AND handler = v_handler
			UNION ALL
			SELECT state, fence, starts FROM postern.ledger
				WHERE seq = p_seq AND handler = v_handler) AS d;
		CONTINUE WHEN NOT FOUND;
		IF NOT (p_retry AND v_row.state = 4) THEN
			RETURN NULL;
		END IF;
		DELETE FROM postern.ledger WHERE seq = p_seq AND handler = v_handler
			AND fence = v_row.fence AND state = 4;
		IF NOT FOUND THEN
			RETURN NULL;
		END IF;
		INSERT INTO postern.open (seq, fence, node, due_at, since, suspect, handler,
				failures, starts, crashes, solo)
			VALUES (p_seq, v_row.fence, NULL, p_now, p_now, 0, v_handler, 0,
				v_row.starts, 0, false)
			ON CONFLICT DO NOTHING;
		RETURN CASE WHEN FOUND THEN v_row.fence END;
	END LOOP;
	PERFORM 1 FROM postern.message WHERE seq = p_seq FOR KEY SHARE;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	DELETE FROM postern.parked WHERE seq = p_seq;
	INSERT INTO postern.open (seq, fence, node, due_at, since, suspect, handler,
			failures, starts, crashes, solo)
		VALUES (p_seq, 0, NULL, p_now, p_now, 0, p_handler, 0, 0, 0, false)
		ON CONFLICT DO NOTHING;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	PERFORM 1 FROM postern.ledger WHERE seq = p_seq AND handler = p_handler;
	IF FOUND THEN
		DELETE FROM postern.open WHERE seq = p_seq AND handler = p_handler;
		RETURN NULL;
	END IF;
	RETURN 0;
END $$;
CREATE FUNCTION postern.meet_1(p_node bigint, p_now bigint, p_copies integer[],
	p_routes integer[],
	a_seq bigint[], a_k0 bigint[], a_k1 bigint[], a_k2 bigint[],
	a_digest uuid[], a_channel integer[], a_by_id boolean[], a_id text[],
	a_source text[], a_transport text[], a_body bytea[], r_seq bigint[],
	r_handler integer[],
	r_lease boolean[], r_retry boolean[], p_conflicts_kept integer,
	OUT known integer[], OUT known_seq bigint[], OUT known_same boolean[],
	OUT opened integer[], OUT opened_fence bigint[], OUT opened_as integer[])
	LANGUAGE plpgsql
	SET enable_mergejoin = off SET enable_material = off
	SET enable_seqscan = off SET jit = off AS $$
DECLARE
	v_own bigint[];    -- the numbers that the copies would have had
	v_there boolean[];
	v_strange bigint;
	v_mine boolean;    -- some were written by an earlier try
	v_missing boolean; -- some have no delivery for one of their routes
	v_item record;
	v_fence bigint;
BEGIN
	WITH found AS MATERIALIZED (
		SELECT n, a_seq[n] AS own,
			coalesce(a_channel[n], a_channel[1]) AS channel,
			s.seq AS first, s.digest = a_digest[n] AS same,
			m.seq IS NOT NULL AS there,
			coalesce(a_by_id[n], a_by_id[1]) AND (m.channel, m.id, m.source) IS DISTINCT FROM
				(coalesce(a_channel[n], a_channel[1]), a_id[n],
				CASE cardinality(a_source) WHEN 1 THEN a_source[1]
					ELSE a_source[n] END) AS strange
		FROM unnest(p_copies) AS n
		CROSS JOIN LATERAL (SELECT k.seq, k.digest FROM postern.seen k
			WHERE k.k0 = a_k0[n] AND k.k1 = a_k1[n] AND k.k2 = a_k2[n]
			OFFSET 0) AS s
		LEFT JOIN LATERAL (SELECT k.seq, k.channel, k.id, k.source
			FROM postern.message k WHERE k.seq = s.seq OFFSET 0) AS m ON true
		WHERE NOT (s.seq > a_seq[n] AND s.seq = ANY (a_seq))
		ORDER BY own
	), counted AS (
		INSERT INTO postern.duplicate AS d (seq, duplicates, duplicate_at, conflicts)
		SELECT first, count(*) FILTER (WHERE same),
			CASE WHEN bool_or(same) THEN p_now ELSE 0 END,
			count(*) FILTER (WHERE NOT same)
		FROM found WHERE first <> own GROUP BY first ORDER BY first
		ON CONFLICT (seq) DO UPDATE
		SET duplicates = d.duplicates + excluded.duplicates,
			conflicts = d.conflicts + excluded.conflicts,
			duplicate_at = greatest(d.duplicate_at, excluded.duplicate_at)
	), tally AS (
		INSERT INTO postern.channel_tally (channel, duplicates, conflicts)
		SELECT channel, count(*) FILTER (WHERE same),
			count(*) FILTER (WHERE NOT same)
		FROM found WHERE first <> own GROUP BY channel
	)
	SELECT array_agg(f.n), array_agg(f.first), array_agg(f.same),
			array_agg(f.own), array_agg(f.there),
			min(f.first) FILTER (WHERE f.there AND f.strange),
			bool_or(f.first = f.own),
			EXISTS (SELECT 1 FROM found k
				JOIN unnest(p_routes) AS r ON r_seq[r] = k.own
				WHERE k.first <> k.own AND k.same AND k.there
					AND NOT EXISTS (SELECT 1 FROM postern.open o
						WHERE o.seq = k.first
							AND o.handler = coalesce(r_handler[r], r_handler[1])
						OFFSET 0)
					AND NOT EXISTS (SELECT 1 FROM postern.ledger l
						WHERE l.seq = k.first
							AND l.handler = coalesce(r_handler[r], r_handler[1])
							AND NOT (coalesce(r_retry[r], r_retry[1])
								AND l.state = 4)
						OFFSET 0))
		INTO known, known_seq, known_same, v_own, v_there, v_strange, v_mine,
			v_missing
		FROM found f;
	opened := '{}';
	opened_fence := '{}';
	opened_as := '{}';
	IF known IS NULL THEN
		RETURN;
	END IF;
	IF v_strange IS NOT NULL THEN
		RAISE 'message % does not match its remembered id', v_strange
			USING ERRCODE = 'data_corrupted';
	END IF;
	IF false = ANY (known_same) THEN
		FOR v_item IN
			SELECT k.first, octet_length(a_body[k.n]) AS body_len,
				CASE cardinality(a_transport) WHEN 1 THEN a_transport[1]
					ELSE a_transport[k.n] END AS transport
			FROM unnest(known, known_seq, known_same, v_own)
				AS k (n, first, same, own)
			WHERE NOT k.same ORDER BY k.own
		LOOP
			INSERT INTO postern.conflict (seq, number, at, body_len, transport)
				SELECT v_item.first, count(*) + 1, p_now, v_item.body_len,
					v_item.transport
				FROM postern.conflict WHERE seq = v_item.first
				HAVING count(*) < p_conflicts_kept
				ON CONFLICT DO NOTHING;
		END LOOP;
	END IF;
	IF v_missing THEN
		FOR v_item IN
			SELECT r AS n, k.first,
				coalesce(r_handler[r], r_handler[1]) AS handler,
				coalesce(r_retry[r], r_retry[1]) AS retry
			FROM unnest(known_seq, known_same, v_own, v_there)
				AS k (first, same, own, there)
			JOIN unnest(p_routes) AS r ON r_seq[r] = k.own
			WHERE k.first <> k.own AND k.same AND k.there
			ORDER BY r
		LOOP
			v_fence := postern.add_route_1(p_now, v_item.first, v_item.handler,
				v_item.retry);
			IF v_fence IS NOT NULL THEN
				opened := opened || v_item.n;
				opened_fence := opened_fence || v_fence;
				opened_as := opened_as || v_item.handler;
			END IF;
		END LOOP;
	END IF;
	IF v_mine THEN
		SELECT opened || array_agg(r ORDER BY r),
				opened_fence || array_agg(CASE
					WHEN coalesce(r_lease[r], r_lease[1]) AND o.node = p_node
						AND o.fence = 1 THEN -1::bigint ELSE 0 END ORDER BY r),
				opened_as || array_agg(coalesce(o.handler, r_handler[r],
					r_handler[1]) ORDER BY r)
			INTO opened, opened_fence, opened_as
			FROM unnest(known_seq, v_own) AS k (first, own)
			JOIN unnest(p_routes) AS r ON r_seq[r] = k.own
			LEFT JOIN LATERAL (SELECT d.node, d.fence, d.handler FROM postern.open d
				WHERE d.seq = k.own AND d.handler IN (SELECT h.id
					FROM postern.handler h
					WHERE h.owner = coalesce(r_handler[r], r_handler[1]))
				ORDER BY d.handler LIMIT 1) AS o ON true
			WHERE k.first = k.own;
		UPDATE postern.open o SET node = NULL, since = p_now, due_at = p_now,
				starts = o.starts - 1
			FROM unnest(known_seq, v_own) AS k (first, own)
			WHERE k.first = k.own AND o.seq = k.own AND o.node = p_node
				AND o.fence = 1 AND NOT EXISTS (
					SELECT 1 FROM unnest(opened, opened_as) AS u (r, handler)
					WHERE r_seq[u.r] = o.seq AND u.handler = o.handler);
	END IF;
END $$;
CREATE FUNCTION postern.resolve_routes_1(r_seq bigint[], r_handler integer[],
	r_lease boolean[], OUT stored integer[], OUT leased boolean[])
	LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
BEGIN
	SELECT array_agg(CASE WHEN r.n = r.first_n THEN r.owner ELSE 0 END
			ORDER BY r.n), array_agg(r.lease AND NOT r.paused ORDER BY r.n)
		INTO stored, leased
		FROM (SELECT n, o.id AS owner, o.paused,
				coalesce(r_lease[n], r_lease[1]) AS lease,
				min(n) OVER (PARTITION BY r_seq[n], o.id) AS first_n
			FROM generate_series(1, cardinality(r_seq)) AS n
			JOIN postern.handler h ON h.id = coalesce(r_handler[n], r_handler[1])
			JOIN postern.handler o ON o.id = h.owner) AS r;
END $$;
CREATE FUNCTION postern.keep_keys_1(p_now bigint, a_seq bigint[], a_k0 bigint[],
	a_k1 bigint[], a_k2 bigint[], a_digest uuid[], a_channel integer[],
	r_handler integer[], k_message integer[], k_route integer[],
	k_k0 bigint[], k_k1 bigint[], k_k2 bigint[],
	OUT suppressed integer[], OUT suppressed_by bigint[])
	LANGUAGE plpgsql
	SET enable_mergejoin = off SET enable_material = off
	SET enable_seqscan = off SET jit = off AS $$
DECLARE
	v_keys integer[];   -- the positions of the keys that count
	v_first bigint[];   -- the messages that they are remembered for
	v_parked bigint[];
	v_missing boolean;
BEGIN
	SELECT array_agg(i), array_agg(s.seq) INTO v_keys, v_first
		FROM generate_series(1, cardinality(k_route)) AS i
		CROSS JOIN LATERAL (SELECT k.seq, k.digest FROM postern.seen k
			WHERE k.k0 = a_k0[k_message[i]] AND k.k1 = a_k1[k_message[i]]
				AND k.k2 = a_k2[k_message[i]]
			OFFSET 0) AS s
		WHERE coalesce(r_handler[k_route[i]], r_handler[1]) <> 0
			AND (s.seq = a_seq[k_message[i]]
				OR s.digest = a_digest[k_message[i]] AND EXISTS (
					SELECT 1 FROM postern.message m WHERE m.seq = s.seq OFFSET 0));
	WITH wanted AS MATERIALIZED (
		SELECT u.i, u.first, h.id AS scope, k_k2[u.i] # h.id::bigint AS k2,
			s.seq
		FROM unnest(v_keys, v_first) AS u (i, first)
		CROSS JOIN LATERAL (SELECT k.id FROM postern.handler k
			WHERE k.owner = coalesce(r_handler[k_route[u.i]], r_handler[1])
			OFFSET 0) AS h
		LEFT JOIN LATERAL (SELECT k.seq FROM postern.seen k WHERE k.k0 = k_k0[u.i]
			AND k.k1 = k_k1[u.i] AND k.k2 = k_k2[u.i] # h.id::bigint
			OFFSET 0) AS s ON true
	), holder AS (
		SELECT i, coalesce(min(seq) FILTER (WHERE seq = first), min(seq),
			min(first)) AS seq
		FROM wanted GROUP BY i
	)
	INSERT INTO postern.seen (k0, k1, k2, seq, at, digest, channel, scope)
		SELECT k_k0[w.i], k_k1[w.i], w.k2, o.seq, p_now,
			a_digest[k_message[w.i]],
			coalesce(a_channel[k_message[w.i]], a_channel[1]), w.scope
		FROM wanted w JOIN holder o ON o.i = w.i
		WHERE w.seq IS NULL
		ORDER BY k_k0[w.i], k_k1[w.i], w.k2, w.i
		ON CONFLICT DO NOTHING;
	SELECT array_agg(r.route) FILTER (WHERE NOT r.own),
			array_agg(r.holder) FILTER (WHERE NOT r.own),
			array_agg(r.first) FILTER (WHERE NOT r.own), bool_or(r.missing)
		INTO suppressed, suppressed_by, v_parked, v_missing
		FROM (SELECT k_route[u.i] AS route, u.first, min(s.seq) AS holder,
				coalesce(bool_or(s.seq = u.first), false) AS own,
				bool_or(s.seq IS NULL) AS missing
			FROM unnest(v_keys, v_first) AS u (i, first)
			CROSS JOIN LATERAL (SELECT k.id FROM postern.handler k
				WHERE k.owner = coalesce(r_handler[k_route[u.i]], r_handler[1])
				OFFSET 0) AS h
			LEFT JOIN LATERAL (SELECT k.seq FROM postern.seen k
				WHERE k.k0 = k_k0[u.i] AND k.k1 = k_k1[u.i]
					AND k.k2 = k_k2[u.i] # h.id::bigint
				OFFSET 0) AS s ON true
			GROUP BY u.i, u.first) AS r;
	IF v_missing THEN
		RAISE 'a remembered key was removed while a copy came'
			USING ERRCODE = 'serialization_failure';
	END IF;
	DELETE FROM postern.parked WHERE seq = ANY (v_parked);
END $$;
CREATE FUNCTION postern.apply_1(p_node bigint, p_round bigint, p_now bigint,
	p_lock text, p_lock_fence bigint, p_again boolean, p_lock_timeout text,
	s_seq bigint[], s_handler integer[], s_fence bigint[], s_to smallint[],
	s_delay bigint[], s_failures integer[], s_duration bigint[],
	s_lag bigint[], s_outcome text[], s_error text[], p_attempts_kept integer,
	a_seq bigint[], a_by_key integer[], a_k0 bigint[], a_k1 bigint[],
	a_k2 bigint[], a_digest uuid[], a_channel integer[], a_fate smallint[],
	a_by_id boolean[], a_id text[],
	a_source text[], a_type text[], a_subject text[], a_time text[],
	a_content_type text[], a_correlation_id text[], a_traceparent text[],
	a_transport text[], a_headers bytea[], a_body bytea[],
	r_seq bigint[], r_handler integer[], r_lease boolean[], r_retry boolean[],
	p_conflicts_kept integer,
	k_message integer[], k_route integer[], k_k0 bigint[], k_k1 bigint[],
	k_k2 bigint[],
	OUT now bigint, OUT held boolean, OUT settled integer[],
	OUT known integer[], OUT known_seq bigint[], OUT known_same boolean[],
	OUT opened integer[], OUT opened_fence bigint[], OUT opened_as integer[],
	OUT stored integer[], OUT leased boolean[],
	OUT suppressed integer[], OUT suppressed_by bigint[])
	LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
	v_count integer := cardinality(a_seq);
	v_fresh bigint[];   -- the numbers of new messages
	v_new integer[];    -- their positions
	v_copies integer[]; -- the positions of all others
	v_routes integer[]; -- to new messages
	v_again integer[];  -- to all others
	v_channel integer := a_channel[1];
	v_fate smallint := a_fate[1];
	v_source text := CASE cardinality(a_source) WHEN 1 THEN a_source[1] END;
	v_type text := a_type[1];
	v_subject text := CASE cardinality(a_subject) WHEN 1 THEN a_subject[1] END;
	v_time text := CASE cardinality(a_time) WHEN 1 THEN a_time[1] END;
	v_content_type text :=
		CASE cardinality(a_content_type) WHEN 1 THEN a_content_type[1] END;
	v_correlation_id text :=
		CASE cardinality(a_correlation_id) WHEN 1 THEN a_correlation_id[1] END;
	v_traceparent text :=
		CASE cardinality(a_traceparent) WHEN 1 THEN a_traceparent[1] END;
	v_transport text :=
		CASE cardinality(a_transport) WHEN 1 THEN a_transport[1] END;
	v_lease boolean[];
	v_round bigint;
	v_special integer[]; -- handlers that are aliases or paused
BEGIN
	PERFORM set_config('lock_timeout', p_lock_timeout, true);
	PERFORM pg_advisory_xact_lock_shared(-p_node);
	now := coalesce(p_now, postern.now_ms());
	SELECT round INTO v_round FROM postern.node WHERE node = p_node;
	held := FOUND
		AND (p_lock IS NULL OR postern.holds_lock_1(p_node, p_lock, p_lock_fence));
	IF v_round > p_round THEN
		RAISE 'the batch is of an earlier round'
			USING ERRCODE = 'serialization_failure';
	END IF;
	IF cardinality(s_seq) > 0 THEN
		settled := '{}';
		IF held THEN
			settled := postern.settle_1(p_node, now, p_again, s_seq, s_handler,
				s_fence, s_to, s_delay, s_failures, s_duration, s_lag,
				s_outcome, s_error, p_attempts_kept);
		END IF;
	END IF;
	IF s_to && ARRAY[2]::smallint[] OR false = ANY (r_lease)
			OR (cardinality(r_lease) > 0 AND NOT held) THEN
		PERFORM postern.wake_1(p_node);
	END IF;
	IF v_count = 0 THEN
		RETURN;
	END IF;
	PERFORM pg_advisory_xact_lock_shared(hashtext('postern.handler'), 0);
	SELECT array_agg(h.id) INTO v_special
		FROM postern.handler h WHERE h.owner <> h.id OR h.paused;
	IF v_special && r_handler THEN
		SELECT r.stored, r.leased INTO stored, leased
			FROM postern.resolve_routes_1(r_seq, r_handler, r_lease) AS r;
		r_handler := stored;
	END IF;
	WITH s AS (
		INSERT INTO postern.seen (k0, k1, k2, seq, at, digest, channel)
		SELECT a_k0[n], a_k1[n], a_k2[n], a_seq[n], apply_1.now, a_digest[n],
			coalesce(a_channel[n], v_channel)
		FROM unnest(a_by_key) AS n
		WHERE coalesce(a_fate[n], v_fate) <> 2
		ON CONFLICT DO NOTHING RETURNING seq
	)
	SELECT coalesce(array_agg(s.seq), '{}') INTO v_fresh FROM s;
	IF cardinality(v_fresh) = v_count THEN
		v_new := ARRAY(SELECT generate_series(1, v_count));
		v_routes := ARRAY(SELECT generate_series(1, cardinality(r_seq)));
	ELSE
		SELECT array_agg(n) FILTER (WHERE is_new),
				array_agg(n) FILTER (WHERE NOT is_new)
			INTO v_new, v_copies
			FROM (SELECT n, a_seq[n] IN (SELECT unnest(v_fresh)) AS is_new
				FROM generate_series(1, v_count) AS n OFFSET 0) AS u;
		v_routes := v_new;
		v_again := v_copies;
		IF r_seq <> a_seq THEN -- not one route for each message
			SELECT array_agg(n) FILTER (WHERE is_new),
					array_agg(n) FILTER (WHERE NOT is_new)
				INTO v_routes, v_again
				FROM (SELECT n, r_seq[n] IN (SELECT unnest(v_fresh)) AS is_new
					FROM generate_series(1, cardinality(r_seq)) AS n OFFSET 0)
					AS u;
		END IF;
	END IF;
	v_lease := CASE WHEN held THEN coalesce(leased, r_lease)
		ELSE '{false}' END;
	IF 0 = ANY (stored) THEN
		v_routes := ARRAY(SELECT n FROM unnest(v_routes) AS n
			WHERE stored[n] <> 0);
		v_again := ARRAY(SELECT n FROM unnest(v_again) AS n
			WHERE stored[n] <> 0);
	END IF;
	INSERT INTO postern.message (seq, received_at, channel, id, source, type, subject,
			time, content_type, correlation_id, traceparent, transport, headers,
			body)
		SELECT a_seq[n], apply_1.now, coalesce(a_channel[n], v_channel),
			a_id[n], coalesce(a_source[n], v_source),
			coalesce(a_type[n], v_type), coalesce(a_subject[n], v_subject),
			coalesce(a_time[n], v_time),
			coalesce(a_content_type[n], v_content_type),
			coalesce(a_correlation_id[n], v_correlation_id),
			coalesce(a_traceparent[n], v_traceparent),
			coalesce(a_transport[n], v_transport), a_headers[n], a_body[n]
		FROM unnest(v_new) AS n;
	IF cardinality(k_route) > 0 THEN
		SELECT k.suppressed, k.suppressed_by INTO suppressed, suppressed_by
			FROM postern.keep_keys_1(now, a_seq, a_k0, a_k1, a_k2, a_digest, a_channel,
				r_handler, k_message, k_route, k_k0, k_k1, k_k2) AS k;
		v_routes := ARRAY(SELECT n FROM unnest(v_routes) AS n
			WHERE (n = ANY (suppressed)) IS NOT TRUE);
		v_again := ARRAY(SELECT n FROM unnest(v_again) AS n
			WHERE (n = ANY (suppressed)) IS NOT TRUE);
	END IF;
	INSERT INTO postern.open (seq, fence, node, due_at, since, suspect, handler,
			failures, starts, crashes, solo)
		SELECT r_seq[n], coalesce(v_lease[n], v_lease[1])::integer,
			CASE WHEN coalesce(v_lease[n], v_lease[1]) THEN p_node END,
			apply_1.now, apply_1.now, 0, coalesce(r_handler[n], r_handler[1]),
			0, coalesce(v_lease[n], v_lease[1])::integer, 0, false
		FROM unnest(v_routes) AS n;
	IF a_fate && ARRAY[1]::smallint[] THEN
		INSERT INTO postern.parked (seq)
			SELECT a_seq[n] FROM unnest(v_new) AS n
			WHERE coalesce(a_fate[n], v_fate) = 1;
	END IF;
	IF cardinality(a_channel) > 1 THEN
		INSERT INTO postern.channel_tally (channel, accepted)
			SELECT a_channel[n], count(*) FROM unnest(v_new) AS n GROUP BY 1;
	ELSIF cardinality(v_fresh) > 0 THEN
		INSERT INTO postern.channel_tally (channel, accepted)
			VALUES (v_channel, cardinality(v_fresh));
	END IF;
	IF v_copies IS NULL THEN
		RETURN;
	END IF;
	SELECT m.known, m.known_seq, m.known_same, m.opened, m.opened_fence,
			m.opened_as
		INTO known, known_seq, known_same, opened, opened_fence, opened_as
		FROM postern.meet_1(p_node, now, v_copies, v_again, a_seq, a_k0, a_k1, a_k2,
			a_digest, a_channel, a_by_id, a_id, a_source, a_transport, a_body,
			r_seq, r_handler, CASE WHEN held THEN r_lease ELSE '{false}' END, r_retry,
			p_conflicts_kept) AS m;
	IF cardinality(opened) > 0 THEN
		PERFORM postern.wake_1(p_node);
	END IF;
	IF coalesce(cardinality(known), 0) < cardinality(v_copies) AND EXISTS (
		SELECT 1 FROM unnest(v_copies) AS n
			WHERE coalesce(a_fate[n], v_fate) <> 2
				AND n NOT IN (SELECT unnest(apply_1.known))) THEN
		RAISE 'a remembered id was removed while a copy came'
			USING ERRCODE = 'serialization_failure';
	END IF;
	IF a_fate && ARRAY[2]::smallint[] THEN
		INSERT INTO postern.channel_tally (channel, dropped)
			SELECT coalesce(a_channel[n], v_channel), count(*)
			FROM unnest(v_copies) AS n
			WHERE coalesce(a_fate[n], v_fate) = 2
				AND n NOT IN (SELECT unnest(apply_1.known))
			GROUP BY 1;
	END IF;
END $$;
CREATE FUNCTION postern.claim_1(p_node bigint, p_now bigint, p_latest bigint,
	p_lock text, p_lock_fence bigint, p_lock_timeout text, w_handler integer[],
	w_max integer[], w_in_process boolean[], m_handler integer[],
	m_from bigint[], p_max integer, p_bytes bigint)
	RETURNS TABLE (seq bigint, handler integer, fence bigint, failures integer,
		suspicion smallint, want integer, channel integer, id text, source text, type text,
		subject text, "time" text, content_type text, correlation_id text,
		traceparent text, transport text, headers bytea, body bytea,
		received_at bigint, held boolean, now bigint, next_due bigint,
		waiting bigint, xid bigint, reached_handler integer[],
		reached bigint[])
	LANGUAGE plpgsql
	SET enable_hashjoin = off SET enable_mergejoin = off
	SET enable_material = off
	SET enable_seqscan = off SET jit = off
	SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
	v_now bigint := coalesce(p_now, postern.now_ms());
	v_ids integer[]; -- of the wanted handlers that are not paused
	v_wants integer[];
	v_in_process boolean[];
	v_want record;
	v_pick record;
	v_group bigint;
	v_places tid[] := '{}'; -- of the rows to lease
	v_wanted integer[] := '{}';
	v_suspicion smallint := 0;
	v_suspects integer := 0;
	v_waiting bigint := 0;
	v_bytes bigint := 0;
	v_reached bigint[];
	v_low bigint;
	v_high bigint;
	v_due bigint;
	v_next bigint := -1;
BEGIN
	PERFORM set_config('lock_timeout', p_lock_timeout, true);
	IF NOT postern.holds_1(p_node, p_lock, p_lock_fence) THEN
		RETURN QUERY SELECT NULL::bigint, NULL::integer, NULL::bigint,
			NULL::integer, NULL::smallint, NULL::integer, NULL::integer, NULL,
			NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL::bytea,
			NULL::bytea, NULL::bigint, false, v_now, -1::bigint, 0::bigint,
			NULL::bigint, NULL::integer[], NULL::bigint[];
		RETURN;
	END IF;
	SELECT array_agg(i.id ORDER BY i.n, i.last, i.id),
			array_agg(i.n::integer ORDER BY i.n, i.last, i.id),
			array_agg(i.in_process ORDER BY i.n, i.last, i.id)
		INTO v_ids, v_wants, v_in_process
		FROM (SELECT DISTINCT ON (k.id) k.id, k.id = o.id AS last, w.n,
				w.in_process
			FROM unnest(w_handler, w_in_process) WITH ORDINALITY
				AS w (handler, in_process, n)
			JOIN postern.handler h ON h.id = w.handler
			JOIN postern.handler o ON o.id = h.owner
			JOIN postern.handler k ON k.owner = o.id
			WHERE NOT o.paused ORDER BY k.id, w.n) AS i;
	IF v_now < p_latest - 1000 THEN
		UPDATE postern.open o SET due_at = v_now, since = v_now
			WHERE o.node IS NULL AND o.since > v_now;
		m_handler := '{}';
	END IF;
	v_reached := ARRAY(SELECT coalesce(m_from[array_position(m_handler, i)], 0)
		FROM unnest(v_ids) WITH ORDINALITY AS u (i, n) ORDER BY n);
	SELECT coalesce(array_agg(u.id), '{}') INTO v_wanted
		FROM unnest(v_ids, v_in_process) AS u (id, in_process)
		WHERE u.in_process;
	PERFORM 1 FROM postern.open o WHERE o.suspect > 0 LIMIT 1;
	IF FOUND AND cardinality(v_wanted) > 0 THEN
		LOCK TABLE postern.gone IN SHARE ROW EXCLUSIVE MODE;
		SELECT o.suspect INTO v_group FROM postern.open o
			WHERE o.suspect > 0 AND o.node IS NULL
				AND o.handler = ANY (v_wanted)
			ORDER BY o.suspect LIMIT 1;
		IF v_group IS NOT NULL AND p_max > 0 THEN
			SELECT array_agg(o.ctid ORDER BY o.seq, o.handler)
				INTO v_places FROM postern.open o
				WHERE o.suspect > 0 AND o.suspect = v_group
					AND o.node IS NULL AND o.handler = ANY (v_wanted);
			v_suspects := cardinality(v_places);
			v_suspicion := 1;
			IF v_suspects = 1 THEN
				SELECT CASE count(*) WHEN 1 THEN 2 ELSE 1 END INTO v_suspicion
					FROM postern.open o
					WHERE o.suspect > 0 AND o.suspect = v_group;
			END IF;
		END IF;
		SELECT count(*) - v_suspects INTO v_waiting FROM postern.open o
			WHERE o.suspect > 0 AND o.node IS NULL
				AND o.handler = ANY (v_wanted);
	END IF;
	FOR v_want IN
		SELECT w.handler, w.want, w_max[w.want] AS max, w.in_process, w.start,
			w.n
		FROM unnest(v_ids, v_wants, v_in_process, v_reached) WITH ORDINALITY
			AS w (handler, want, in_process, start, n) ORDER BY w.n
	LOOP
		CONTINUE WHEN v_suspects > 0 AND v_want.in_process;
		EXIT WHEN cardinality(v_places) >= p_max OR v_bytes > p_bytes;
		v_want.max := w_max[v_want.want]; -- less what its aliases got
		v_low := v_want.start;
		v_high := v_now;
		LOOP
			FOR v_pick IN
				SELECT o.place, o.due_at, coalesce(m.len, 0) AS len
				FROM (SELECT p.ctid AS place, p.seq, p.due_at FROM postern.open p
					WHERE p.handler = v_want.handler AND p.node IS NULL
						AND p.suspect = 0 AND p.due_at <= v_high
						AND p.due_at >= v_low
					ORDER BY p.due_at, p.seq
					LIMIT least(v_want.max, p_max - cardinality(v_places))
					FOR UPDATE SKIP LOCKED) AS o
				LEFT JOIN LATERAL (SELECT octet_length(k.body) AS len
					FROM postern.message k WHERE k.seq = o.seq OFFSET 0) AS m ON true
				ORDER BY o.due_at, o.seq
			LOOP
				EXIT WHEN v_bytes > p_bytes;
				v_places := v_places || v_pick.place;
				v_bytes := v_bytes + v_pick.len;
				v_want.max := v_want.max - 1;
				w_max[v_want.want] := v_want.max;
				v_reached[v_want.n] := greatest(v_pick.due_at,
					v_reached[v_want.n]);
			END LOOP;
			EXIT WHEN v_low = 0 OR v_want.max = 0 OR v_bytes > p_bytes
				OR cardinality(v_places) >= p_max;
			v_high := least(v_now, v_low - 1);
			v_low := 0;
		END LOOP;
		CONTINUE WHEN v_want.in_process;
		FOR v_pick IN
			SELECT p.ctid AS place FROM postern.open p
			WHERE p.suspect > 0 AND p.handler = v_want.handler
				AND p.node IS NULL AND p.due_at <= v_now
			ORDER BY p.due_at, p.seq
			LIMIT least(v_want.max, p_max - cardinality(v_places))
			FOR UPDATE SKIP LOCKED
		LOOP
			v_places := v_places || v_pick.place;
			w_max[v_want.want] := w_max[v_want.want] - 1;
		END LOOP;
	END LOOP;
	RETURN QUERY
		WITH leased AS (
			UPDATE postern.open o SET node = p_node, since = v_now,
				fence = o.fence + 1, starts = o.starts + 1,
				solo = u.n <= v_suspects AND v_suspicion = 2,
				suspect = CASE WHEN u.n <= v_suspects THEN o.suspect ELSE 0 END
			FROM unnest(v_places) WITH ORDINALITY AS u (place, n)
			WHERE o.ctid = u.place AND o.node IS NULL
			RETURNING u.n, o.seq, o.handler, o.fence, o.failures, o.due_at
		)
		SELECT l.seq, l.handler, l.fence, l.failures,
			CASE WHEN l.n <= v_suspects THEN v_suspicion ELSE 0::smallint END,
			v_wants[array_position(v_ids, l.handler)],
			m.channel, m.id, coalesce(m.source, c.name), m.type, m.subject,
			m.time, m.content_type, m.correlation_id, m.traceparent,
			m.transport, m.headers, m.body, m.received_at, NULL::boolean,
			NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
			NULL::integer[], NULL::bigint[]
		FROM leased l
		LEFT JOIN LATERAL (SELECT * FROM postern.message k WHERE k.seq = l.seq
			OFFSET 0) AS m ON true
		LEFT JOIN postern.channel c ON c.id = m.channel
		ORDER BY l.n > v_suspects, l.due_at, l.seq;
	FOR v_want IN
		SELECT i AS handler,
			coalesce(m_from[array_position(m_handler, i)], 0) AS start
		FROM unnest(v_ids) AS i
	LOOP
		EXIT WHEN v_next = 0;
		SELECT p.due_at INTO v_due FROM postern.open p
			WHERE p.handler = v_want.handler AND p.node IS NULL
				AND p.suspect = 0 AND p.due_at >= v_want.start
			ORDER BY p.due_at LIMIT 1;
		IF v_want.start > 0 AND (v_due IS NULL OR v_due > v_now) THEN
			SELECT p.due_at INTO v_due FROM postern.open p
				WHERE p.handler = v_want.handler AND p.node IS NULL
					AND p.suspect = 0
				ORDER BY p.due_at LIMIT 1;
		END IF;
		SELECT least(v_due, min(p.due_at)) INTO v_due FROM postern.open p
			WHERE p.suspect > 0 AND p.handler = v_want.handler
				AND p.node IS NULL;
		IF v_due IS NOT NULL THEN
			v_due := greatest(v_due - v_now, 0);
			v_next := CASE WHEN v_next < 0 THEN v_due
				ELSE least(v_next, v_due) END;
		END IF;
	END LOOP;
	UPDATE postern.node_sleep n SET sleeps = v_next <> 0
		WHERE n.node = p_node AND n.sleeps <> (v_next <> 0);
	RETURN QUERY SELECT NULL::bigint, NULL::integer, NULL::bigint,
		NULL::integer, NULL::smallint, NULL::integer, NULL::integer, NULL, NULL,
		NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL::bytea, NULL::bytea,
		NULL::bigint, true, v_now, v_next, v_waiting,
		pg_current_xact_id_if_assigned()::text::bigint, v_ids, v_reached;
END $$;
CREATE FUNCTION postern.make_alias_1(p_handler integer, p_owner integer)
	RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 50 LOOP
		BEGIN
			PERFORM set_config('lock_timeout', '200', true);
			PERFORM pg_advisory_xact_lock(hashtext('postern.handler'), 0);
			UPDATE postern.handler SET paused = true WHERE id = p_owner
				AND (SELECT h.paused FROM postern.handler h WHERE h.id = p_handler);
			UPDATE postern.handler SET owner = p_owner WHERE owner = p_handler;
			RETURN;
		EXCEPTION WHEN lock_not_available THEN
			PERFORM pg_sleep(0.1);
		END;
	END LOOP;
	RAISE 'other transactions have been accepting messages for 15 s; try again'
		USING ERRCODE = 'lock_not_available';
END $$;
CREATE FUNCTION postern.enrol_handler_1(p_key text, p_legacy text[],
	p_in_process boolean, p_max_crashes integer)
	RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_id integer;
	v_key text;
	v_known integer;
BEGIN
	SELECT h.owner INTO v_id FROM postern.handler_key k
		JOIN postern.handler h ON h.id = k.handler WHERE k.key = p_key;
	IF v_id IS NULL THEN
		SELECT h.owner INTO v_id
			FROM unnest(p_legacy) WITH ORDINALITY AS l (key, n)
			JOIN postern.handler_key k ON k.key = l.key
			JOIN postern.handler h ON h.id = k.handler
			ORDER BY l.n LIMIT 1;
		IF v_id IS NULL THEN
			INSERT INTO postern.handler (owner, key) VALUES (0, p_key)
				RETURNING id INTO v_id;
			UPDATE postern.handler SET owner = id WHERE id = v_id;
		END IF;
		INSERT INTO postern.handler_key (key, handler) VALUES (p_key, v_id);
	END IF;
	FOREACH v_key IN ARRAY p_legacy LOOP
		SELECT h.owner INTO v_known FROM postern.handler_key k
			JOIN postern.handler h ON h.id = k.handler WHERE k.key = v_key;
		IF v_known IS NULL THEN
			INSERT INTO postern.handler_key (key, handler) VALUES (v_key, v_id);
		ELSIF v_known <> v_id THEN
			PERFORM postern.make_alias_1(v_known, v_id);
		END IF;
	END LOOP;
	UPDATE postern.handler SET key = p_key, in_process = p_in_process,
		max_crashes = p_max_crashes WHERE id = v_id;
END $$;
CREATE FUNCTION postern.renew_1(p_node bigint, p_now bigint, p_ttl bigint,
	OUT alive boolean, OUT now bigint) LANGUAGE plpgsql AS $$
BEGIN
	now := coalesce(p_now, postern.now_ms());
	IF p_ttl = 0 THEN
		PERFORM postern.halt_1(ARRAY[p_node]);
		DELETE FROM postern.node WHERE node = p_node;
		alive := FOUND;
		IF alive THEN
			INSERT INTO postern.gone VALUES (p_node) ON CONFLICT DO NOTHING;
		END IF;
	ELSE
		UPDATE postern.node_term SET renewed_at = renew_1.now, late_since = NULL,
			lives_until = least(renew_1.now::numeric + p_ttl,
				9223372036854775807)
			WHERE node = p_node;
		alive := FOUND;
	END IF;
END $$;
CREATE FUNCTION postern.watch_nodes_1(p_node bigint, p_now bigint)
	RETURNS TABLE (node bigint, renewed_at bigint, lease bigint, late boolean,
		long_late boolean, lost boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	v_now bigint := coalesce(p_now, postern.now_ms());
BEGIN
	PERFORM 1 FROM postern.node_term t WHERE t.renewed_at > v_now
		OR t.late_since > v_now
		OR t.lives_until <= v_now AND t.late_since IS NULL;
	IF FOUND THEN
		UPDATE postern.node_term t SET lives_until = t.lives_until - t.renewed_at
				+ v_now, renewed_at = v_now, late_since = NULL
			WHERE t.lives_until IS NOT NULL
				AND greatest(t.renewed_at, t.late_since)
					> coalesce(p_now, postern.now_ms());
		UPDATE postern.node_term t SET late_since = v_now
			WHERE t.lives_until <= v_now AND t.late_since IS NULL
				AND t.node <> p_node;
	END IF;
	RETURN QUERY SELECT t.node, t.renewed_at, t.lives_until - t.renewed_at,
			t.lives_until <= v_now,
			t.lives_until <= v_now
				AND t.late_since + t.lives_until - t.renewed_at <= v_now,
			NULL::boolean
		FROM postern.node_term t WHERE t.lives_until IS NOT NULL;
	RETURN QUERY SELECT NULL::bigint, NULL::bigint, NULL::bigint, NULL::boolean,
		NULL::boolean, EXISTS (SELECT 1 FROM postern.gone);
END $$;
CREATE FUNCTION postern.give_back_1(p_node bigint, p_round bigint, p_now bigint,
	p_lock_timeout text, p_batches boolean, p_seq bigint[], p_handler integer[],
	p_fence bigint[], p_claimed boolean[]) RETURNS void LANGUAGE plpgsql
	SET enable_hashjoin = off SET enable_mergejoin = off
	SET enable_material = off
	SET enable_seqscan = off SET jit = off
	SET plan_cache_mode = force_generic_plan AS $$
DECLARE
	v_now bigint := coalesce(p_now, postern.now_ms());
BEGIN
	PERFORM set_config('lock_timeout', p_lock_timeout, true);
	IF p_batches THEN
		PERFORM pg_advisory_xact_lock(-p_node);
	END IF;
	PERFORM 1 FROM unnest(p_seq, p_handler, p_claimed)
			AS u (seq, handler, claimed)
		CROSS JOIN LATERAL (SELECT k.ctid AS place FROM postern.open k
			WHERE k.seq = u.seq AND (k.handler = u.handler
				OR NOT u.claimed AND k.handler IN (SELECT i.id FROM postern.handler h
					JOIN postern.handler i ON i.owner = h.owner
					WHERE h.id = u.handler))
			OFFSET 0) AS k
		JOIN postern.open o ON o.ctid = k.place
		ORDER BY u.seq, u.handler FOR UPDATE OF o;
	UPDATE postern.node SET round = p_round WHERE node = p_node AND round < p_round;
	IF NOT FOUND THEN
		RETURN;
	END IF;
	UPDATE postern.open o SET node = NULL, since = v_now, due_at = v_now,
		starts = o.starts - 1, solo = false
		FROM unnest(p_seq, p_handler, p_fence, p_claimed)
			AS u (seq, handler, fence, claimed)
		CROSS JOIN LATERAL (SELECT k.ctid AS place FROM postern.open k
			WHERE k.seq = u.seq AND (k.handler = u.handler
				OR NOT u.claimed AND k.handler IN (SELECT i.id FROM postern.handler h
					JOIN postern.handler i ON i.owner = h.owner
					WHERE h.id = u.handler))
			OFFSET 0) AS k
		WHERE o.ctid = k.place AND o.fence = u.fence AND o.node = p_node;
END $$;
CREATE FUNCTION postern.end_transactions_1(p_nodes bigint[])
	RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_terminate_backend(l.pid) FROM pg_locks l
		JOIN unnest(p_nodes) AS n (node) ON l.locktype = 'advisory'
			AND l.objsubid = 1
			AND l.database = (SELECT oid FROM pg_database
				WHERE datname = current_database())
			AND l.classid::bigint = n.node >> 32
			AND l.objid::bigint = n.node & 4294967295
		WHERE l.pid <> pg_backend_pid() AND l.mode = 'ShareLock';
END $$;
CREATE FUNCTION postern.expire_nodes_1(p_now bigint, p_nodes bigint[],
	p_renewed_at bigint[]) RETURNS void LANGUAGE plpgsql
	SET lock_timeout = 250 AS $$
DECLARE
	v_now bigint := coalesce(p_now, postern.now_ms());
	v_nodes bigint[];
BEGIN
	PERFORM postern.end_transactions_1(p_nodes);
	PERFORM postern.halt_1(p_nodes);
	v_nodes := ARRAY(SELECT t.node FROM postern.node_term t
		JOIN unnest(p_nodes, p_renewed_at) AS u (node, renewed_at)
			ON u.node = t.node AND u.renewed_at = t.renewed_at
		WHERE t.lives_until <= v_now ORDER BY t.node FOR UPDATE OF t);
	WITH dead AS (
		DELETE FROM postern.node n WHERE n.node = ANY (v_nodes) RETURNING n.node
	)
	INSERT INTO postern.gone SELECT node FROM dead ON CONFLICT DO NOTHING;
END $$;
CREATE FUNCTION postern.lock_1(p_name text, p_node bigint, p_now bigint,
	p_ttl bigint, p_silent bigint, OUT fence bigint, OUT renewed_at bigint,
	OUT term bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	v_now bigint := coalesce(p_now, postern.now_ms());
	v_until bigint := least(v_now::numeric + p_ttl, 9223372036854775807);
	v_fence bigint;
BEGIN
	UPDATE postern.lock l SET renewed_at = v_now, held_until = v_until,
		late_since = NULL
		WHERE l.name = p_name AND l.node = p_node RETURNING l.fence INTO v_fence;
	IF NOT FOUND THEN
		INSERT INTO postern.lock AS l VALUES (p_name, p_node, 1, v_now, v_until)
			ON CONFLICT DO NOTHING RETURNING l.fence INTO v_fence;
	END IF;
	IF NOT FOUND THEN
		v_fence := postern.take_over_lock_1(p_name, p_node, p_now, p_ttl, p_silent);
	END IF;
	SELECT l.renewed_at, l.held_until - l.renewed_at INTO renewed_at, term
		FROM postern.lock l WHERE l.name = p_name;
	fence := v_fence;
END $$;
CREATE FUNCTION postern.take_over_lock_1(p_name text, p_node bigint, p_now bigint,
	p_ttl bigint, p_silent bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	v_now bigint := coalesce(p_now, postern.now_ms());
	v_lock record;
	v_fence bigint;
BEGIN
	UPDATE postern.lock SET held_until = held_until - renewed_at + v_now,
		renewed_at = v_now, late_since = NULL
		WHERE name = p_name AND greatest(renewed_at, late_since)
			> coalesce(p_now, postern.now_ms());
	UPDATE postern.lock SET late_since = v_now
		WHERE name = p_name AND node <> 0 AND held_until <= v_now
			AND late_since IS NULL;
	SELECT * INTO v_lock FROM postern.lock WHERE name = p_name
		AND (node = 0 OR held_until <= v_now AND (renewed_at = p_silent
			OR late_since + held_until - renewed_at <= v_now));
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	PERFORM 1 FROM postern.node_term WHERE node = v_lock.node
		AND (lives_until IS NULL OR lives_until > v_now);
	IF NOT FOUND AND v_lock.node <> 0 THEN
		PERFORM postern.end_transactions_1(ARRAY[v_lock.node]);
	END IF;
	BEGIN
		PERFORM set_config('lock_timeout',
			least(greatest(p_ttl / 4, 10), 5000)::text, true);
		PERFORM pg_advisory_xact_lock(hashtext('postern.lock'), hashtext(p_name));
	EXCEPTION WHEN lock_not_available THEN
		RETURN NULL;
	END;
	UPDATE postern.lock SET node = p_node, fence = fence + 1, renewed_at = v_now,
		held_until = least(v_now::numeric + p_ttl, 9223372036854775807),
		late_since = NULL
		WHERE name = p_name AND node = v_lock.node
			AND renewed_at = v_lock.renewed_at
		RETURNING fence INTO v_fence;
	RETURN v_fence;
END $$;
CREATE FUNCTION postern.enrol_node_1(p_node bigint, p_now bigint, p_lease bigint,
	p_handlers integer[], p_host text, p_pid integer, p_again boolean)
	RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	v_now bigint := coalesce(p_now, postern.now_ms());
BEGIN
	IF p_again THEN
		PERFORM 1 FROM postern.node WHERE node = p_node FOR KEY SHARE;
		IF NOT FOUND THEN
			RETURN NULL;
		END IF;
	END IF;
	INSERT INTO postern.node (node, host, pid) VALUES (p_node, p_host, p_pid)
		ON CONFLICT DO NOTHING;
	IF NOT p_again THEN -- or a renewal would wait for this transaction
		INSERT INTO postern.node_term (node, renewed_at, lives_until)
			VALUES (p_node, v_now, v_now + p_lease)
			ON CONFLICT (node) DO UPDATE SET renewed_at = v_now,
				lives_until = v_now + p_lease, late_since = NULL;
	END IF;
	INSERT INTO postern.node_sleep (node) VALUES (p_node) ON CONFLICT DO NOTHING;
	DELETE FROM postern.node_handler WHERE node = p_node;
	INSERT INTO postern.node_handler (node, handler)
		SELECT p_node, unnest(p_handlers);
	RETURN v_now;
END $$;
CREATE FUNCTION postern.engage_1(p_node bigint, p_lock text,
	OUT alive boolean, OUT other bigint, OUT other_host text,
	OUT other_pid integer, OUT other_lock text)
	LANGUAGE plpgsql SET lock_timeout = 250 AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(hashtext('postern.node'), 1);
	SELECT n.node, n.host, n.pid, n.lock_name
		INTO other, other_host, other_pid, other_lock FROM postern.node n
		WHERE n.works AND n.lock_name IS DISTINCT FROM p_lock
			AND n.node <> p_node
		ORDER BY n.node LIMIT 1;
	IF FOUND THEN
		alive := true;
		RETURN;
	END IF;
	UPDATE postern.node SET works = true, lock_name = p_lock WHERE node = p_node;
	alive := FOUND;
END $$;
CREATE FUNCTION postern.recover_1(p_node bigint, p_now bigint, p_lock text,
	p_lock_fence bigint, p_all boolean, p_max integer, p_kept integer,
	OUT held boolean, OUT released bigint, OUT suspects bigint,
	OUT poisoned bigint, OUT more boolean)
	LANGUAGE plpgsql SET lock_timeout = 250 SET jit = off AS $$
DECLARE
	v_now bigint := coalesce(p_now, postern.now_ms());
	v_lost record;
	v_last bigint;
BEGIN
	released := 0;
	suspects := 0;
	poisoned := 0;
	more := false;
	held := p_lock IS NULL OR postern.holds_lock_1(p_node, p_lock, p_lock_fence);
	IF NOT held THEN
		RETURN;
	END IF;
	LOCK TABLE postern.gone IN SHARE ROW EXCLUSIVE MODE;
	PERFORM 1 FROM postern.gone;
	IF NOT FOUND AND NOT p_all THEN
		RETURN;
	END IF;
	SELECT coalesce(max(suspect), 0) INTO v_last FROM postern.open
		WHERE suspect > 0;
	WITH found AS MATERIALIZED (
		SELECT o.seq, o.handler, o.fence, o.failures, o.starts, o.crashes,
			o.suspect, o.since, w.max_crashes,
			w.in_process AND NOT EXISTS (
				SELECT 1 FROM postern.node n WHERE n.node = o.node) AS guilty,
			o.solo
		FROM postern.open o
		JOIN postern.handler h ON h.id = o.handler
		JOIN postern.handler w ON w.id = h.owner
		WHERE o.node IS NOT NULL AND o.node <> p_node
			AND (p_lock IS NOT NULL
				OR o.node NOT IN (SELECT n.node FROM postern.node n))
		ORDER BY guilty, o.suspect, o.seq, o.handler
		LIMIT p_max + 1
		FOR UPDATE OF o
	), lost AS MATERIALIZED (
		SELECT f.*, guilty AND solo AS crashed,
			guilty AND solo AND crashes + 1 >= max_crashes AS doomed,
			row_number() OVER (PARTITION BY guilty, suspect, guilty AND solo
				ORDER BY seq, handler) AS place,
			count(*) OVER (PARTITION BY guilty, suspect, guilty AND solo)
				AS members
		FROM (SELECT * FROM found
			ORDER BY guilty, suspect, seq, handler LIMIT p_max) AS f
	), plan AS MATERIALIZED (
		SELECT *, CASE WHEN guilty AND NOT doomed THEN v_last + dense_rank()
			OVER (ORDER BY NOT guilty OR doomed, suspect,
				CASE WHEN crashed THEN place
					ELSE (place > (members + 1) / 2)::integer END) ELSE 0 END
			AS new_group
		FROM lost
	), back AS (
		UPDATE postern.open o SET node = NULL, since = v_now, due_at = v_now,
			suspect = p.new_group, solo = false,
			crashes = o.crashes + p.crashed::integer
		FROM plan p
		WHERE o.seq = p.seq AND o.handler = p.handler AND NOT p.doomed
	), closed AS (
		DELETE FROM postern.open o USING plan p
		WHERE o.seq = p.seq AND o.handler = p.handler AND p.doomed
	), ended AS (
		INSERT INTO postern.ledger (seq, fence, finished_at, duration, handler,
				failures, starts, crashes, state)
		SELECT seq, fence, v_now, NULL, handler, failures, starts, crashes + 1,
			4 FROM plan WHERE doomed
	)
	SELECT count(*) FILTER (WHERE new_group = 0 AND NOT doomed) AS released,
			count(*) FILTER (WHERE new_group > 0) AS suspects,
			count(*) FILTER (WHERE doomed) AS poisoned,
			(SELECT count(*) > p_max FROM found) AS more,
			array_agg(seq) FILTER (WHERE crashed) AS seqs,
			array_agg(handler) FILTER (WHERE crashed) AS handlers,
			array_agg(fence) FILTER (WHERE crashed) AS fences,
			array_agg(since) FILTER (WHERE crashed) AS sinces
		INTO v_lost FROM plan;
	released := v_lost.released;
	suspects := v_lost.suspects;
	poisoned := v_lost.poisoned;
	more := v_lost.more;
	IF v_lost.seqs IS NOT NULL THEN
		PERFORM postern.keep_attempts_1(v_lost.seqs, v_lost.handlers, v_lost.fences,
			v_lost.sinces, array_fill(v_now, ARRAY[cardinality(v_lost.seqs)]),
			array_fill('crash'::text, ARRAY[cardinality(v_lost.seqs)]),
			array_fill('the process ended while this ran alone'::text,
				ARRAY[cardinality(v_lost.seqs)]), p_kept);
	END IF;
	IF NOT more THEN
		DELETE FROM postern.gone;
	END IF;
	IF released + suspects > 0 THEN
		PERFORM postern.wake_1(p_node);
	END IF;
END $$;
CREATE FUNCTION postern.orphans_1(p_node bigint, p_now bigint, p_only text,
	p_poison boolean, p_max integer, p_kept integer)
	RETURNS TABLE (key text, open bigint) LANGUAGE plpgsql SET jit = off AS $$
DECLARE
	v_now bigint := coalesce(p_now, postern.now_ms());
	v_orphans integer[];
	v_dead record;
BEGIN
	IF p_poison THEN
		LOCK TABLE postern.handler IN ROW EXCLUSIVE MODE;
	END IF;
	IF NOT postern.holds_1(p_node, NULL, NULL) THEN
		RETURN;
	END IF;
	SELECT array_agg(h.id) INTO v_orphans FROM postern.handler h
		WHERE h.owner NOT IN (
			SELECT r.owner FROM postern.node_handler n
			JOIN postern.handler r ON r.id = n.handler)
		AND (p_only IS NULL
			OR h.owner IN (SELECT w.id FROM postern.handler w WHERE w.key = p_only));
	IF v_orphans IS NULL THEN
		RETURN;
	END IF;
	RETURN QUERY
		SELECT w.key, sum(c.count)::bigint FROM (
			SELECT o.handler, count(*) FROM postern.open o
				WHERE o.handler = ANY (v_orphans) AND o.node IS NULL
				GROUP BY o.handler
			UNION ALL
			SELECT o.handler, count(*) FROM postern.open o
				WHERE o.handler = ANY (v_orphans) AND o.node IS NOT NULL
					AND o.node NOT IN (SELECT n.node FROM postern.node n)
					AND EXISTS (SELECT 1 FROM postern.gone)
				GROUP BY o.handler) AS c
		JOIN postern.handler h ON h.id = c.handler
		JOIN postern.handler w ON w.id = h.owner
		GROUP BY w.id, w.key ORDER BY w.id;
	IF NOT FOUND OR NOT p_poison THEN
		RETURN;
	END IF;
	WITH found AS MATERIALIZED (
		SELECT o.ctid AS place FROM postern.open o
			WHERE o.handler = ANY (v_orphans) AND o.node IS NULL
			LIMIT p_max FOR UPDATE SKIP LOCKED
	), closed AS (
		DELETE FROM postern.open o USING found f WHERE o.ctid = f.place
		RETURNING o.*
	), ended AS (
		INSERT INTO postern.ledger (seq, fence, finished_at, duration, handler,
				failures, starts, crashes, state)
		SELECT seq, fence, v_now, NULL, handler, failures, starts, crashes, 4
		FROM closed
	)
	SELECT array_agg(seq) AS seqs, array_agg(handler) AS handlers,
			array_agg(fence) AS fences, count(*)::integer AS count
		INTO v_dead FROM closed;
	IF v_dead.count > 0 THEN
		PERFORM postern.keep_attempts_1(v_dead.seqs, v_dead.handlers, v_dead.fences,
			array_fill(v_now, ARRAY[v_dead.count]),
			array_fill(v_now, ARRAY[v_dead.count]),
			array_fill('poison'::text, ARRAY[v_dead.count]),
			array_fill('no handler is registered under its key'::text,
				ARRAY[v_dead.count]), p_kept);
	END IF;
END $$;
CREATE FUNCTION postern.look_away_1() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	v_own text := substr('postern.', 2, length('postern.') - 3); -- no quotes, no dot
	v_item text;
	v_others text := '';
	v_ours text := '';
	v_system text := '';
BEGIN
	IF v_own <> ALL (current_schemas(false)) THEN
		RETURN NULL;
	END IF;
	FOREACH v_item IN ARRAY regexp_split_to_array(
			btrim(current_setting('search_path'), E' \t\r\n\f'),
			'\s*,\s*(?=([^"]*"[^"]*")*[^"]*$)') LOOP
		IF v_item = '"' || v_own || '"' OR lower(v_item) = v_own
				OR current_user = v_own
				AND (v_item = '"$user"' OR lower(v_item) = '$user') THEN
			v_others := v_others || v_system;
			v_ours := v_ours || ', ' || v_item;
			v_system := '';
		ELSIF lower(v_item) IN ('pg_catalog', 'pg_temp', '"pg_catalog"',
				'"pg_temp"') THEN
			v_system := v_system || ', ' || v_item;
		ELSE
			v_others := v_others || v_system || ', ' || v_item;
			v_system := '';
		END IF;
	END LOOP;
	RETURN set_config('search_path',
		substr(v_others || v_ours || v_system, 3), true);
END $$;
CREATE FUNCTION postern.begin_units_1(p_node bigint, p_lock text,
	p_lock_fence bigint, p_pledge bigint, OUT held boolean, OUT xid bigint)
	LANGUAGE plpgsql AS $$
DECLARE
	v_path text;
BEGIN
	held := postern.holds_1(p_node, p_lock, p_lock_fence);
	INSERT INTO postern.pledge (id) VALUES (p_pledge);
	v_path := postern.look_away_1();
	xid := pg_current_xact_id()::text::bigint;
END $$;
CREATE FUNCTION postern.take_unit_1(p_node bigint, p_seq bigint, p_handler integer,
	p_fence bigint) RETURNS integer LANGUAGE plpgsql
	SET enable_seqscan = off AS $$
DECLARE
	v_starts integer;
BEGIN
	DELETE FROM postern.open WHERE seq = p_seq AND handler = p_handler
		AND fence = p_fence AND node = p_node RETURNING starts INTO v_starts;
	RETURN v_starts;
END $$;
CREATE FUNCTION postern.forget_1() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_path text;
BEGIN
	IF current_setting('transaction_read_only')::boolean THEN
		RAISE 'handler made the transaction read-only'
			USING ERRCODE = 'read_only_sql_transaction';
	END IF;
	RESET SESSION AUTHORIZATION;
	RESET ROLE;
	RESET ALL;
	DISCARD TEMP;
	EXECUTE 'CLOSE ALL';
	UNLISTEN *;
	PERFORM pg_advisory_unlock_all();
	v_path := postern.look_away_1();
END $$;
CREATE FUNCTION postern.end_unit_1(p_xid bigint, p_now bigint, p_seq bigint,
	p_handler integer, p_fence bigint, p_state smallint, p_failures integer,
	p_starts integer, p_duration bigint, p_error text, p_kept integer)
	RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_now bigint;
BEGIN
	PERFORM postern.forget_1();
	v_now := coalesce(p_now, postern.now_ms());
	IF pg_current_xact_id()::text::bigint <> p_xid THEN
		RAISE 'handler ended the transaction itself'
			USING ERRCODE = 'invalid_transaction_termination';
	END IF;
	PERFORM 1 FROM postern.open WHERE seq = p_seq AND handler = p_handler;
	IF FOUND THEN
		RAISE 'handler rolled back to before its delivery began'
			USING ERRCODE = 'invalid_transaction_termination';
	END IF;
	INSERT INTO postern.ledger (seq, fence, finished_at, duration, handler, failures,
			starts, crashes, state)
		VALUES (p_seq, p_fence, v_now, p_duration, p_handler, p_failures,
			p_starts, 0, p_state);
	INSERT INTO postern.handler_tally (handler, done, discarded)
		VALUES (p_handler, (p_state = 3)::integer, (p_state = 5)::integer);
	IF p_state = 5 THEN
		PERFORM postern.keep_attempts_1(ARRAY[p_seq], ARRAY[p_handler],
			ARRAY[p_fence], ARRAY[v_now - p_duration], ARRAY[v_now],
			ARRAY['discard'], ARRAY[p_error], p_kept);
	END IF;
END $$;
CREATE FUNCTION postern.take_batch_1(p_node bigint, p_now bigint, p_seq bigint[],
	p_handler integer[], p_fence bigint[], p_failures integer[])
	RETURNS bigint LANGUAGE plpgsql
	SET enable_hashjoin = off SET enable_mergejoin = off
	SET enable_material = off
	SET enable_seqscan = off SET jit = off
	SET plan_cache_mode = force_generic_plan AS $$
DECLARE
	v_taken bigint;
BEGIN
	WITH gone AS (
		DELETE FROM postern.open o USING unnest(p_seq, p_handler, p_fence, p_failures)
			AS s (seq, handler, fence, failures)
		CROSS JOIN LATERAL (SELECT k.ctid AS place FROM postern.open k
			WHERE k.seq = s.seq AND k.handler = s.handler OFFSET 0) AS k
		WHERE o.ctid = k.place AND (o.fence, o.node) = (s.fence, p_node)
		RETURNING o.seq, o.fence, o.handler, s.failures, o.starts
	), ended AS (
		INSERT INTO postern.ledger (seq, fence, finished_at, duration, handler,
				failures, starts, crashes, state)
		SELECT seq, fence, p_now, 0, handler, failures, starts, 0, 3
		FROM gone
	), tally AS (
		INSERT INTO postern.handler_tally (handler, done)
		SELECT handler, count(*) FROM gone GROUP BY handler
	)
	SELECT count(*) INTO v_taken FROM gone;
	RETURN v_taken;
END $$;
CREATE FUNCTION postern.take_units_1(p_node bigint, p_now bigint, p_lock text,
	p_lock_fence bigint, p_seq bigint[], p_handler integer[],
	p_fence bigint[], p_failures integer[],
	OUT xid bigint, OUT pid integer) LANGUAGE plpgsql
	SET enable_seqscan = off AS $$
DECLARE
	v_now bigint := coalesce(p_now, postern.now_ms());
	v_starts integer;
	v_taken bigint := 0;
	v_path text;
BEGIN
	IF NOT postern.holds_1(p_node, p_lock, p_lock_fence) THEN
		NULL;
	ELSIF cardinality(p_seq) > 1 THEN
		v_taken := postern.take_batch_1(p_node, v_now, p_seq, p_handler, p_fence,
			p_failures);
	ELSE
		DELETE FROM postern.open WHERE seq = p_seq[1] AND handler = p_handler[1]
			AND fence = p_fence[1] AND node = p_node
			RETURNING starts INTO v_starts;
		IF FOUND THEN
			v_taken := 1;
			INSERT INTO postern.ledger (seq, fence, finished_at, duration, handler,
					failures, starts, crashes, state)
				VALUES (p_seq[1], p_fence[1], v_now, 0, p_handler[1],
					p_failures[1], v_starts, 0, 3);
			INSERT INTO postern.handler_tally (handler, done)
				VALUES (p_handler[1], 1);
		END IF;
	END IF;
	IF v_taken <> cardinality(p_seq) THEN
		RAISE 'a lease is lost' USING ERRCODE = 'serialization_failure';
	END IF;
	v_path := postern.look_away_1();
	xid := pg_current_xact_id()::text::bigint;
	pid := pg_backend_pid();
END $$;
CREATE FUNCTION postern.tell_duration_1(p_now bigint, p_seq bigint[],
	p_handler integer[], p_duration bigint) RETURNS void LANGUAGE plpgsql
	SET enable_hashjoin = off SET enable_mergejoin = off
	SET enable_material = off
	SET enable_seqscan = off SET jit = off AS $$
BEGIN
	UPDATE postern.ledger l SET finished_at = coalesce(p_now, postern.now_ms()),
			duration = p_duration
		FROM unnest(p_seq, p_handler) AS u (seq, handler)
		CROSS JOIN LATERAL (SELECT k.ctid AS place FROM postern.ledger k
			WHERE k.seq = u.seq AND k.handler = u.handler OFFSET 0) AS k
		WHERE l.ctid = k.place;
END $$;
CREATE TABLE postern.staged (
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
	refused text
) WITH (
	autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_threshold = 10000,
	autovacuum_vacuum_insert_scale_factor = 0,
	autovacuum_vacuum_insert_threshold = 100000,
	autovacuum_vacuum_cost_delay = 0
);
CREATE FUNCTION postern.check_attribute_1(p_name text, p_text text, p_max integer)
	RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF octet_length(p_text) > p_max THEN
		RAISE 'postern.publish: % is longer than % bytes', p_name, p_max
			USING ERRCODE = 'string_data_right_truncation';
	END IF;
	IF p_text ~ '[\x01-\x1f\x7f-\x9f]' THEN
		RAISE 'postern.publish: % contains a control character', p_name
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
END $$;
CREATE FUNCTION postern.pack_headers_1(p_headers jsonb)
	RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	v_header record;
	v_count integer := 0;
	v_len integer := 0;
	v_packed bytea := '';
BEGIN
	FOR v_header IN SELECT key, value, jsonb_typeof(value) AS kind
		FROM jsonb_each(p_headers)
	LOOP
		IF v_header.kind <> 'string' OR v_header.key = '' THEN
			RAISE 'postern.publish: header "%" has no name or is not a text',
				v_header.key USING ERRCODE = 'invalid_parameter_value';
		END IF;
		PERFORM postern.check_attribute_1('a header''s name', v_header.key, 128);
		PERFORM postern.check_attribute_1('a header''s value', v_header.value #>> '{}',
			8192);
		CONTINUE WHEN lower(v_header.key) IN ('content-type', 'traceparent',
			'correlation-id', 'x-correlation-id');
		v_count := v_count + 1;
		v_len := v_len + octet_length(v_header.key)
			+ octet_length(v_header.value #>> '{}');
		v_packed := v_packed || convert_to(v_header.key, 'UTF8') || '\x00'
			|| convert_to(v_header.value #>> '{}', 'UTF8') || '\x00';
	END LOOP;
	IF v_count > 64 OR v_len > 65536 THEN
		RAISE 'postern.publish: % headers with % bytes, the limits are 64 and '
			'65536', v_count, v_len USING ERRCODE = 'invalid_parameter_value';
	END IF;
	RETURN nullif(v_packed, '');
END $$;
CREATE FUNCTION postern.header_1(p_headers jsonb, p_name text)
	RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT value #>> '{}' FROM jsonb_each(p_headers)
		WHERE lower(key) = p_name LIMIT 1;
$$;
CREATE FUNCTION postern.stage_1(p_channel text, p_type text, p_body bytea, p_id text,
	p_source text, p_subject text, p_headers jsonb, p_content_type text)
	RETURNS text LANGUAGE plpgsql SECURITY DEFINER
	SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_id text := p_id;
	v_channel record;
BEGIN
	SELECT c.id, c.max_size, (SELECT bool_and(rests) FROM postern.node_sleep) AS all_rest
		INTO v_channel FROM postern.channel c WHERE c.name = p_channel;
	IF NOT FOUND THEN
		RAISE 'postern.publish: no channel "%"', p_channel
			USING ERRCODE = 'undefined_object', HINT = 'Nodes enrol the channels '
				'of their configuration when they start.';
	END IF;
	IF p_type IS NULL OR p_body IS NULL THEN
		RAISE 'postern.publish: the type or the body is NULL'
			USING ERRCODE = 'null_value_not_allowed';
	END IF;
	IF octet_length(p_body) > v_channel.max_size THEN
		RAISE 'postern.publish: the body has % bytes, the limit of channel "%" '
			'is %', octet_length(p_body), p_channel, v_channel.max_size
			USING ERRCODE = 'program_limit_exceeded',
				HINT = 'The limit is max_message_size of the channel.';
	END IF;
	IF v_id IS NULL THEN
		v_id := gen_random_uuid()::text;
	ELSIF v_id = '' OR length(v_id) > 200 THEN
		RAISE 'postern.publish: the id has % characters, and 1 to 200 are '
			'allowed', length(v_id) USING ERRCODE = 'invalid_parameter_value';
	ELSE
		PERFORM postern.check_attribute_1('the id', v_id, 800);
	END IF;
	IF p_source = '' THEN
		RAISE 'postern.publish: the source is empty'
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	IF octet_length(p_type) > 1024 OR p_type ~ '[\x01-\x1f\x7f-\x9f]' THEN
		PERFORM postern.check_attribute_1('the type', p_type, 1024); -- raises
	END IF;
	IF coalesce(p_source, p_subject) IS NOT NULL THEN
		PERFORM postern.check_attribute_1('the source', p_source, 1024);
		PERFORM postern.check_attribute_1('the subject', p_subject, 1024);
	END IF;
	IF p_headers IS NULL THEN
		INSERT INTO postern.staged (channel, id, source, type, subject, content_type,
				body)
			VALUES (v_channel.id, v_id, p_source, p_type, p_subject,
				p_content_type, p_body);
	ELSE
		IF jsonb_typeof(p_headers) <> 'object' THEN
			RAISE 'postern.publish: headers are a JSON object of texts'
				USING ERRCODE = 'invalid_parameter_value';
		END IF;
		PERFORM postern.check_attribute_1('the traceparent',
			postern.header_1(p_headers, 'traceparent'), 256);
		PERFORM postern.check_attribute_1('the content type',
			postern.header_1(p_headers, 'content-type'), 1024);
		PERFORM postern.check_attribute_1('the correlation id', coalesce(
			postern.header_1(p_headers, 'correlation-id'),
			postern.header_1(p_headers, 'x-correlation-id')), 1024);
		INSERT INTO postern.staged (channel, id, source, type, subject, content_type,
				correlation_id, traceparent, headers, body)
			VALUES (v_channel.id, v_id, p_source, p_type, p_subject,
				coalesce(postern.header_1(p_headers, 'content-type'), p_content_type),
				coalesce(postern.header_1(p_headers, 'correlation-id'),
					postern.header_1(p_headers, 'x-correlation-id')),
				postern.header_1(p_headers, 'traceparent'),
				postern.pack_headers_1(p_headers), p_body);
	END IF;
	IF v_channel.all_rest THEN
		PERFORM pg_notify(postern.bell_1(), '');
	END IF;
	RETURN v_id;
END $$;
CREATE FUNCTION postern.publish(channel text, type text, body text,
	id text DEFAULT NULL, source text DEFAULT NULL, subject text DEFAULT NULL,
	headers jsonb DEFAULT NULL) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT postern.stage_1($1, $2, convert_to($3, 'UTF8'), $4, $5, $6, $7, NULL);
$$;
CREATE FUNCTION postern.publish(channel text, type text, body jsonb,
	id text DEFAULT NULL, source text DEFAULT NULL, subject text DEFAULT NULL,
	headers jsonb DEFAULT NULL) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT postern.stage_1($1, $2, convert_to($3::text, 'UTF8'), $4, $5, $6, $7,
		'application/json');
$$;
CREATE FUNCTION postern.publish(channel text, type text, body bytea,
	id text DEFAULT NULL, source text DEFAULT NULL, subject text DEFAULT NULL,
	headers jsonb DEFAULT NULL) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT postern.stage_1($1, $2, $3, $4, $5, $6, $7, NULL);
$$;
CREATE FUNCTION postern.look_staged_1(p_node bigint, p_rests boolean)
	RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM 1 FROM postern.node_sleep WHERE node = p_node AND rests <> p_rests;
	IF FOUND THEN
		UPDATE postern.node_sleep SET rests = p_rests WHERE node = p_node;
	END IF;
	PERFORM 1 FROM postern.staged WHERE refused IS NULL LIMIT 1;
	RETURN FOUND;
END $$;
CREATE FUNCTION postern.take_staged_1(p_node bigint, p_channels integer[],
	p_max integer, p_bytes bigint)
	RETURNS TABLE (place tid, channel integer, id text, source text,
		type text, subject text, "time" text, content_type text,
		correlation_id text, traceparent text, transport text, headers bytea,
		body bytea, received_at bigint, xid bigint)
	LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
	PERFORM pg_advisory_xact_lock_shared(p_node);
	RETURN QUERY
		WITH taken AS MATERIALIZED (
			SELECT s.ctid AS place, s.* FROM postern.staged s
			WHERE s.channel = ANY (p_channels) AND s.refused IS NULL
			LIMIT p_max FOR UPDATE SKIP LOCKED
		)
		SELECT t.place, t.channel, t.id, coalesce(t.source, c.name), t.type,
			t.subject, NULL::text, t.content_type, t.correlation_id,
			t.traceparent, 'publish'::text, t.headers, t.body, 0::bigint,
			pg_current_xact_id()::text::bigint
		FROM (SELECT *, sum(octet_length(body)) OVER (ORDER BY n
				ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
			FROM taken) AS t
		JOIN postern.channel c ON c.id = t.channel
		WHERE coalesce(t.before, 0) <= p_bytes ORDER BY t.n;
END $$;
INSERT INTO postern.attempt (id, seq, fence, started_at, finished_at, handler, outcome, error) OVERRIDING SYSTEM VALUE VALUES (1, 1001, 1, 1795027997807, 1795027997808, 2, 'retry', 'no stock');
INSERT INTO postern.attempt (id, seq, fence, started_at, finished_at, handler, outcome, error) OVERRIDING SYSTEM VALUE VALUES (2, 3001, 1, 1795027997881, 1795027997883, 2, 'poison', 'no stock');
INSERT INTO postern.attempt (id, seq, fence, started_at, finished_at, handler, outcome, error) OVERRIDING SYSTEM VALUE VALUES (3, 1001, 2, 1795027999287, 1795027999288, 2, 'retry', 'no stock');
INSERT INTO postern.channel (id, name, max_size) OVERRIDING SYSTEM VALUE VALUES (1, 'orders', 1048576);
INSERT INTO postern.channel_tally (channel, accepted, duplicates, conflicts, dropped) VALUES (1, 1, 0, 0, 0);
INSERT INTO postern.channel_tally (channel, accepted, duplicates, conflicts, dropped) VALUES (1, 1, 0, 0, 0);
INSERT INTO postern.channel_tally (channel, accepted, duplicates, conflicts, dropped) VALUES (1, 1, 0, 0, 0);
INSERT INTO postern.channel_tally (channel, accepted, duplicates, conflicts, dropped) VALUES (1, 1, 0, 0, 0);
INSERT INTO postern.channel_tally (channel, accepted, duplicates, conflicts, dropped) VALUES (1, 1, 0, 0, 0);
INSERT INTO postern.channel_tally (channel, accepted, duplicates, conflicts, dropped) VALUES (1, 0, 1, 0, 0);
INSERT INTO postern.duplicate (seq, duplicates, duplicate_at, conflicts) VALUES (4001, 1, 1795027999930, 0);
INSERT INTO postern.gone (node) VALUES (1534233957271509017);
INSERT INTO postern.handler (id, owner, key, paused, in_process, max_crashes) OVERRIDING SYSTEM VALUE VALUES (1, 1, 'book', false, false, 3);
INSERT INTO postern.handler (id, owner, key, paused, in_process, max_crashes) OVERRIDING SYSTEM VALUE VALUES (2, 2, 'fail', false, false, 3);
INSERT INTO postern.handler_key (key, handler) VALUES ('book', 1);
INSERT INTO postern.handler_key (key, handler) VALUES ('fail', 2);
INSERT INTO postern.handler_tally (handler, done, discarded) VALUES (1, 1, 0);
INSERT INTO postern.ledger (seq, fence, finished_at, duration, handler, failures, starts, crashes, state) VALUES (1, 1, 1795027997750, 100002, 1, 0, 1, 0, 3);
INSERT INTO postern.ledger (seq, fence, finished_at, duration, handler, failures, starts, crashes, state) VALUES (3001, 1, 1795027997883, 2, 2, 1, 1, 0, 4);
INSERT INTO postern.message (seq, received_at, channel, id, source, type, subject, "time", content_type, correlation_id, traceparent, transport, headers, body) VALUES (1, 1795027897720, 1, 'done', 'shop', 'placed', NULL, NULL, NULL, NULL, NULL, 'cli', NULL, '\x7b226e223a20317d');
INSERT INTO postern.message (seq, received_at, channel, id, source, type, subject, "time", content_type, correlation_id, traceparent, transport, headers, body) VALUES (1001, 1795027997775, 1, 'retried', NULL, 'slow', 's', NULL, NULL, NULL, NULL, 'cli', '\x636f6c6f75720072656400', '\x6c617465');
INSERT INTO postern.message (seq, received_at, channel, id, source, type, subject, "time", content_type, correlation_id, traceparent, transport, headers, body) VALUES (2001, 1795027997830, 1, 'parked', NULL, 'unwanted', NULL, NULL, NULL, NULL, NULL, 'cli', NULL, '\x78');
INSERT INTO postern.message (seq, received_at, channel, id, source, type, subject, "time", content_type, correlation_id, traceparent, transport, headers, body) VALUES (3001, 1795027997853, 1, 'poisoned', 'shop', 'broken', NULL, NULL, NULL, NULL, NULL, 'cli', NULL, '\x626164');
INSERT INTO postern.message (seq, received_at, channel, id, source, type, subject, "time", content_type, correlation_id, traceparent, transport, headers, body) VALUES (4001, 1795027998906, 1, 'leased', NULL, 'placed', NULL, NULL, NULL, NULL, NULL, 'cli', NULL, '\x626f6479');
INSERT INTO postern.meta (name, value) VALUES ('hash_key', '\xcc4e4710b3e228594acc7371605573bb');
INSERT INTO postern.meta (name, value) VALUES ('version', '\x31');
INSERT INTO postern.node (node, host, pid, works, lock_name, round) VALUES (277713604216651781, 'vm', 11584, true, NULL, 0);
INSERT INTO postern.node_channel (node, channel) VALUES (277713604216651781, 1);
INSERT INTO postern.node_handler (node, handler) VALUES (277713604216651781, 1);
INSERT INTO postern.node_handler (node, handler) VALUES (277713604216651781, 2);
INSERT INTO postern.node_sleep (node, sleeps, rests) VALUES (277713604216651781, true, false);
INSERT INTO postern.node_term (node, renewed_at, lives_until, late_since) VALUES (277713604216651781, 1795027997909, 4000000000000, NULL);
INSERT INTO postern.open (seq, fence, node, due_at, since, suspect, order_hash, handler, failures, starts, crashes, solo) VALUES (4001, 1, 277713604216651781, 1795027998906, 1795027998907, 0, NULL, 1, 0, 1, 0, false);
INSERT INTO postern.open (seq, fence, node, due_at, since, suspect, order_hash, handler, failures, starts, crashes, solo) VALUES (1001, 2, NULL, 1795028002590, 1795027999288, 0, NULL, 2, 2, 2, 0, false);
INSERT INTO postern.parked (seq) VALUES (2001);
INSERT INTO postern.seen (k0, k1, k2, seq, at, digest, channel, scope) VALUES (6903086225465593401, 8781991244997114150, -9120297951808022882, 1, 1795027897720, '316c187f-fb5f-7aa1-3fbe-30aff4d28648', 1, 0);
INSERT INTO postern.seen (k0, k1, k2, seq, at, digest, channel, scope) VALUES (7026217513461967116, 6928581873700275774, -2228472810727377845, 1001, 1795027997775, 'd54d1245-fa55-2fe9-85af-9bfc0b78e194', 1, 0);
INSERT INTO postern.seen (k0, k1, k2, seq, at, digest, channel, scope) VALUES (1026308196893376066, -5346699576057141880, -6200426720412250678, 2001, 1795027997830, '31efaff1-6213-ae55-5aba-393b37ef73db', 1, 0);
INSERT INTO postern.seen (k0, k1, k2, seq, at, digest, channel, scope) VALUES (2165917614362171246, -3941527222376455212, 1783443101835765033, 3001, 1795027997853, 'bed19efe-774e-5c1b-3f60-1633f3bc5be7', 1, 0);
INSERT INTO postern.seen (k0, k1, k2, seq, at, digest, channel, scope) VALUES (4052259452696757903, 2474268847182049216, -5756545062525008946, 4001, 1795027998906, '5b2f0071-b615-2ea0-f630-6837f61b13ab', 1, 0);
INSERT INTO postern.staged (n, channel, id, source, type, subject, content_type, correlation_id, traceparent, headers, body, refused) OVERRIDING SYSTEM VALUE VALUES (1, 1, 'staged', NULL, 'placed', NULL, 'application/json', NULL, NULL, NULL, '\x7b226e223a20327d', NULL);
SELECT pg_catalog.setval('postern.attempt_id_seq', 3, true);
SELECT pg_catalog.setval('postern.channel_id_seq', 1, true);
SELECT pg_catalog.setval('postern.handler_id_seq', 2, true);
SELECT pg_catalog.setval('postern.message_seq', 5001, true);
SELECT pg_catalog.setval('postern.staged_n_seq', 1, true);
