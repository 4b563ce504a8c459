-- The operations of a node, each in one round trip. Each is one statement to
-- its caller and so one transaction; inside, every statement sees what
-- committed before it began, so that a known message can be read after its
-- identity was found in the dedupe memory.
--
-- A function is never changed within a version of the schema. An upgrade to the
-- next version creates all of them again and ends the nodes of the former one.
--
-- Functions that process many rows disable jit: the statistics of a table that
-- was not analyzed yet, or that lost them in a crash, make compiling look
-- cheaper than it is, and then a recovery takes seconds in which all nodes wait
-- for it.
--
-- Plans stay with the session. A table that was small when a plan was made may
-- be large when it is used, so a lookup by key must not scan the table instead.
-- A subquery with OFFSET 0 is planned alone, knowing only the key; the rows it
-- finds are changed by their ctid. A row that another transaction changes
-- between the two has another ctid then and is skipped, as if the lease were
-- lost: so every change of a lease changes its fence or its node, or ends it.
--
-- p_now is NULL except in tests, which have their own clock.

-- The right to write: the node exists, and holds the lock if one is named. That
-- must stay so until the commit, though both may be renewed meanwhile. So a
-- writer acquires shared advisory locks, and a transaction that ends a node or
-- takes over a lock acquires them exclusively: locking the rows themselves
-- would make a multixact for nearly every transaction of a busy node. The
-- advisory locks, always acquired before the rows are read:
--
--   the node id            transactions that wait for their client
--   the node id, negative  batches, which are one statement
--   the name of a lock     both, under that lock

-- Whether the node holds the lock.
CREATE FUNCTION @holds_lock_1(p_node bigint, p_lock text, p_lock_fence bigint)
	RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared(hashtext('@lock'), hashtext(p_lock));
	PERFORM 1 FROM @lock
		WHERE name = p_lock AND node = p_node AND fence = p_lock_fence;
	RETURN FOUND;
END $$;

-- The right of a transaction that waits for its client.
CREATE FUNCTION @holds_1(p_node bigint, p_lock text, p_lock_fence bigint)
	RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared(p_node);
	PERFORM 1 FROM @node WHERE node = p_node;
	RETURN FOUND
		AND (p_lock IS NULL OR @holds_lock_1(p_node, p_lock, p_lock_fence));
END $$;

-- Waits for all running transactions of these nodes, which start none before
-- the end of this transaction.
CREATE FUNCTION @halt_1(p_nodes bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(node), pg_advisory_xact_lock(-node)
		FROM (SELECT unnest(p_nodes) AS node ORDER BY 1 OFFSET 0) AS n;
END $$;

-- The channel on which nodes listen.
CREATE FUNCTION @bell_1() RETURNS text LANGUAGE sql STABLE AS
	$$ SELECT 'postern_' || '@node'::regclass::oid $$;

-- Deliveries became pending: notify the other nodes, if any of them sleeps.
-- Notifications make commits wait for each other, so none is sent if all are
-- awake; a node that is just falling asleep polls again within a second.
CREATE FUNCTION @wake_1(p_node bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM 1 FROM @node_sleep WHERE sleeps AND node <> p_node LIMIT 1;
	IF FOUND THEN
		PERFORM pg_notify(@bell_1(), '');
	END IF;
END $$;

-- Removes the examples that no delivery uses. Locked ones are in use.
CREATE FUNCTION @purge_samples_1(p_now bigint)
	RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
BEGIN
	DELETE FROM @sample WHERE ctid = ANY (ARRAY(
		SELECT s.ctid FROM @sample s WHERE s.handler <> 0
			AND NOT EXISTS (SELECT 1 FROM @open d
				WHERE d.error_group IS NOT NULL
					AND d.error_group = s.error_group OFFSET 0)
			AND NOT EXISTS (SELECT 1 FROM @ledger d
				WHERE d.error_group IS NOT NULL
					AND d.error_group = s.error_group OFFSET 0)
			AND (s.error_group <> 0 OR NOT EXISTS (SELECT 1 FROM @open d
					WHERE d.error_group IS NOT NULL)
				AND NOT EXISTS (SELECT 1 FROM @ledger d
					WHERE d.error_group IS NOT NULL))
		FOR UPDATE OF s SKIP LOCKED));
	INSERT INTO @sample (error_group, handler, first_at, last_at, text)
		VALUES (0, 0, p_now, p_now, '')
		ON CONFLICT (error_group, handler) DO UPDATE SET last_at = p_now;
END $$;

-- Keeps an example of each group of errors, p_max at most. The locks are taken
-- in this order by everyone: rows of used groups without waiting, then the
-- advisory lock of those who add examples.
CREATE FUNCTION @keep_samples_1(p_group bigint[], p_handler integer[],
	p_at bigint[], p_text text[], p_max integer)
	RETURNS void LANGUAGE plpgsql
	SET enable_seqscan = off SET jit = off AS $$
DECLARE
	v_now bigint := (SELECT max(at) FROM unnest(p_at) AS at);
	v_new integer[]; -- positions of groups without an example
	v_rest integer[];
	v_room bigint;
BEGIN
	UPDATE @sample SET last_at = v_now WHERE ctid = ANY (ARRAY(
		SELECT s.ctid FROM @sample s
			JOIN (SELECT DISTINCT g, h FROM unnest(p_group, p_handler)
				AS u (g, h) WHERE g <> 0) AS u
				ON s.error_group = u.g AND s.handler = u.h
			WHERE s.last_at <= v_now - 1000
			FOR UPDATE OF s SKIP LOCKED));
	SELECT array_agg(n) INTO v_new FROM (
		SELECT min(n) AS n FROM unnest(p_group, p_handler) WITH ORDINALITY
				AS u (g, h, n)
			WHERE g <> 0 AND NOT EXISTS (SELECT 1 FROM @sample s
				WHERE s.error_group = g AND s.handler = h)
			GROUP BY g, h) AS fresh;
	IF v_new IS NULL THEN
		RETURN;
	END IF;
	SELECT p_max - count(*) INTO v_room FROM @sample WHERE error_group <> 0;
	IF v_room <= 0 AND NOT EXISTS (SELECT 1 FROM @sample
				WHERE error_group = 0 AND handler = 0
					AND last_at BETWEEN v_now - 59999 AND v_now)
			AND pg_try_advisory_xact_lock(hashtext('@sample'), 0) THEN
		PERFORM @purge_samples_1(v_now);
		SELECT p_max - count(*) INTO v_room FROM @sample
			WHERE error_group <> 0;
	END IF;
	IF v_room > 0 THEN
		PERFORM pg_advisory_xact_lock(hashtext('@sample'), 0);
		SELECT p_max - count(*) INTO v_room FROM @sample
			WHERE error_group <> 0;
		INSERT INTO @sample (error_group, handler, first_at, last_at, text)
			SELECT p_group[n], p_handler[n], p_at[n], p_at[n], p_text[n]
				FROM unnest(v_new[:v_room]) AS n
			ON CONFLICT DO NOTHING;
	END IF;
	v_rest := v_new[greatest(v_room, 0) + 1:];
	IF cardinality(v_rest) > 0 THEN
		UPDATE @sample SET last_at = v_now WHERE ctid = ANY (ARRAY(
			SELECT s.ctid FROM @sample s WHERE s.error_group = 0
				AND s.handler IN (SELECT p_handler[n] FROM unnest(v_rest) AS n)
				AND s.last_at <= v_now - 1000
				FOR UPDATE OF s SKIP LOCKED));
		INSERT INTO @sample (error_group, handler, first_at, last_at, text)
			SELECT DISTINCT ON (p_handler[n]) 0, p_handler[n], p_at[n],
				p_at[n], p_text[n] FROM unnest(v_rest) AS n
				ORDER BY p_handler[n]
			ON CONFLICT DO NOTHING;
	END IF;
END $$;

-- Stores attempts, keeps the last p_kept of each delivery, and an example of
-- each group of errors. p_group: NULL or 0 for none.
CREATE FUNCTION @keep_attempts_1(p_seq bigint[], p_handler integer[],
	p_fence bigint[], p_started_at bigint[], p_finished_at bigint[],
	p_outcome text[], p_error text[], p_group bigint[], p_kept integer)
	RETURNS void LANGUAGE plpgsql
	SET enable_hashjoin = off SET enable_mergejoin = off
	SET enable_material = off
	SET enable_seqscan = off SET jit = off AS $$
BEGIN
	INSERT INTO @attempt (seq, handler, fence, started_at, finished_at,
			outcome, error)
		SELECT * FROM unnest(p_seq, p_handler, p_fence, p_started_at,
			p_finished_at, p_outcome, p_error);
	DELETE FROM @attempt WHERE ctid = ANY (ARRAY(
		SELECT old.place FROM unnest(p_seq, p_handler) AS u (seq, handler)
		CROSS JOIN LATERAL (SELECT a.ctid AS place FROM @attempt a
			WHERE a.seq = u.seq AND a.handler = u.handler
			ORDER BY a.id DESC OFFSET p_kept) AS old));
	PERFORM @keep_samples_1(array_agg(g), array_agg(handler), array_agg(at),
			array_agg(text), 1000)
		FROM unnest(p_group, p_handler, p_finished_at, p_error)
			AS u (g, handler, at, text)
		WHERE g <> 0 AND text IS NOT NULL
		HAVING count(*) > 0;
END $$;

-- Settles leases. p_to: 3 done, 4 poisoned, 5 discarded, 1 pending again, 0
-- pending after the connection broke, 2 returned as if never started, -1 the
-- same, to idle nodes. p_again: an earlier try may have taken effect;
-- deliveries that are in the resulting state count as settled. Returns the
-- positions of the settlements that took effect, NULL for all. Arrays except
-- p_seq and the texts have one item if all values are the same.
CREATE FUNCTION @settle_1(p_node bigint, p_now bigint, p_again boolean,
	p_seq bigint[], p_handler integer[], p_fence bigint[], p_to smallint[],
	p_delay bigint[], p_failures integer[], p_duration bigint[],
	p_lag bigint[], p_outcome text[], p_error text[], p_group bigint[],
	p_kept integer)
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
	-- A pull lease may be extended at the same time, which changes its place.
	IF p_node = -1 THEN
		PERFORM 1 FROM @open o WHERE o.seq = ANY (p_seq) AND o.node = -1
			ORDER BY o.seq, o.handler FOR UPDATE;
	END IF;
	-- All done, of one handler, with the same values: rows need not be matched
	-- with positions.
	IF p_to = '{3}' AND cardinality(p_handler) = 1
			AND cardinality(p_fence) = 1 AND cardinality(p_failures) = 1
			AND cardinality(p_duration) = 1 AND cardinality(p_lag) = 1 THEN
		WITH gone AS (
			DELETE FROM @open o
			WHERE o.seq = ANY (p_seq) AND o.handler = p_handler[1]
				AND o.fence = p_fence[1] AND o.node = p_node
			RETURNING o.seq, o.starts
		), ended AS (
			INSERT INTO @ledger (seq, fence, finished_at, duration, handler,
					failures, starts, crashes, state)
			SELECT seq, p_fence[1], p_now - p_lag[1], p_duration[1],
				p_handler[1], p_failures[1], starts, 0, 3
			FROM gone
		)
		SELECT array_agg(seq) INTO v_gone FROM gone;
		IF v_gone IS NOT NULL THEN
			INSERT INTO @handler_tally (handler, done)
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
			DELETE FROM @open o USING unnest(p_seq) WITH ORDINALITY AS s (seq, n)
			CROSS JOIN LATERAL (SELECT k.ctid AS place FROM @open k
				WHERE k.seq = s.seq
					AND k.handler = coalesce(p_handler[n], p_handler[1])
				OFFSET 0) AS k
			WHERE coalesce(p_to[n], p_to[1]) > 2 AND o.ctid = k.place
				AND o.fence = coalesce(p_fence[n], p_fence[1]) AND o.node = p_node
			RETURNING n, coalesce(p_to[n], p_to[1]) AS state, o.seq, o.handler,
				o.fence, o.starts, o.error_group
		), ended AS (
			INSERT INTO @ledger (seq, fence, finished_at, duration, handler,
					failures, starts, crashes, state, error_group)
			SELECT seq, fence, p_now - coalesce(p_lag[n], p_lag[1]),
				coalesce(p_duration[n], p_duration[1]), handler,
				coalesce(p_failures[n], p_failures[1]), starts, 0, state,
				CASE state WHEN 4 THEN coalesce(p_group[n], error_group) END
			FROM gone
		), tally AS (
			INSERT INTO @handler_tally (handler, done, discarded)
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

	IF p_to && ARRAY[-1, 0, 1, 2]::smallint[] THEN
		WITH back AS (
			UPDATE @open o SET node = NULL, since = p_now,
				due_at = p_now + CASE WHEN started THEN s.delay ELSE 0 END,
				failures = CASE WHEN started THEN s.failures
					ELSE o.failures END,
				starts = o.starts - CASE WHEN started THEN 0 ELSE 1 END,
				crashes = 0, suspect = 0, solo = false,
				error_group = coalesce(CASE WHEN started THEN p_group[s.n] END,
					o.error_group),
				breaks = CASE kind WHEN 0 THEN coalesce(o.breaks, 0) + 1
					ELSE o.breaks END,
				returns = CASE kind WHEN -1 THEN coalesce(o.returns, 0) + 1
					ELSE o.returns END,
				returned_by = CASE kind WHEN -1 THEN p_node END
			FROM (SELECT seq, coalesce(handler, p_handler[1]) AS handler,
					coalesce(fence, p_fence[1]) AS fence,
					coalesce(kind, p_to[1]) AS kind,
					coalesce(kind, p_to[1]) IN (0, 1) AS started,
					coalesce(delay, p_delay[1]) AS delay,
					coalesce(failures, p_failures[1]) AS failures, n
				FROM unnest(p_seq, p_handler, p_fence, p_to, p_delay,
					p_failures) WITH ORDINALITY
					AS u (seq, handler, fence, kind, delay, failures, n)) AS s
			CROSS JOIN LATERAL (SELECT k.ctid AS place FROM @open k
				WHERE k.seq = s.seq AND k.handler = s.handler OFFSET 0) AS k
			WHERE s.kind < 3 AND o.ctid = k.place
				AND o.fence = s.fence AND o.node = p_node
			RETURNING s.n, s.kind, o.handler
		), tally AS (
			INSERT INTO @handler_tally (handler, returned)
			SELECT handler, count(*) FROM back WHERE kind = -1 GROUP BY handler
		)
		SELECT coalesce(array_agg(n::integer), '{}') INTO v_others FROM back;
	END IF;

	v_all := coalesce(v_ended, '{}') || v_others;
	IF p_to && ARRAY[0, 1, 4, 5]::smallint[] THEN
		PERFORM @keep_attempts_1(array_agg(seq),
			array_agg(coalesce(handler, p_handler[1])),
			array_agg(coalesce(fence, p_fence[1])),
			array_agg(p_now - coalesce(lag, p_lag[1])
				- coalesce(duration, p_duration[1])),
			array_agg(p_now - coalesce(lag, p_lag[1])),
			array_agg(outcome), array_agg(error),
			array_agg(CASE WHEN coalesce(kind, p_to[1]) <> 5
				THEN p_group[n] END), p_kept)
		FROM unnest(p_seq, p_handler, p_fence, p_to, p_duration, p_lag,
			p_outcome, p_error) WITH ORDINALITY AS u (seq, handler, fence, kind,
			duration, lag, outcome, error, n)
		WHERE coalesce(kind, p_to[1]) IN (0, 1, 4, 5) AND n = ANY (v_all)
		HAVING count(*) > 0;
	END IF;

	IF p_again AND cardinality(v_all) < cardinality(p_seq) THEN
		SELECT v_all || coalesce(array_agg(n::integer), '{}') INTO v_all
			FROM (SELECT seq, coalesce(handler, p_handler[1]) AS handler,
					coalesce(fence, p_fence[1]) AS fence,
					coalesce(kind, p_to[1]) AS kind, n
				FROM unnest(p_seq, p_handler, p_fence, p_to) WITH ORDINALITY
					AS u (seq, handler, fence, kind, n)) AS s
			WHERE EXISTS (SELECT 1 FROM @ledger l
					WHERE l.seq = s.seq AND l.handler = s.handler
						AND l.fence = s.fence AND l.state = s.kind OFFSET 0)
				OR (s.kind < 3 AND EXISTS (SELECT 1 FROM @open o
					WHERE o.seq = s.seq AND o.handler = s.handler
						AND o.fence = s.fence AND o.node IS NULL OFFSET 0)
					-- A lease that was recovered or returned looks the same,
					-- but has no attempt.
					AND (s.kind IN (-1, 2) OR EXISTS (SELECT 1 FROM @attempt t
						WHERE t.seq = s.seq AND t.handler = s.handler
							AND t.fence = s.fence OFFSET 0)));
	END IF;
	RETURN v_all;
END $$;

-- Makes or reopens the delivery of one route to a message that is known.
-- p_handler: an owner. Returns its fence, NULL if nothing changed. The delivery
-- is never leased: its node would have to read the message first, and the lease
-- would be uncertain if the response is lost.
CREATE FUNCTION @add_route_1(p_now bigint, p_seq bigint, p_handler integer,
	p_retry boolean)
	RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	v_handler integer;
	v_row record;
BEGIN
	-- The handler's own delivery decides, or else that of its first alias that
	-- has one. A delivery may move between the two tables meanwhile, so one
	-- statement reads both.
	FOR v_handler IN SELECT id FROM @handler WHERE owner = p_handler
			ORDER BY id <> p_handler, id LOOP
		SELECT * INTO v_row FROM (
			SELECT 0::smallint AS state, fence, starts FROM @open
				WHERE seq = p_seq AND handler = v_handler
			UNION ALL
			SELECT state, fence, starts FROM @ledger
				WHERE seq = p_seq AND handler = v_handler) AS d;
		CONTINUE WHEN NOT FOUND;
		IF NOT (p_retry AND v_row.state = 4) THEN
			RETURN NULL;
		END IF;
		DELETE FROM @ledger WHERE seq = p_seq AND handler = v_handler
			AND fence = v_row.fence AND state = 4;
		IF NOT FOUND THEN
			RETURN NULL;
		END IF;
		INSERT INTO @open (seq, fence, node, due_at, since, suspect, handler,
				failures, starts, crashes, solo)
			VALUES (p_seq, v_row.fence, NULL, p_now, p_now, 0, v_handler, 0,
				v_row.starts, 0, false)
			ON CONFLICT DO NOTHING;
		RETURN CASE WHEN FOUND THEN v_row.fence END;
	END LOOP;
	-- Keeps the message from being cleaned up meanwhile.
	PERFORM 1 FROM @message WHERE seq = p_seq FOR KEY SHARE;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	-- Before the insert, because unparking locks parked messages before it
	-- opens deliveries.
	DELETE FROM @parked WHERE seq = p_seq;
	INSERT INTO @open (seq, fence, node, due_at, since, suspect, handler,
			failures, starts, crashes, solo)
		VALUES (p_seq, 0, NULL, p_now, p_now, 0, p_handler, 0, 0, 0, false)
		ON CONFLICT DO NOTHING;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	-- A transaction that unparked the message may have made the delivery
	-- before, and it may even have ended since; after the insert no other
	-- transaction can make it.
	PERFORM 1 FROM @ledger WHERE seq = p_seq AND handler = p_handler;
	IF FOUND THEN
		DELETE FROM @open WHERE seq = p_seq AND handler = p_handler;
		RETURN NULL;
	END IF;
	RETURN 0;
END $$;

-- Counts copies of known messages, and makes deliveries that they lack.
-- p_copies: the positions of the copies; p_routes: of their routes. known:
-- positions; known_seq: the number of the first message, which is the copy's
-- own if an earlier try of this batch wrote it; known_same: whether the body is
-- the same. Arrays as in apply_1.
CREATE FUNCTION @meet_1(p_node bigint, p_now bigint, p_copies integer[],
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
	-- In the order of the batch. This statement began after the identities were
	-- found in the dedupe memory, so rows that another transaction committed
	-- meanwhile are visible. It is one statement because the start of a
	-- statement is most of the cost of a copy.
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
		CROSS JOIN LATERAL (SELECT k.seq, k.digest FROM @seen k
			WHERE k.k0 = a_k0[n] AND k.k1 = a_k1[n] AND k.k2 = a_k2[n]
			OFFSET 0) AS s
		LEFT JOIN LATERAL (SELECT k.seq, k.channel, k.id, k.source
			FROM @message k WHERE k.seq = s.seq OFFSET 0) AS m ON true
		-- A dropped message is not a copy of a later one in its batch.
		WHERE NOT (s.seq > a_seq[n] AND s.seq = ANY (a_seq))
		ORDER BY own
	), counted AS (
		INSERT INTO @duplicate AS d (seq, duplicates, duplicate_at, conflicts)
		SELECT first, count(*) FILTER (WHERE same),
			CASE WHEN bool_or(same) THEN p_now ELSE 0 END,
			count(*) FILTER (WHERE NOT same)
		FROM found WHERE first <> own GROUP BY first ORDER BY first
		ON CONFLICT (seq) DO UPDATE
		SET duplicates = d.duplicates + excluded.duplicates,
			conflicts = d.conflicts + excluded.conflicts,
			duplicate_at = greatest(d.duplicate_at, excluded.duplicate_at)
	), tally AS (
		INSERT INTO @channel_tally (channel, duplicates, conflicts)
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
					AND NOT EXISTS (SELECT 1 FROM @open o
						WHERE o.seq = k.first
							AND o.handler = coalesce(r_handler[r], r_handler[1])
						OFFSET 0)
					AND NOT EXISTS (SELECT 1 FROM @ledger l
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
			INSERT INTO @conflict (seq, number, at, body_len, transport)
				SELECT v_item.first, count(*) + 1, p_now, v_item.body_len,
					v_item.transport
				FROM @conflict WHERE seq = v_item.first
				HAVING count(*) < p_conflicts_kept
				ON CONFLICT DO NOTHING;
		END LOOP;
	END IF;

	-- Most copies have a delivery for each of their routes already.
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
			v_fence := @add_route_1(p_now, v_item.first, v_item.handler,
				v_item.retry);
			IF v_fence IS NOT NULL THEN
				opened := opened || v_item.n;
				opened_fence := opened_fence || v_fence;
				opened_as := opened_as || v_item.handler;
			END IF;
		END LOOP;
	END IF;

	-- Routes of messages that an earlier try of this batch has written. One
	-- that was not to be leased may have been claimed meanwhile, and looks the
	-- same. The earlier try may have used an id that is an alias by now, and
	-- may have leased a delivery of a handler that is paused by now.
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
			LEFT JOIN LATERAL (SELECT d.node, d.fence, d.handler FROM @open d
				WHERE d.seq = k.own AND d.handler IN (SELECT h.id
					FROM @handler h
					WHERE h.owner = coalesce(r_handler[r], r_handler[1]))
				ORDER BY d.handler LIMIT 1) AS o ON true
			WHERE k.first = k.own;
		-- Two handlers of the earlier try may be one by now: then one of its
		-- leases is not in the result, and would never be settled.
		UPDATE @open o SET node = NULL, since = p_now, due_at = p_now,
				starts = o.starts - 1
			FROM unnest(known_seq, v_own) AS k (first, own)
			WHERE k.first = k.own AND o.seq = k.own AND o.node = p_node
				AND o.fence = 1 AND NOT EXISTS (
					SELECT 1 FROM unnest(opened, opened_as) AS u (r, handler)
					WHERE r_seq[u.r] = o.seq AND u.handler = o.handler);
	END IF;
END $$;

-- Resolves routes some of whose handlers are aliases or paused: the ids under
-- which deliveries are stored, 0 for a second route to the same handler, and
-- which are leased. Arrays as in apply_1.
CREATE FUNCTION @resolve_routes_1(p_now bigint, r_seq bigint[],
	r_handler integer[], r_lease boolean[], OUT stored integer[], OUT leased boolean[])
	LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
BEGIN
	SELECT array_agg(CASE WHEN r.n = r.first_n THEN r.owner ELSE 0 END
			ORDER BY r.n), array_agg(r.lease AND NOT r.paused ORDER BY r.n)
		INTO stored, leased
		FROM (SELECT n, o.id AS owner, o.paused
					AND (o.paused_until = 0 OR o.paused_until > p_now) AS paused,
				coalesce(r_lease[n], r_lease[1]) AS lease,
				min(n) OVER (PARTITION BY r_seq[n], o.id) AS first_n
			FROM generate_series(1, cardinality(r_seq)) AS n
			JOIN @handler h ON h.id = coalesce(r_handler[n], r_handler[1])
			JOIN @handler o ON o.id = h.owner) AS r;
END $$;

-- Remembers the keys that handlers have of their own, in the scope of each id
-- of the handler, and finds the routes that are suppressed, because their key
-- is remembered for another message; suppressed_by is the first one. Keys of
-- copies are remembered for the first message, if it is stored. Arrays as in
-- apply_1; r_handler: owners, 0 for a route that does not count. a_k0 NULL: the
-- messages are stored under these numbers.
CREATE FUNCTION @keep_keys_1(a_seq bigint[], a_k0 bigint[], a_k1 bigint[],
	a_k2 bigint[], a_digest uuid[], a_channel integer[],
	r_handler integer[], k_message integer[], k_route integer[],
	k_k0 bigint[], k_k1 bigint[], k_k2 bigint[],
	OUT suppressed integer[], OUT suppressed_by bigint[])
	LANGUAGE plpgsql
	SET enable_mergejoin = off SET enable_material = off
	SET enable_seqscan = off SET jit = off AS $$
DECLARE
	v_keys integer[];   -- the positions of the keys that count
	v_first bigint[];   -- the messages that they are remembered for
	v_at bigint[];      -- and when these were received
	v_copied bigint[];
	v_missing boolean;
BEGIN
	IF a_k0 IS NULL THEN
		SELECT array_agg(i), array_agg(m.seq), array_agg(m.received_at)
			INTO v_keys, v_first, v_at
			FROM generate_series(1, cardinality(k_route)) AS i
			CROSS JOIN LATERAL (SELECT k.seq, k.received_at FROM @message k
				WHERE k.seq = a_seq[k_message[i]] OFFSET 0) AS m
			WHERE coalesce(r_handler[k_route[i]], r_handler[1]) <> 0;
	ELSE
		SELECT array_agg(i), array_agg(s.seq), array_agg(s.at),
				array_agg(s.seq) FILTER (WHERE s.seq <> a_seq[k_message[i]])
			INTO v_keys, v_first, v_at, v_copied
			FROM generate_series(1, cardinality(k_route)) AS i
			CROSS JOIN LATERAL (SELECT k.seq, k.at, k.digest FROM @seen k
				WHERE k.k0 = a_k0[k_message[i]] AND k.k1 = a_k1[k_message[i]]
					AND k.k2 = a_k2[k_message[i]]
				OFFSET 0) AS s
			WHERE coalesce(r_handler[k_route[i]], r_handler[1]) <> 0
				AND (s.seq = a_seq[k_message[i]]
					OR s.digest = a_digest[k_message[i]] AND EXISTS (
						SELECT 1 FROM @message m WHERE m.seq = s.seq OFFSET 0));
	END IF;
	-- Unparking locks parked messages before it remembers keys.
	IF v_copied IS NOT NULL THEN
		PERFORM 1 FROM @parked WHERE seq = ANY (v_copied)
			ORDER BY seq FOR UPDATE;
	END IF;

	-- A key that is remembered in one of the scopes gets the same message, and
	-- its time, in the others. Sorted, so that two batches cannot deadlock: all
	-- keys of messages are remembered before.
	WITH wanted AS MATERIALIZED (
		SELECT u.i, u.first, h.id AS scope, k_k2[u.i] # h.id::bigint AS k2,
			s.seq, s.at, u.at AS first_at
		FROM unnest(v_keys, v_first, v_at) AS u (i, first, at)
		CROSS JOIN LATERAL (SELECT k.id FROM @handler k
			WHERE k.owner = coalesce(r_handler[k_route[u.i]], r_handler[1])
			OFFSET 0) AS h
		LEFT JOIN LATERAL (SELECT k.seq, k.at FROM @seen k
			WHERE k.k0 = k_k0[u.i] AND k.k1 = k_k1[u.i]
				AND k.k2 = k_k2[u.i] # h.id::bigint
			OFFSET 0) AS s ON true
	), holder AS (
		SELECT i, coalesce(min(seq) FILTER (WHERE seq = first), min(seq),
			min(first)) AS seq
		FROM wanted GROUP BY i
	)
	INSERT INTO @seen (k0, k1, k2, seq, at, digest, channel, scope)
		SELECT k_k0[w.i], k_k1[w.i], w.k2, o.seq,
			coalesce((SELECT min(v.at) FROM wanted v
				WHERE v.i = w.i AND v.seq = o.seq), w.first_at),
			a_digest[k_message[w.i]],
			coalesce(a_channel[k_message[w.i]], a_channel[1]), w.scope
		FROM wanted w JOIN holder o ON o.i = w.i
		WHERE w.seq IS NULL
		ORDER BY k_k0[w.i], k_k1[w.i], w.k2, w.i
		ON CONFLICT DO NOTHING;

	-- This statement began after the keys were inserted or found, so those that
	-- another transaction committed meanwhile are visible.
	SELECT array_agg(r.route) FILTER (WHERE NOT r.own),
			array_agg(r.holder) FILTER (WHERE NOT r.own), bool_or(r.missing)
		INTO suppressed, suppressed_by, v_missing
		FROM (SELECT k_route[u.i] AS route, u.first, min(s.seq) AS holder,
				coalesce(bool_or(s.seq = u.first), false) AS own,
				bool_or(s.seq IS NULL) AS missing
			FROM unnest(v_keys, v_first) AS u (i, first)
			CROSS JOIN LATERAL (SELECT k.id FROM @handler k
				WHERE k.owner = coalesce(r_handler[k_route[u.i]], r_handler[1])
				OFFSET 0) AS h
			LEFT JOIN LATERAL (SELECT k.seq FROM @seen k
				WHERE k.k0 = k_k0[u.i] AND k.k1 = k_k1[u.i]
					AND k.k2 = k_k2[u.i] # h.id::bigint
				OFFSET 0) AS s ON true
			GROUP BY u.i, u.first) AS r;
	IF v_missing THEN
		RAISE 'a remembered key was removed while a copy came'
			USING ERRCODE = 'serialization_failure';
	END IF;
END $$;

-- Creates the deliveries that end at once, of suppressed routes and of refused
-- ones, of the messages p_seqs, which have none of these handlers. Arrays as in
-- apply_1.
CREATE FUNCTION @end_routes_1(p_now bigint, p_seqs bigint[], r_seq bigint[],
	r_handler integer[], p_suppressed integer[], p_by bigint[],
	x_route integer[], x_reason text[], x_group bigint[])
	RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	e record;
BEGIN
	SELECT array_agg(r_seq[u.n]) AS seqs, array_agg(u.handler) AS handlers,
			array_agg(u.state) AS states, array_agg(u.reason) AS reasons,
			array_agg(u.grp) AS groups, array_agg(0::bigint) AS fences,
			array_agg(p_now) AS times,
			array_agg(CASE u.state WHEN 4 THEN 'poison' ELSE 'discard' END)
				AS outcomes
		INTO e
		FROM (SELECT DISTINCT ON (r_seq[i.n], handler) i.n, i.state, i.reason,
				i.grp, coalesce(r_handler[i.n], r_handler[1]) AS handler
			FROM (SELECT s.n, 5::smallint AS state,
					'suppressed by #' || s.first AS reason, NULL::bigint AS grp
				FROM unnest(p_suppressed, p_by) AS s (n, first)
				UNION ALL
				SELECT x.n, 4::smallint, x.reason, x.grp
				FROM unnest(x_route, x_reason, x_group) AS x (n, reason, grp))
				AS i
			WHERE r_seq[i.n] = ANY (p_seqs)
				AND coalesce(r_handler[i.n], r_handler[1]) <> 0) AS u;
	IF e.seqs IS NULL THEN
		RETURN;
	END IF;
	INSERT INTO @ledger (seq, fence, finished_at, handler, failures, starts,
			crashes, state, error_group)
		SELECT seq, 0, p_now, handler, 0, 0, 0, state, grp
		FROM unnest(e.seqs, e.handlers, e.states, e.groups)
			AS u (seq, handler, state, grp);
	INSERT INTO @handler_tally (handler, discarded)
		SELECT handler, count(*) FROM unnest(e.handlers, e.states)
			AS u (handler, state) WHERE state = 5 GROUP BY handler;
	PERFORM @keep_attempts_1(e.seqs, e.handlers, e.fences, e.times, e.times,
		e.outcomes, e.reasons, e.groups, 1);
END $$;

-- The same for copies, at the positions p_copies, of messages that are stored
-- and may have deliveries of these handlers. p_first: the numbers of the
-- messages; p_same: whether the bodies are the same.
CREATE FUNCTION @end_copies_1(p_now bigint, p_copies integer[],
	p_first bigint[], p_same boolean[], a_seq bigint[], r_seq bigint[],
	r_handler integer[], p_suppressed integer[], p_by bigint[],
	x_route integer[], x_reason text[], x_group bigint[])
	RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_item record;
	v_all bigint[] := '{}';
	v_handler integer[] := '{}';
	v_suppressed integer[] := '{}';
	v_by bigint[] := '{}';
	v_refused integer[] := '{}';
	v_reason text[] := '{}';
	v_group bigint[] := '{}';
BEGIN
	FOR v_item IN
		SELECT k.first, i.holder, i.reason, i.grp,
			coalesce(r_handler[i.n], r_handler[1]) AS handler
		FROM unnest(p_copies, p_first, p_same) AS k (n, first, same)
		JOIN (SELECT s.n, s.first AS holder, NULL::text AS reason, NULL::bigint AS grp
				FROM unnest(p_suppressed, p_by) AS s (n, first)
				UNION ALL
				SELECT x.n, NULL, x.reason, x.grp
				FROM unnest(x_route, x_reason, x_group) AS x (n, reason, grp))
			AS i ON r_seq[i.n] = a_seq[k.n]
		WHERE k.same AND k.first <> a_seq[k.n]
			AND coalesce(r_handler[i.n], r_handler[1]) <> 0
		ORDER BY i.n
	LOOP
		-- Makes a delivery only if there is none, whatever else happens.
		CONTINUE WHEN @add_route_1(p_now, v_item.first, v_item.handler, false)
			IS NULL;
		DELETE FROM @open WHERE seq = v_item.first
			AND handler = v_item.handler;
		v_all := v_all || v_item.first;
		v_handler := v_handler || v_item.handler;
		IF v_item.holder IS NOT NULL THEN
			v_suppressed := v_suppressed || cardinality(v_all);
			v_by := v_by || v_item.holder;
		ELSE
			v_refused := v_refused || cardinality(v_all);
			v_reason := v_reason || v_item.reason;
			v_group := v_group || v_item.grp;
		END IF;
	END LOOP;
	IF cardinality(v_all) > 0 THEN
		PERFORM @end_routes_1(p_now, v_all, v_all, v_handler, v_suppressed,
			v_by, v_refused, v_reason, v_group);
	END IF;
END $$;

-- Opens the deliveries of parked messages, which the caller has locked. r_…, x_…
-- as in apply_1, but all arrays have all items; k_message, k_route: both the
-- position of the route; k_digest: of the body.
CREATE FUNCTION @unpark_1(p_now bigint, r_seq bigint[], r_handler integer[],
	r_channel integer[], r_digest uuid[], k_route integer[], k_k0 bigint[],
	k_k1 bigint[], k_k2 bigint[], x_route integer[], x_reason text[],
	x_group bigint[])
	RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_now bigint := coalesce(p_now, @now_ms());
	v_suppressed integer[];
	v_by bigint[];
BEGIN
	DELETE FROM @parked WHERE seq = ANY (r_seq);
	SELECT r.stored INTO r_handler
		FROM @resolve_routes_1(v_now, r_seq, r_handler, '{false}') AS r;
	IF cardinality(k_route) > 0 THEN
		SELECT k.suppressed, k.suppressed_by INTO v_suppressed, v_by
			FROM @keep_keys_1(r_seq, NULL, NULL, NULL, r_digest, r_channel,
				r_handler, k_route, k_route, k_k0, k_k1, k_k2) AS k;
	END IF;
	PERFORM @end_routes_1(v_now, r_seq, r_seq, r_handler, v_suppressed, v_by,
		x_route, x_reason, x_group);
	INSERT INTO @open (seq, fence, node, due_at, since, suspect, handler,
			failures, starts, crashes, solo)
		SELECT r_seq[n], 0, NULL, v_now, v_now, 0, r_handler[n], 0, 0, 0, false
		FROM generate_series(1, cardinality(r_seq)) AS n
		WHERE r_handler[n] <> 0 AND (n = ANY (v_suppressed)) IS NOT TRUE
			AND (n = ANY (x_route)) IS NOT TRUE
		ON CONFLICT DO NOTHING;
	PERFORM @wake_1(0);
END $$;

-- Applies a batch: settlements, then accepts. The arrays s_… are of
-- settlements, a_… of messages, r_… of routes (r_seq: the number of the
-- message), and k_… of keys that handlers have of their own, all by number.
-- a_by_id: whether the key of the message was made of its id. k_message,
-- k_route: positions; k_k0, k_k1, k_k2: in the scope 0. x_…: of routes that are
-- refused, by position. a_by_key: positions in the order of identities, in
-- which these are inserted, so that two batches cannot deadlock. a_fate: 0
-- keep, 1 park, 2 drop.
--
-- Rows are built from positions and items of arrays, not by unnesting each
-- array, which would copy every item. An array has one item if all values are
-- the same, as in most columns of most batches; one of texts or headers is NULL
-- if all are. Exceptions, which always have all items: numbers, identities,
-- digests, bodies and ids of messages, outcome and error.
--
-- Which handlers are aliases, which are paused, and which channels are closed, is
-- read here. No alias is made and no channel closed before the commit:
-- await_batches_1 waits for that.
--
-- held: whether the node exists and holds the lock; if not, nothing is settled
-- or leased. settled: positions of the settlements that took effect, NULL for
-- all. stored, leased: as in resolve_routes_1, NULL if all routes are as they
-- were sent. suppressed: as in keep_keys_1, NULL if no route is. closed: the
-- closed channels, if a message is for one of them; then nothing was accepted,
-- and the caller applies the rest of the accepts by themselves. The rest as in
-- meet_1.
CREATE FUNCTION @apply_1(p_node bigint, p_round bigint, p_now bigint,
	p_lock text, p_lock_fence bigint, p_again boolean, p_lock_timeout text,
	s_seq bigint[], s_handler integer[], s_fence bigint[], s_to smallint[],
	s_delay bigint[], s_failures integer[], s_duration bigint[],
	s_lag bigint[], s_outcome text[], s_error text[], s_group bigint[],
	p_attempts_kept integer,
	a_seq bigint[], a_by_key integer[], a_k0 bigint[], a_k1 bigint[],
	a_k2 bigint[], a_digest uuid[], a_channel integer[], a_fate smallint[],
	a_by_id boolean[], a_id text[],
	a_source text[], a_type text[], a_subject text[], a_time text[],
	a_content_type text[], a_correlation_id text[], a_traceparent text[],
	a_transport text[], a_headers bytea[], a_body bytea[],
	r_seq bigint[], r_handler integer[], r_lease boolean[], r_retry boolean[],
	p_conflicts_kept integer,
	k_message integer[], k_route integer[], k_k0 bigint[], k_k1 bigint[],
	k_k2 bigint[], x_route integer[], x_reason text[], x_group bigint[],
	OUT now bigint, OUT held boolean, OUT settled integer[],
	OUT known integer[], OUT known_seq bigint[], OUT known_same boolean[],
	OUT opened integer[], OUT opened_fence bigint[], OUT opened_as integer[],
	OUT stored integer[], OUT leased boolean[],
	OUT suppressed integer[], OUT suppressed_by bigint[],
	OUT closed integer[])
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
	v_closed integer[];  -- channels
BEGIN
	PERFORM set_config('lock_timeout', p_lock_timeout, true);
	PERFORM pg_advisory_xact_lock_shared(-p_node);
	now := coalesce(p_now, @now_ms());
	SELECT round INTO v_round FROM @node WHERE node = p_node;
	-- Pull leases belong to no node.
	held := p_node = -1 OR FOUND
		AND (p_lock IS NULL OR @holds_lock_1(p_node, p_lock, p_lock_fence));
	IF v_round > p_round THEN
		RAISE 'the batch is of an earlier round'
			USING ERRCODE = 'serialization_failure';
	END IF;
	IF cardinality(s_seq) > 0 THEN
		settled := '{}';
		IF held THEN
			settled := @settle_1(p_node, now, p_again, s_seq, s_handler,
				s_fence, s_to, s_delay, s_failures, s_duration, s_lag,
				s_outcome, s_error, s_group, p_attempts_kept);
		END IF;
	END IF;
	IF s_to && ARRAY[-1, 2]::smallint[] OR false = ANY (r_lease)
			OR (cardinality(r_lease) > 0 AND NOT held) THEN
		PERFORM @wake_1(p_node);
	END IF;
	IF v_count = 0 THEN
		RETURN;
	END IF;
	PERFORM pg_advisory_xact_lock_shared(hashtext('@handler'), 0);
	SELECT array_agg(h.id),
			(SELECT array_agg(c.id) FROM @channel c WHERE c.closed)
		INTO v_special, v_closed
		FROM @handler h WHERE h.owner <> h.id OR h.paused
			AND (h.paused_until = 0 OR h.paused_until > apply_1.now);
	IF v_closed && a_channel THEN
		closed := v_closed;
		RETURN;
	END IF;
	IF v_special && r_handler THEN
		SELECT r.stored, r.leased INTO stored, leased
			FROM @resolve_routes_1(now, r_seq, r_handler, r_lease) AS r;
		r_handler := stored;
	END IF;

	WITH s AS (
		INSERT INTO @seen (k0, k1, k2, seq, at, digest, channel)
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

	INSERT INTO @message (seq, received_at, channel, id, source, type, subject,
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
	-- Before the keys: a copy in the same batch may end the parking.
	IF a_fate && ARRAY[1]::smallint[] THEN
		INSERT INTO @parked (seq)
			SELECT a_seq[n] FROM unnest(v_new) AS n
			WHERE coalesce(a_fate[n], v_fate) = 1;
	END IF;
	IF cardinality(k_route) > 0 THEN
		SELECT k.suppressed, k.suppressed_by INTO suppressed, suppressed_by
			FROM @keep_keys_1(a_seq, a_k0, a_k1, a_k2, a_digest, a_channel,
				r_handler, k_message, k_route, k_k0, k_k1, k_k2) AS k;
		v_routes := ARRAY(SELECT n FROM unnest(v_routes) AS n
			WHERE (n = ANY (suppressed)) IS NOT TRUE);
		v_again := ARRAY(SELECT n FROM unnest(v_again) AS n
			WHERE (n = ANY (suppressed)) IS NOT TRUE);
	END IF;
	IF cardinality(suppressed) > 0 OR cardinality(x_route) > 0 THEN
		PERFORM @end_routes_1(now, v_fresh, r_seq, r_handler, suppressed,
			suppressed_by, x_route, x_reason, x_group);
		v_routes := ARRAY(SELECT n FROM unnest(v_routes) AS n
			WHERE (n = ANY (x_route)) IS NOT TRUE);
		v_again := ARRAY(SELECT n FROM unnest(v_again) AS n
			WHERE (n = ANY (x_route)) IS NOT TRUE);
	END IF;
	INSERT INTO @open (seq, fence, node, due_at, since, suspect, handler,
			failures, starts, crashes, solo)
		SELECT r_seq[n], coalesce(v_lease[n], v_lease[1])::integer,
			CASE WHEN coalesce(v_lease[n], v_lease[1]) THEN p_node END,
			apply_1.now, apply_1.now, 0, coalesce(r_handler[n], r_handler[1]),
			0, coalesce(v_lease[n], v_lease[1])::integer, 0, false
		FROM unnest(v_routes) AS n;
	IF cardinality(a_channel) > 1 THEN
		INSERT INTO @channel_tally (channel, accepted)
			SELECT a_channel[n], count(*) FROM unnest(v_new) AS n GROUP BY 1;
	ELSIF cardinality(v_fresh) > 0 THEN
		INSERT INTO @channel_tally (channel, accepted)
			VALUES (v_channel, cardinality(v_fresh));
	END IF;
	IF v_copies IS NULL THEN
		RETURN;
	END IF;

	SELECT m.known, m.known_seq, m.known_same, m.opened, m.opened_fence,
			m.opened_as
		INTO known, known_seq, known_same, opened, opened_fence, opened_as
		FROM @meet_1(p_node, now, v_copies, v_again, a_seq, a_k0, a_k1, a_k2,
			a_digest, a_channel, a_by_id, a_id, a_source, a_transport, a_body,
			r_seq, r_handler, CASE WHEN held THEN r_lease ELSE '{false}' END, r_retry,
			p_conflicts_kept) AS m;
	IF cardinality(opened) > 0 THEN
		PERFORM @wake_1(p_node);
	END IF;
	IF cardinality(suppressed) > 0 OR cardinality(x_route) > 0 THEN
		PERFORM @end_copies_1(now, known, known_seq, known_same, a_seq, r_seq,
			r_handler, suppressed, suppressed_by, x_route, x_reason, x_group);
	END IF;
	-- A remembered id that existed on the insert may have been removed before
	-- it was read: then the message is new after all.
	IF coalesce(cardinality(known), 0) < cardinality(v_copies) AND EXISTS (
		SELECT 1 FROM unnest(v_copies) AS n
			WHERE coalesce(a_fate[n], v_fate) <> 2
				AND n NOT IN (SELECT unnest(apply_1.known))) THEN
		RAISE 'a remembered id was removed while a copy came'
			USING ERRCODE = 'serialization_failure';
	END IF;
	IF a_fate && ARRAY[2]::smallint[] THEN
		INSERT INTO @channel_tally (channel, dropped)
			SELECT coalesce(a_channel[n], v_channel), count(*)
			FROM unnest(v_copies) AS n
			WHERE coalesce(a_fate[n], v_fate) = 2
				AND n NOT IN (SELECT unnest(apply_1.known))
			GROUP BY 1;
	END IF;
END $$;

-- Leases due deliveries, under every id of the wanted handlers. w_…: of the
-- wanted handlers; want: the position of the one it was claimed for. p_bytes:
-- stop after the body that exceeds this. The last row has no seq, and reports
-- what is left.
--
-- Aliases come before their owner: nothing new is stored under them, so they
-- cannot delay the others for long.
--
-- held: whether the lock was held; if not, nothing was leased. next_due: in how
-- many ms the next pending delivery is due, 0 if some that are due were not
-- claimed, -1 if there is none. waiting: suspects that were not claimed.
-- suspicion: 0 none, 1 one of a group, 2 solo. xid: the transaction's id.
--
-- p_latest: the latest known time of the clock. If the clock went back,
-- deliveries that are pending since a later time than now are due at once.
--
-- Deliveries that this node returned to idle nodes are left to them for a
-- second.
--
-- p_pull_lease: with p_node -1, how long the pull leases last.
--
-- m_handler, m_from: for this id, read deliveries that are due since then
-- before the others. Claimed ones stay in the index until it is vacuumed, and a
-- node that drains a large backlog would scan all of them each time.
-- reached_handler, reached: where the next claim starts.
CREATE FUNCTION @claim_1(p_node bigint, p_now bigint, p_latest bigint,
	p_lock text, p_lock_fence bigint, p_lock_timeout text, w_handler integer[],
	w_max integer[], w_in_process boolean[], m_handler integer[],
	m_from bigint[], p_max integer, p_bytes bigint, p_pull_lease bigint)
	RETURNS TABLE (seq bigint, handler integer, fence bigint, failures integer,
		breaks integer, returns integer, suspicion smallint, want integer, channel integer, id text, source text, type text,
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
	v_now bigint := coalesce(p_now, @now_ms());
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
	IF p_node <> -1 AND NOT @holds_1(p_node, p_lock, p_lock_fence) THEN
		RETURN QUERY SELECT NULL::bigint, NULL::integer, NULL::bigint,
			NULL::integer, NULL::integer, NULL::integer, NULL::smallint,
			NULL::integer, NULL::integer, NULL,
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
			JOIN @handler h ON h.id = w.handler
			JOIN @handler o ON o.id = h.owner
			JOIN @handler k ON k.owner = o.id
			WHERE NOT (o.paused
				AND (o.paused_until = 0 OR o.paused_until > v_now))
			ORDER BY k.id, w.n) AS i;

	IF v_now < p_latest - 1000 THEN
		UPDATE @open o SET since = v_now, due_at =
			CASE WHEN o.node IS NULL THEN v_now ELSE o.due_at - o.since + v_now END
			WHERE (o.node IS NULL OR o.node = -1) AND o.since > v_now;
		m_handler := '{}';
	END IF;
	v_reached := ARRAY(SELECT coalesce(m_from[array_position(m_handler, i)], 0)
		FROM unnest(v_ids) WITH ORDINALITY AS u (i, n) ORDER BY n);

	-- Suspects: the oldest group, all of it, by one node at a time.
	SELECT coalesce(array_agg(u.id), '{}') INTO v_wanted
		FROM unnest(v_ids, v_in_process) AS u (id, in_process)
		WHERE u.in_process;
	PERFORM 1 FROM @open o WHERE o.suspect > 0 LIMIT 1;
	IF FOUND AND cardinality(v_wanted) > 0 THEN
		LOCK TABLE @gone IN SHARE ROW EXCLUSIVE MODE;
		SELECT o.suspect INTO v_group FROM @open o
			WHERE o.suspect > 0 AND o.node IS NULL
				AND o.handler = ANY (v_wanted)
			ORDER BY o.suspect LIMIT 1;
		IF v_group IS NOT NULL AND p_max > 0 THEN
			SELECT array_agg(o.ctid ORDER BY o.seq, o.handler)
				INTO v_places FROM @open o
				WHERE o.suspect > 0 AND o.suspect = v_group
					AND o.node IS NULL AND o.handler = ANY (v_wanted);
			v_suspects := cardinality(v_places);
			v_suspicion := 1;
			IF v_suspects = 1 THEN
				SELECT CASE count(*) WHEN 1 THEN 2 ELSE 1 END INTO v_suspicion
					FROM @open o
					WHERE o.suspect > 0 AND o.suspect = v_group;
			END IF;
		END IF;
		SELECT count(*) - v_suspects INTO v_waiting FROM @open o
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
				FROM (SELECT p.ctid AS place, p.seq, p.due_at FROM @open p
					WHERE p.handler = v_want.handler AND p.node IS NULL
						AND p.suspect = 0 AND p.due_at <= v_high
						AND p.due_at >= v_low
						AND (p.returned_by IS DISTINCT FROM p_node
							OR p.since <= v_now - 1000)
					ORDER BY p.due_at, p.seq
					LIMIT least(v_want.max, p_max - cardinality(v_places))
					FOR UPDATE SKIP LOCKED) AS o
				LEFT JOIN LATERAL (SELECT octet_length(k.body) AS len
					FROM @message k WHERE k.seq = o.seq OFFSET 0) AS m ON true
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
		-- A suspect whose handler does not run in the process any more is none.
		CONTINUE WHEN v_want.in_process;
		FOR v_pick IN
			SELECT p.ctid AS place FROM @open p
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
			UPDATE @open o SET node = p_node, since = v_now,
				fence = o.fence + 1, starts = o.starts + 1,
				returned_by = NULL, due_at =
					CASE p_node WHEN -1 THEN v_now + p_pull_lease ELSE o.due_at END,
				solo = u.n <= v_suspects AND v_suspicion = 2,
				suspect = CASE WHEN u.n <= v_suspects THEN o.suspect ELSE 0 END
			FROM unnest(v_places) WITH ORDINALITY AS u (place, n)
			WHERE o.ctid = u.place AND o.node IS NULL
			RETURNING u.n, o.seq, o.handler, o.fence, o.failures, o.due_at,
				o.breaks, o.returns
		)
		SELECT l.seq, l.handler, l.fence, l.failures, coalesce(l.breaks, 0),
			coalesce(l.returns, 0),
			CASE WHEN l.n <= v_suspects THEN v_suspicion ELSE 0::smallint END,
			v_wants[array_position(v_ids, l.handler)],
			m.channel, m.id, coalesce(m.source, c.first_name, c.name), m.type, m.subject,
			m.time, m.content_type, m.correlation_id, m.traceparent,
			m.transport, m.headers, m.body, m.received_at, NULL::boolean,
			NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
			NULL::integer[], NULL::bigint[]
		FROM leased l
		LEFT JOIN LATERAL (SELECT * FROM @message k WHERE k.seq = l.seq
			OFFSET 0) AS m ON true
		LEFT JOIN @channel c ON c.id = m.channel
		ORDER BY l.n > v_suspects, l.due_at, l.seq;

	FOR v_want IN
		SELECT i AS handler,
			coalesce(m_from[array_position(m_handler, i)], 0) AS start
		FROM unnest(v_ids) AS i
	LOOP
		EXIT WHEN v_next = 0;
		SELECT p.due_at INTO v_due FROM @open p
			WHERE p.handler = v_want.handler AND p.node IS NULL
				AND p.suspect = 0 AND p.due_at >= v_want.start
				AND (p.returned_by IS DISTINCT FROM p_node
					OR p.since <= v_now - 1000)
			ORDER BY p.due_at LIMIT 1;
		IF v_want.start > 0 AND (v_due IS NULL OR v_due > v_now) THEN
			SELECT p.due_at INTO v_due FROM @open p
				WHERE p.handler = v_want.handler AND p.node IS NULL
					AND p.suspect = 0
					AND (p.returned_by IS DISTINCT FROM p_node
						OR p.since <= v_now - 1000)
				ORDER BY p.due_at LIMIT 1;
		END IF;
		IF v_due IS NULL OR v_due > v_now THEN -- those it returned itself
			SELECT least(v_due, min(p.since) + 1000) INTO v_due FROM @open p
				WHERE p.handler = v_want.handler AND p.node IS NULL
					AND p.suspect = 0 AND p.due_at <= v_now
					AND p.due_at > v_now - 1000 AND p.returned_by = p_node;
		END IF;
		SELECT least(v_due, min(p.due_at)) INTO v_due FROM @open p
			WHERE p.suspect > 0 AND p.handler = v_want.handler
				AND p.node IS NULL;
		IF v_due IS NOT NULL THEN
			v_due := greatest(v_due - v_now, 0);
			v_next := CASE WHEN v_next < 0 THEN v_due
				ELSE least(v_next, v_due) END;
		END IF;
	END LOOP;
	-- If nothing is left the node waits for a notification.
	UPDATE @node_sleep n SET sleeps = v_next <> 0
		WHERE n.node = p_node AND n.sleeps <> (v_next <> 0);
	RETURN QUERY SELECT NULL::bigint, NULL::integer, NULL::bigint,
		NULL::integer, NULL::integer, NULL::integer, NULL::smallint,
		NULL::integer, NULL::integer, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL::bytea, NULL::bytea,
		NULL::bigint, true, v_now, v_next, v_waiting,
		pg_current_xact_id_if_assigned()::text::bigint, v_ids, v_reached;
END $$;

-- Takes over deliveries of these handlers whose pull lease has ended, at most
-- p_max. The result is that of claim_1, but for waiting: of a delivery, how long
-- its worker had it; and next_due: when the next pull lease ends.
CREATE FUNCTION @claim_ended_1(p_node bigint, p_now bigint, p_lock text,
	p_lock_fence bigint, p_lock_timeout text, w_handler integer[],
	p_max integer)
	RETURNS TABLE (seq bigint, handler integer, fence bigint, failures integer,
		breaks integer, returns integer, suspicion smallint, want integer, channel integer, id text, source text, type text,
		subject text, "time" text, content_type text, correlation_id text,
		traceparent text, transport text, headers bytea, body bytea,
		received_at bigint, held boolean, now bigint, next_due bigint,
		waiting bigint, xid bigint, reached_handler integer[],
		reached bigint[])
	LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
	v_now bigint := coalesce(p_now, @now_ms());
	v_held boolean;
	v_next bigint;
BEGIN
	PERFORM set_config('lock_timeout', p_lock_timeout, true);
	v_held := @holds_1(p_node, p_lock, p_lock_fence);
	IF v_held THEN
		RETURN QUERY
			WITH ids AS (
				SELECT DISTINCT ON (k.id) k.id, w.n::integer AS want
				FROM unnest(w_handler) WITH ORDINALITY AS w (handler, n)
				JOIN @handler h ON h.id = w.handler
				JOIN @handler k ON k.owner = h.owner ORDER BY k.id, w.n
			), found AS MATERIALIZED (
				SELECT o.ctid AS place, o.since, i.want FROM ids i
				JOIN LATERAL (SELECT p.ctid, p.since FROM @open p
					WHERE p.node = -1 AND p.handler = i.id AND p.due_at <= v_now
					ORDER BY p.due_at LIMIT p_max FOR UPDATE SKIP LOCKED) AS o
					ON true
				LIMIT p_max
			), taken AS (
				UPDATE @open o SET node = p_node, since = v_now,
					fence = o.fence + 1
				FROM found f WHERE o.ctid = f.place AND o.node = -1
				RETURNING o.seq, o.handler, o.fence, o.failures, o.breaks,
					o.returns, f.want, f.since
			)
			SELECT t.seq, t.handler, t.fence, t.failures, coalesce(t.breaks, 0),
				coalesce(t.returns, 0), 0::smallint, t.want,
				m.channel, m.id, coalesce(m.source, c.first_name, c.name),
				m.type, m.subject, m.time, m.content_type, m.correlation_id,
				m.traceparent, m.transport, m.headers, m.body, m.received_at,
				NULL::boolean, NULL::bigint, NULL::bigint,
				greatest(v_now - t.since, 0), NULL::bigint, NULL::integer[],
				NULL::bigint[]
			FROM taken t
			LEFT JOIN LATERAL (SELECT * FROM @message k WHERE k.seq = t.seq
				OFFSET 0) AS m ON true
			LEFT JOIN @channel c ON c.id = m.channel;
		SELECT min(o.due_at) INTO v_next
			FROM unnest(w_handler) AS w (handler)
			JOIN @handler h ON h.id = w.handler
			JOIN @handler k ON k.owner = h.owner
			JOIN LATERAL (SELECT p.due_at FROM @open p
				WHERE p.node = -1 AND p.handler = k.id
				ORDER BY p.due_at LIMIT 1) AS o ON true;
	END IF;
	RETURN QUERY SELECT NULL::bigint, NULL::integer, NULL::bigint,
		NULL::integer, NULL::integer, NULL::integer, NULL::smallint,
		NULL::integer, NULL::integer, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL::bytea, NULL::bytea,
		NULL::bigint, v_held, v_now,
		CASE WHEN v_next IS NULL THEN -1 ELSE greatest(v_next - v_now, 0) END,
		0::bigint,
		pg_current_xact_id_if_assigned()::text::bigint, NULL::integer[],
		NULL::bigint[];
END $$;

-- Records for which of these handlers the node is idle, p_idle. Returns for each
-- whose p_surplus is true how many other nodes that live and sleep are idle, for
-- the handler under any of its ids.
CREATE FUNCTION @share_1(p_node bigint, p_now bigint, p_handler integer[],
	p_idle boolean[], p_surplus boolean[])
	RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE
	v_now bigint := coalesce(p_now, @now_ms());
BEGIN
	UPDATE @node_handler n SET idle = u.idle
		FROM unnest(p_handler, p_idle) AS u (handler, idle)
		WHERE n.node = p_node AND n.handler = u.handler
			AND n.idle <> u.idle;
	RETURN ARRAY(SELECT CASE WHEN u.surplus THEN
			(SELECT count(DISTINCT n.node)::integer FROM @handler h
				JOIN @handler k ON k.owner = h.owner
				JOIN @node_handler n ON n.handler = k.id
				JOIN @node_sleep s ON s.node = n.node
				JOIN @node_term t ON t.node = n.node
				WHERE h.id = u.handler AND n.node <> p_node AND n.idle
					AND s.sleeps AND t.late_since IS NULL
					AND coalesce(t.lives_until > v_now, true))
			ELSE 0 END
		FROM unnest(p_handler, p_surplus) WITH ORDINALITY
			AS u (handler, surplus, i) ORDER BY i);
END $$;

-- Waits for all running batches; those that start later wait for the end of
-- this transaction.
CREATE FUNCTION @await_batches_1() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	-- Batches that start meanwhile queue behind this, so each wait is short.
	FOR i IN 1 .. 50 LOOP
		BEGIN
			PERFORM set_config('lock_timeout', '200', true);
			PERFORM pg_advisory_xact_lock(hashtext('@handler'), 0);
			RETURN;
		EXCEPTION WHEN lock_not_available THEN
			PERFORM pg_sleep(0.1);
		END;
	END LOOP;
	RAISE 'other transactions have been accepting messages for 15 s; try again'
		USING ERRCODE = 'lock_not_available';
END $$;

-- Makes a handler, and all ids that it owns, an alias of another one; after all
-- running batches, which accept for two handlers. A pause of either one is a
-- pause of both: the one that lasts longer remains, as
-- postern__halt_outlasts() says.
CREATE FUNCTION @make_alias_1(p_handler integer, p_owner integer)
	RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM @await_batches_1();
	UPDATE @handler o SET paused = true, paused_at = f.paused_at,
			paused_until = f.paused_until, pause_reason = f.pause_reason,
			pause_by = f.pause_by
		FROM @handler f
		WHERE o.id = p_owner AND f.id = p_handler AND f.paused
			AND (NOT o.paused OR o.paused_until <> 0
				AND (f.paused_until = 0 OR f.paused_until > o.paused_until));
	UPDATE @handler SET owner = p_owner WHERE owner = p_handler;
END $$;

-- Closes or opens the intake of a channel. A channel that is closed when this
-- has returned gets no message of a batch that began before. Nodes are
-- notified: when the channel opens they collect what was staged.
CREATE FUNCTION @close_channel_1(p_channel integer, p_closed boolean,
	p_at bigint, p_until bigint, p_reason text, p_by text)
	RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	UPDATE @channel SET closed = p_closed, closed_at = p_at,
		closed_reason = p_reason, closed_by = p_by WHERE id = p_channel;
	IF p_closed THEN
		PERFORM @await_batches_1();
	ELSE
		PERFORM pg_notify(@bell_1(), '');
	END IF;
END $$;

-- Finds the handler of a key, or makes it; see the contract of enrolment for
-- legacy keys.
CREATE FUNCTION @enrol_handler_1(p_key text, p_legacy text[],
	p_in_process boolean, p_max_crashes integer, p_dedupe bigint)
	RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_id integer;
	v_key text;
	v_known integer;
BEGIN
	SELECT h.owner INTO v_id FROM @handler_key k
		JOIN @handler h ON h.id = k.handler WHERE k.key = p_key;
	IF v_id IS NULL THEN
		SELECT h.owner INTO v_id
			FROM unnest(p_legacy) WITH ORDINALITY AS l (key, n)
			JOIN @handler_key k ON k.key = l.key
			JOIN @handler h ON h.id = k.handler
			ORDER BY l.n LIMIT 1;
		IF v_id IS NULL THEN
			INSERT INTO @handler (owner, key) VALUES (0, p_key)
				RETURNING id INTO v_id;
			UPDATE @handler SET owner = id WHERE id = v_id;
		END IF;
		INSERT INTO @handler_key (key, handler) VALUES (p_key, v_id);
	END IF;
	FOREACH v_key IN ARRAY p_legacy LOOP
		SELECT h.owner INTO v_known FROM @handler_key k
			JOIN @handler h ON h.id = k.handler WHERE k.key = v_key;
		IF v_known IS NULL THEN
			INSERT INTO @handler_key (key, handler) VALUES (v_key, v_id);
		ELSIF v_known <> v_id THEN
			PERFORM @make_alias_1(v_known, v_id);
		END IF;
	END LOOP;
	UPDATE @handler SET key = p_key, in_process = p_in_process,
		max_crashes = p_max_crashes, dedupe_ms = nullif(p_dedupe, 0)
		WHERE id = v_id;
END $$;

-- Grants starts of a handler, at most p_wanted, as postern__rate_grant() in
-- src/core/rate.c does: at most p_most in the present slot and the 21 before
-- it, and p_burst in one slot; p_width is the length of a slot. wait: if none
-- is granted, the milliseconds until one may be.
CREATE FUNCTION @reserve_1(p_handler integer, p_now bigint, p_width bigint,
	p_most bigint, p_burst bigint, p_wanted bigint,
	OUT granted bigint, OUT wait bigint) LANGUAGE plpgsql AS $$
DECLARE
	v_owner integer;
	v_now bigint;
	v_slot bigint;
	v_width bigint;
	v_counts integer[];
	v_left bigint;
	v_oldest bigint;
BEGIN
	SELECT owner INTO v_owner FROM @handler WHERE id = p_handler;
	INSERT INTO @rate VALUES (v_owner, p_width, 0, array_fill(0, ARRAY[22]))
		ON CONFLICT DO NOTHING;
	SELECT width, slot, counts INTO v_width, v_slot, v_counts FROM @rate
		WHERE handler = v_owner FOR UPDATE;
	-- After the lock: another node may have held it for long.
	v_now := coalesce(p_now, @now_ms());
	-- Each count moves to the slot that it is in now; what was granted in the
	-- future, before the clock was set back, to the present one.
	SELECT array_agg(coalesce(m.c, 0)::integer ORDER BY k) INTO v_counts
		FROM generate_series(0, 21) AS k LEFT JOIN (
			SELECT greatest(v_now / p_width
				- (v_slot - n + 1) * v_width / p_width, 0) AS i, sum(c) AS c
			FROM unnest(v_counts) WITH ORDINALITY AS u (c, n)
			WHERE c > 0 GROUP BY 1) AS m ON m.i = k;
	v_slot := v_now / p_width;
	v_left := greatest(p_most - (SELECT sum(c) FROM unnest(v_counts) AS u (c)),
		0);
	granted := greatest(least(v_left, p_burst - v_counts[1], p_wanted), 0);
	wait := 0;
	IF granted = 0 THEN
		SELECT coalesce(max(n), 1) INTO v_oldest
			FROM unnest(v_counts) WITH ORDINALITY AS u (c, n) WHERE c > 0;
		wait := greatest(p_width * CASE WHEN v_left > 0 THEN v_slot + 1
			ELSE v_slot - v_oldest + 23 END - v_now, 0);
	END IF;
	v_counts[1] := v_counts[1] + granted;
	UPDATE @rate SET width = p_width, slot = v_slot, counts = v_counts
		WHERE handler = v_owner;
END $$;

-- Renews the lease of a node; p_ttl 0 ends the node. alive: whether it existed.
CREATE FUNCTION @renew_1(p_node bigint, p_now bigint, p_ttl bigint,
	OUT alive boolean, OUT now bigint) LANGUAGE plpgsql AS $$
BEGIN
	now := coalesce(p_now, @now_ms());
	IF p_ttl = 0 THEN
		PERFORM @halt_1(ARRAY[p_node]);
		DELETE FROM @node WHERE node = p_node;
		alive := FOUND;
		IF alive THEN
			INSERT INTO @gone VALUES (p_node) ON CONFLICT DO NOTHING;
		END IF;
	ELSE
		UPDATE @node_term SET renewed_at = renew_1.now, late_since = NULL,
			lives_until = least(renew_1.now::numeric + p_ttl,
				9223372036854775807)
			WHERE node = p_node;
		alive := FOUND;
	END IF;
END $$;

-- Returns the leases of all nodes, as they are now, and marks expired ones as
-- late. Times that were set before the clock went back start anew; times that
-- other nodes wrote since this call began are compared with the clock as it is
-- when the row is read. lease: its length. late: it is over; long_late: it was
-- found late a whole lease ago. lost: leases of expired nodes are still to be
-- recovered (in a row of its own, with node NULL).
CREATE FUNCTION @watch_nodes_1(p_node bigint, p_now bigint)
	RETURNS TABLE (node bigint, renewed_at bigint, lease bigint, late boolean,
		long_late boolean, lost boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	v_now bigint := coalesce(p_now, @now_ms());
BEGIN
	PERFORM 1 FROM @node_term t WHERE t.renewed_at > v_now
		OR t.late_since > v_now
		OR t.lives_until <= v_now AND t.late_since IS NULL;
	IF FOUND THEN
		UPDATE @node_term t SET lives_until = t.lives_until - t.renewed_at
				+ v_now, renewed_at = v_now, late_since = NULL
			WHERE t.lives_until IS NOT NULL
				AND greatest(t.renewed_at, t.late_since)
					> coalesce(p_now, @now_ms());
		UPDATE @node_term t SET late_since = v_now
			WHERE t.lives_until <= v_now AND t.late_since IS NULL
				AND t.node <> p_node;
	END IF;
	RETURN QUERY SELECT t.node, t.renewed_at, t.lives_until - t.renewed_at,
			t.lives_until <= v_now,
			t.lives_until <= v_now
				AND t.late_since + t.lives_until - t.renewed_at <= v_now,
			NULL::boolean
		FROM @node_term t WHERE t.lives_until IS NOT NULL;
	RETURN QUERY SELECT NULL::bigint, NULL::bigint, NULL::bigint, NULL::boolean,
		NULL::boolean, EXISTS (SELECT 1 FROM @gone);
END $$;

-- Returns uncertain leases of a node, those that it has. A batch may have
-- written them under another id of the handler; for claims (p_claimed) the id
-- is known. Locking the rows waits for a claim that is still running;
-- p_batches: waits for batches, too. Statements of an earlier round that the
-- server has not begun, a batch or another return, have no effect after this.
--
-- The deliveries are locked in their order, as batches lock them, and the
-- node's row after them.
CREATE FUNCTION @give_back_1(p_node bigint, p_round bigint, p_now bigint,
	p_lock_timeout text, p_batches boolean, p_seq bigint[], p_handler integer[],
	p_fence bigint[], p_claimed boolean[]) RETURNS void LANGUAGE plpgsql
	SET enable_hashjoin = off SET enable_mergejoin = off
	SET enable_material = off
	SET enable_seqscan = off SET jit = off
	SET plan_cache_mode = force_generic_plan AS $$
DECLARE
	v_now bigint := coalesce(p_now, @now_ms());
BEGIN
	PERFORM set_config('lock_timeout', p_lock_timeout, true);
	IF p_batches THEN
		PERFORM pg_advisory_xact_lock(-p_node);
	END IF;
	PERFORM 1 FROM unnest(p_seq, p_handler, p_claimed)
			AS u (seq, handler, claimed)
		CROSS JOIN LATERAL (SELECT k.ctid AS place FROM @open k
			WHERE k.seq = u.seq AND (k.handler = u.handler
				OR NOT u.claimed AND k.handler IN (SELECT i.id FROM @handler h
					JOIN @handler i ON i.owner = h.owner
					WHERE h.id = u.handler))
			OFFSET 0) AS k
		JOIN @open o ON o.ctid = k.place
		ORDER BY u.seq, u.handler FOR UPDATE OF o;
	UPDATE @node SET round = p_round WHERE node = p_node AND round < p_round;
	IF NOT FOUND THEN
		RETURN;
	END IF;
	UPDATE @open o SET node = NULL, since = v_now, due_at = v_now,
		starts = o.starts - 1, solo = false
		FROM unnest(p_seq, p_handler, p_fence, p_claimed)
			AS u (seq, handler, fence, claimed)
		CROSS JOIN LATERAL (SELECT k.ctid AS place FROM @open k
			WHERE k.seq = u.seq AND (k.handler = u.handler
				OR NOT u.claimed AND k.handler IN (SELECT i.id FROM @handler h
					JOIN @handler i ON i.owner = h.owner
					WHERE h.id = u.handler))
			OFFSET 0) AS k
		WHERE o.ctid = k.place AND o.fence = u.fence AND o.node = p_node;
END $$;

-- Terminates the transactions of nodes that stopped in the middle of them, and
-- would block those that recover. Transactions that wait for their client hold
-- the node id in share mode; one that holds it exclusively is another recovery.
CREATE FUNCTION @end_transactions_1(p_nodes bigint[])
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

-- Expires nodes that did not renew for longer than their lease, unless they
-- renewed meanwhile. Their leases are recovered after that.
CREATE FUNCTION @expire_nodes_1(p_now bigint, p_nodes bigint[],
	p_renewed_at bigint[]) RETURNS void LANGUAGE plpgsql
	SET lock_timeout = 250 AS $$
DECLARE
	v_now bigint := coalesce(p_now, @now_ms());
	v_nodes bigint[];
BEGIN
	PERFORM @end_transactions_1(p_nodes);
	PERFORM @halt_1(p_nodes);
	-- A renewal that is running is waited for, and counts.
	v_nodes := ARRAY(SELECT t.node FROM @node_term t
		JOIN unnest(p_nodes, p_renewed_at) AS u (node, renewed_at)
			ON u.node = t.node AND u.renewed_at = t.renewed_at
		WHERE t.lives_until <= v_now ORDER BY t.node FOR UPDATE OF t);
	WITH dead AS (
		DELETE FROM @node n WHERE n.node = ANY (v_nodes) RETURNING n.node
	)
	INSERT INTO @gone SELECT node FROM dead ON CONFLICT DO NOTHING;
END $$;

-- Acquires or renews a lock. fence: NULL if another node holds it. renewed_at,
-- term: of the current owner. p_silent: the renewed_at that the caller has read
-- for longer than the term; a lock whose owner did not renew for so long is
-- taken over, and so is one that was found late a whole term ago.
--
-- A takeover waits for running transactions of the former owner, though not for
-- long: the caller's own renewal must not wait.
CREATE FUNCTION @lock_1(p_name text, p_node bigint, p_now bigint,
	p_ttl bigint, p_silent bigint, OUT fence bigint, OUT renewed_at bigint,
	OUT term bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	v_now bigint := coalesce(p_now, @now_ms());
	v_until bigint := least(v_now::numeric + p_ttl, 9223372036854775807);
	v_fence bigint;
BEGIN
	UPDATE @lock l SET renewed_at = v_now, held_until = v_until,
		late_since = NULL
		WHERE l.name = p_name AND l.node = p_node RETURNING l.fence INTO v_fence;
	IF NOT FOUND THEN
		INSERT INTO @lock AS l VALUES (p_name, p_node, 1, v_now, v_until)
			ON CONFLICT DO NOTHING RETURNING l.fence INTO v_fence;
	END IF;
	IF NOT FOUND THEN
		v_fence := @take_over_lock_1(p_name, p_node, p_now, p_ttl, p_silent);
	END IF;
	SELECT l.renewed_at, l.held_until - l.renewed_at INTO renewed_at, term
		FROM @lock l WHERE l.name = p_name;
	fence := v_fence;
END $$;

-- The same for a lock that another node holds, or held.
CREATE FUNCTION @take_over_lock_1(p_name text, p_node bigint, p_now bigint,
	p_ttl bigint, p_silent bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	v_now bigint := coalesce(p_now, @now_ms());
	v_lock record;
	v_fence bigint;
BEGIN
	UPDATE @lock SET held_until = held_until - renewed_at + v_now,
		renewed_at = v_now, late_since = NULL
		WHERE name = p_name AND greatest(renewed_at, late_since)
			> coalesce(p_now, @now_ms());
	UPDATE @lock SET late_since = v_now
		WHERE name = p_name AND node <> 0 AND held_until <= v_now
			AND late_since IS NULL;
	SELECT * INTO v_lock FROM @lock WHERE name = p_name
		AND (node = 0 OR held_until <= v_now AND (renewed_at = p_silent
			OR late_since + held_until - renewed_at <= v_now));
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	PERFORM 1 FROM @node_term WHERE node = v_lock.node
		AND (lives_until IS NULL OR lives_until > v_now);
	IF NOT FOUND AND v_lock.node <> 0 THEN
		PERFORM @end_transactions_1(ARRAY[v_lock.node]);
	END IF;
	BEGIN
		PERFORM set_config('lock_timeout',
			least(greatest(p_ttl / 4, 10), 5000)::text, true);
		PERFORM pg_advisory_xact_lock(hashtext('@lock'), hashtext(p_name));
	EXCEPTION WHEN lock_not_available THEN
		RETURN NULL;
	END;
	UPDATE @lock SET node = p_node, fence = fence + 1, renewed_at = v_now,
		held_until = least(v_now::numeric + p_ttl, 9223372036854775807),
		late_since = NULL
		WHERE name = p_name AND node = v_lock.node
			AND renewed_at = v_lock.renewed_at
		RETURNING fence INTO v_fence;
	RETURN v_fence;
END $$;

-- Enrols a node, with the handlers it registers. p_again: it is enrolled
-- already, and is not made again if it has expired. Returns the time, NULL if
-- it has expired. Each version of the schema raises the number in its name, and
-- leaves a function of the former name that fails.
CREATE FUNCTION @enrol_node_2(p_node bigint, p_now bigint, p_lease bigint,
	p_handlers integer[], p_host text, p_pid integer, p_again boolean)
	RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	v_now bigint := coalesce(p_now, @now_ms());
BEGIN
	IF p_again THEN
		PERFORM 1 FROM @node WHERE node = p_node FOR KEY SHARE;
		IF NOT FOUND THEN
			RETURN NULL;
		END IF;
	END IF;
	INSERT INTO @node (node, host, pid) VALUES (p_node, p_host, p_pid)
		ON CONFLICT DO NOTHING;
	IF NOT p_again THEN -- or a renewal would wait for this transaction
		INSERT INTO @node_term (node, renewed_at, lives_until)
			VALUES (p_node, v_now, v_now + p_lease)
			ON CONFLICT (node) DO UPDATE SET renewed_at = v_now,
				lives_until = v_now + p_lease, late_since = NULL;
	END IF;
	INSERT INTO @node_sleep (node) VALUES (p_node) ON CONFLICT DO NOTHING;
	DELETE FROM @node_handler WHERE node = p_node;
	INSERT INTO @node_handler (node, handler)
		SELECT p_node, unnest(p_handlers);
	RETURN v_now;
END $$;

CREATE FUNCTION @enrol_node_1(p_node bigint, p_now bigint, p_lease bigint,
	p_handlers integer[], p_host text, p_pid integer, p_again boolean)
	RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	RAISE 'the schema was upgraded to version 2, which this node does not '
		'support: restart it with a newer postern'
		USING ERRCODE = 'cannot_connect_now';
END $$;

-- Records that a node is going to lease, under this lock or (NULL) without one,
-- unless another node leases under another, which is returned. alive: the node
-- exists.
CREATE FUNCTION @engage_1(p_node bigint, p_lock text,
	OUT alive boolean, OUT other bigint, OUT other_host text,
	OUT other_pid integer, OUT other_lock text)
	LANGUAGE plpgsql SET lock_timeout = 250 AS $$
BEGIN
	-- One transaction at a time.
	PERFORM pg_advisory_xact_lock(hashtext('@node'), 1);
	SELECT n.node, n.host, n.pid, n.lock_name
		INTO other, other_host, other_pid, other_lock FROM @node n
		WHERE n.works AND n.lock_name IS DISTINCT FROM p_lock
			AND n.node <> p_node
		ORDER BY n.node LIMIT 1;
	IF FOUND THEN
		alive := true;
		RETURN;
	END IF;
	UPDATE @node SET works = true, lock_name = p_lock WHERE node = p_node;
	alive := FOUND;
END $$;

-- Whether a pull lease ended p_abandoned ms ago, or earlier.
CREATE FUNCTION @abandoned_1(p_now bigint, p_abandoned bigint)
	RETURNS boolean LANGUAGE plpgsql
	SET enable_seqscan = off SET jit = off AS $$
DECLARE
	v_until bigint := coalesce(p_now, @now_ms()) - p_abandoned;
BEGIN
	PERFORM 1 FROM @handler h WHERE EXISTS (SELECT 1 FROM @open o
		WHERE o.node = -1 AND o.handler = h.id AND o.due_at <= v_until
		OFFSET 0) LIMIT 1;
	RETURN FOUND;
END $$;

-- Recovers the leases of expired nodes, and under a lock those of all others.
-- p_all: read every lease, whether a node is known to have expired or not.
-- p_abandoned: so long ago, in ms, pull leases have ended that are recovered.
--
-- A delivery that was leased by an expired node and may have crashed its
-- process becomes suspect: the lost members of one group become two groups, the
-- first with the odd one. A solo suspect that was lost has crashed.
--
-- Fails with lock_not_available if another recovery is running, or its node
-- stopped in the middle of it and has not expired yet.
CREATE FUNCTION @recover_1(p_node bigint, p_now bigint, p_lock text,
	p_lock_fence bigint, p_all boolean, p_max integer, p_kept integer,
	p_error text, p_group bigint, p_abandoned bigint,
	OUT held boolean, OUT released bigint, OUT suspects bigint,
	OUT poisoned bigint, OUT more boolean)
	LANGUAGE plpgsql SET lock_timeout = 250 SET jit = off AS $$
DECLARE
	v_now bigint := coalesce(p_now, @now_ms());
	v_lost record;
	v_last bigint;
BEGIN
	released := 0;
	suspects := 0;
	poisoned := 0;
	more := false;
	held := p_lock IS NULL OR @holds_lock_1(p_node, p_lock, p_lock_fence);
	IF NOT held THEN
		RETURN;
	END IF;
	-- One recovery at a time, and not while suspects are claimed.
	LOCK TABLE @gone IN SHARE ROW EXCLUSIVE MODE;
	PERFORM 1 FROM @gone;
	IF NOT FOUND AND NOT p_all THEN
		RETURN;
	END IF;
	SELECT coalesce(max(suspect), 0) INTO v_last FROM @open
		WHERE suspect > 0;
	-- By key, not by ctid: the locked rows may be newer than the snapshot of
	-- this statement, and all of them must be changed.
	WITH found AS MATERIALIZED (
		SELECT o.seq, o.handler, o.fence, o.failures, o.starts, o.crashes,
			o.suspect, o.since, w.max_crashes,
			w.in_process AND NOT EXISTS (
				SELECT 1 FROM @node n WHERE n.node = o.node) AS guilty,
			o.solo
		FROM @open o
		JOIN @handler h ON h.id = o.handler
		JOIN @handler w ON w.id = h.owner
		WHERE o.node IS NOT NULL AND o.node <> p_node
			AND CASE o.node WHEN -1 THEN o.due_at <= v_now - p_abandoned
				ELSE p_lock IS NOT NULL
					OR o.node NOT IN (SELECT n.node FROM @node n) END
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
		UPDATE @open o SET node = NULL, since = v_now, due_at = v_now,
			suspect = p.new_group, solo = false,
			crashes = o.crashes + p.crashed::integer,
			error_group = CASE WHEN p.crashed THEN p_group
				ELSE o.error_group END
		FROM plan p
		WHERE o.seq = p.seq AND o.handler = p.handler AND NOT p.doomed
	), closed AS (
		DELETE FROM @open o USING plan p
		WHERE o.seq = p.seq AND o.handler = p.handler AND p.doomed
	), ended AS (
		INSERT INTO @ledger (seq, fence, finished_at, duration, handler,
				failures, starts, crashes, state, error_group)
		SELECT seq, fence, v_now, NULL, handler, failures, starts, crashes + 1,
			4, p_group FROM plan WHERE doomed
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
		PERFORM @keep_attempts_1(v_lost.seqs, v_lost.handlers, v_lost.fences,
			v_lost.sinces, array_fill(v_now, ARRAY[cardinality(v_lost.seqs)]),
			array_fill('crash'::text, ARRAY[cardinality(v_lost.seqs)]),
			array_fill(p_error, ARRAY[cardinality(v_lost.seqs)]),
			array_fill(p_group, ARRAY[cardinality(v_lost.seqs)]), p_kept);
	END IF;
	IF NOT more THEN
		DELETE FROM @gone;
	END IF;
	IF released + suspects > 0 THEN
		PERFORM @wake_1(p_node);
	END IF;
END $$;

-- Returns orphaned handlers, with the number of their open deliveries that no
-- live node has leased; p_only: of the handler with this key. p_poison: poison
-- the pending ones, at most p_max. A node that has expired, and does not know
-- it, gets none, because it would get its own handlers.
CREATE FUNCTION @orphans_1(p_node bigint, p_now bigint, p_only text,
	p_poison boolean, p_max integer, p_kept integer, p_error text,
	p_group bigint)
	RETURNS TABLE (key text, open bigint) LANGUAGE plpgsql SET jit = off AS $$
DECLARE
	v_now bigint := coalesce(p_now, @now_ms());
	v_orphans integer[];
	v_dead record;
BEGIN
	-- An enrolment is serialized with this: it commits before, or waits.
	IF p_poison THEN
		LOCK TABLE @handler IN ROW EXCLUSIVE MODE;
	END IF;
	IF NOT @holds_1(p_node, NULL, NULL) THEN
		RETURN;
	END IF;
	SELECT array_agg(h.id) INTO v_orphans FROM @handler h
		WHERE h.owner NOT IN (
			SELECT r.owner FROM @node_handler n
			JOIN @handler r ON r.id = n.handler)
		AND (p_only IS NULL
			OR h.owner IN (SELECT w.id FROM @handler w WHERE w.key = p_only));
	IF v_orphans IS NULL THEN
		RETURN;
	END IF;
	RETURN QUERY
		SELECT w.key, sum(c.count)::bigint FROM (
			SELECT o.handler, count(*) FROM @open o
				WHERE o.handler = ANY (v_orphans) AND o.node IS NULL
				GROUP BY o.handler
			UNION ALL
			SELECT o.handler, count(*) FROM @open o
				WHERE o.handler = ANY (v_orphans) AND o.node IS NOT NULL
					AND o.node <> -1
					AND o.node NOT IN (SELECT n.node FROM @node n)
					AND EXISTS (SELECT 1 FROM @gone)
				GROUP BY o.handler) AS c
		JOIN @handler h ON h.id = c.handler
		JOIN @handler w ON w.id = h.owner
		GROUP BY w.id, w.key ORDER BY w.id;
	IF NOT FOUND OR NOT p_poison THEN
		RETURN;
	END IF;
	WITH found AS MATERIALIZED (
		SELECT o.ctid AS place FROM @open o
			WHERE o.handler = ANY (v_orphans) AND o.node IS NULL
			LIMIT p_max FOR UPDATE SKIP LOCKED
	), closed AS (
		DELETE FROM @open o USING found f WHERE o.ctid = f.place
		RETURNING o.*
	), ended AS (
		INSERT INTO @ledger (seq, fence, finished_at, duration, handler,
				failures, starts, crashes, state, error_group)
		SELECT seq, fence, v_now, NULL, handler, failures, starts, crashes, 4,
			p_group FROM closed
	)
	SELECT array_agg(seq) AS seqs, array_agg(handler) AS handlers,
			array_agg(fence) AS fences, count(*)::integer AS count
		INTO v_dead FROM closed;
	IF v_dead.count > 0 THEN
		PERFORM @keep_attempts_1(v_dead.seqs, v_dead.handlers, v_dead.fences,
			array_fill(v_now, ARRAY[v_dead.count]),
			array_fill(v_now, ARRAY[v_dead.count]),
			array_fill('poison'::text, ARRAY[v_dead.count]),
			array_fill(p_error, ARRAY[v_dead.count]),
			array_fill(p_group, ARRAY[v_dead.count]), p_kept);
	END IF;
END $$;

-- Until the end of the transaction names without a schema resolve to the
-- store's schema last: a role with the schema's name has it in its path first,
-- and handlers their own tables behind it. Only the order of the path changes,
-- so that "$user" follows the role that a handler sets. The system's schemas
-- stay behind the store's, or CREATE would use the store's. There is no query,
-- because this runs for every delivery. Returns the new path.
CREATE FUNCTION @look_away_1() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	v_own text := substr('@', 2, length('@') - 3); -- no quotes, no dot
	v_item text;
	v_others text := '';
	v_ours text := '';
	v_system text := '';
BEGIN
	IF v_own <> ALL (current_schemas(false)) THEN
		RETURN NULL;
	END IF;
	-- At commas that are followed by an even number of quotes.
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

-- Begins a transaction of handlers: returns whether it has the right to, and
-- its id.
CREATE FUNCTION @begin_units_1(p_node bigint, p_lock text,
	p_lock_fence bigint, p_pledge bigint, OUT held boolean, OUT xid bigint)
	LANGUAGE plpgsql AS $$
DECLARE
	v_path text;
BEGIN
	held := @holds_1(p_node, p_lock, p_lock_fence);
	INSERT INTO @pledge (id) VALUES (p_pledge);
	v_path := @look_away_1();
	xid := pg_current_xact_id()::text::bigint;
END $$;

-- Removes a delivery from the open ones, which proves its lease. Returns the
-- number of its starts, NULL if the lease is lost. In PL/pgSQL, which keeps the
-- plan; a function in SQL would be planned for each call.
CREATE FUNCTION @take_unit_1(p_node bigint, p_seq bigint, p_handler integer,
	p_fence bigint) RETURNS integer LANGUAGE plpgsql
	SET enable_seqscan = off AS $$
DECLARE
	v_starts integer;
BEGIN
	DELETE FROM @open WHERE seq = p_seq AND handler = p_handler
		AND fence = p_fence AND node = p_node RETURNING starts INTO v_starts;
	RETURN v_starts;
END $$;

-- Resets what a handler did to its session and could affect the next one, or
-- others. In the handler's transaction: afterwards a pooler may assign another
-- session.
CREATE FUNCTION @forget_1() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_path text;
BEGIN
	IF current_setting('transaction_read_only')::boolean THEN
		-- Otherwise the error would depend on whether a later statement writes.
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
	v_path := @look_away_1();
END $$;

-- Records that a unit is done (3) or discarded (5), if this is still the
-- transaction in which its delivery was removed.
CREATE FUNCTION @end_unit_1(p_xid bigint, p_now bigint, p_seq bigint,
	p_handler integer, p_fence bigint, p_state smallint, p_failures integer,
	p_starts integer, p_duration bigint, p_error text, p_kept integer)
	RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_now bigint;
BEGIN
	PERFORM @forget_1();
	v_now := coalesce(p_now, @now_ms());
	IF pg_current_xact_id()::text::bigint <> p_xid THEN
		RAISE 'handler ended the transaction itself'
			USING ERRCODE = 'invalid_transaction_termination';
	END IF;
	-- The delivery was removed, unless the handler rolled back to an earlier
	-- savepoint.
	PERFORM 1 FROM @open WHERE seq = p_seq AND handler = p_handler;
	IF FOUND THEN
		RAISE 'handler rolled back to before its delivery began'
			USING ERRCODE = 'invalid_transaction_termination';
	END IF;
	INSERT INTO @ledger (seq, fence, finished_at, duration, handler, failures,
			starts, crashes, state)
		VALUES (p_seq, p_fence, v_now, p_duration, p_handler, p_failures,
			p_starts, 0, p_state);
	INSERT INTO @handler_tally (handler, done, discarded)
		VALUES (p_handler, (p_state = 3)::integer, (p_state = 5)::integer);
	IF p_state = 5 THEN
		PERFORM @keep_attempts_1(ARRAY[p_seq], ARRAY[p_handler],
			ARRAY[p_fence], ARRAY[v_now - p_duration], ARRAY[v_now],
			ARRAY['discard'], ARRAY[p_error], NULL, p_kept);
	END IF;
END $$;

-- Moves several deliveries to the ledger at once. Returns how many.
CREATE FUNCTION @take_batch_1(p_node bigint, p_now bigint, p_seq bigint[],
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
		DELETE FROM @open o USING unnest(p_seq, p_handler, p_fence, p_failures)
			AS s (seq, handler, fence, failures)
		CROSS JOIN LATERAL (SELECT k.ctid AS place FROM @open k
			WHERE k.seq = s.seq AND k.handler = s.handler OFFSET 0) AS k
		WHERE o.ctid = k.place AND (o.fence, o.node) = (s.fence, p_node)
		RETURNING o.seq, o.fence, o.handler, s.failures, o.starts
	), ended AS (
		INSERT INTO @ledger (seq, fence, finished_at, duration, handler,
				failures, starts, crashes, state)
		SELECT seq, fence, p_now, 0, handler, failures, starts, 0, 3
		FROM gone
	), tally AS (
		INSERT INTO @handler_tally (handler, done)
		SELECT handler, count(*) FROM gone GROUP BY handler
	)
	SELECT count(*) INTO v_taken FROM gone;
	RETURN v_taken;
END $$;

-- Begins a pipeline of handlers, which cannot end the transaction: all their
-- deliveries are moved to the ledger as done, or it fails. So no statement has
-- to follow, except one with the duration, if it is noticeable. A pipeline of
-- one unit is the most common.
CREATE FUNCTION @take_units_1(p_node bigint, p_now bigint, p_lock text,
	p_lock_fence bigint, p_seq bigint[], p_handler integer[],
	p_fence bigint[], p_failures integer[],
	OUT xid bigint, OUT pid integer) LANGUAGE plpgsql
	SET enable_seqscan = off AS $$
DECLARE
	v_now bigint := coalesce(p_now, @now_ms());
	v_starts integer;
	v_taken bigint := 0;
	v_path text;
BEGIN
	IF NOT @holds_1(p_node, p_lock, p_lock_fence) THEN
		NULL;
	ELSIF cardinality(p_seq) > 1 THEN
		v_taken := @take_batch_1(p_node, v_now, p_seq, p_handler, p_fence,
			p_failures);
	ELSE
		DELETE FROM @open WHERE seq = p_seq[1] AND handler = p_handler[1]
			AND fence = p_fence[1] AND node = p_node
			RETURNING starts INTO v_starts;
		IF FOUND THEN
			v_taken := 1;
			INSERT INTO @ledger (seq, fence, finished_at, duration, handler,
					failures, starts, crashes, state)
				VALUES (p_seq[1], p_fence[1], v_now, 0, p_handler[1],
					p_failures[1], v_starts, 0, 3);
			INSERT INTO @handler_tally (handler, done)
				VALUES (p_handler[1], 1);
		END IF;
	END IF;
	IF v_taken <> cardinality(p_seq) THEN
		RAISE 'a lease is lost' USING ERRCODE = 'serialization_failure';
	END IF;
	v_path := @look_away_1();
	xid := pg_current_xact_id()::text::bigint;
	pid := pg_backend_pid();
END $$;

-- Records the duration of units, an equal part for each.
CREATE FUNCTION @tell_duration_1(p_now bigint, p_seq bigint[],
	p_handler integer[], p_duration bigint) RETURNS void LANGUAGE plpgsql
	SET enable_hashjoin = off SET enable_mergejoin = off
	SET enable_material = off
	SET enable_seqscan = off SET jit = off AS $$
BEGIN
	UPDATE @ledger l SET finished_at = coalesce(p_now, @now_ms()),
			duration = p_duration
		FROM unnest(p_seq, p_handler) AS u (seq, handler)
		CROSS JOIN LATERAL (SELECT k.ctid AS place FROM @ledger k
			WHERE k.seq = u.seq AND k.handler = u.handler OFFSET 0) AS k
		WHERE l.ctid = k.place;
END $$;

-- The state of a row of marker: 0 unknown, 1 running, 2 done. A lease has also
-- ended if the clock was set back by more than it lasts.
CREATE FUNCTION @mark_state_1(p_until bigint, p_at bigint, p_now bigint)
	RETURNS integer LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE WHEN p_until = 0 THEN 2
		WHEN p_now < p_until AND p_now >= p_at - (p_until - p_at) THEN 1
		ELSE 0 END
$$;

-- What all rows of a marker say together, and how many there are: before, how
-- long a lease lasts, whether all have the fence, whether a lease has another.
-- In PL/pgSQL, which keeps the plans; a function in SQL would be planned for
-- each call, and this runs for every copy of a message.
CREATE FUNCTION @mark_read_1(p_now bigint, p_handler bigint[], p_key uuid[],
	p_fence bigint, OUT before integer, OUT remaining bigint, OUT mine boolean,
	OUT rival boolean, OUT present bigint) LANGUAGE plpgsql STABLE
	SET enable_seqscan = off AS $$
DECLARE
	v_fence bigint;
	v_until bigint;
	v_at bigint;
	v_state integer;
BEGIN
	before := 0;
	remaining := 0;
	mine := true;
	rival := false;
	present := 0;
	FOR i IN 1 .. cardinality(p_key) LOOP
		SELECT fence, lease_until, at INTO v_fence, v_until, v_at FROM @marker
			WHERE handler = p_handler[i] AND key = p_key[i]
			AND lease_until <> 1;
		CONTINUE WHEN NOT FOUND;
		p_now := coalesce(p_now, @now_ms());
		v_state := @mark_state_1(v_until, v_at, p_now);
		before := greatest(before, v_state);
		mine := mine AND v_fence = p_fence;
		present := present + 1;
		IF v_state = 1 THEN
			remaining := greatest(remaining, v_until - p_now);
			rival := rival OR v_fence <> p_fence;
		END IF;
	END LOOP;
END $$;

CREATE FUNCTION @mark_write_1(p_handler bigint[], p_key uuid[], p_fence bigint,
	p_until bigint, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO @marker (handler, key, fence, lease_until, at)
		SELECT k.handler, k.key, p_fence, p_until, p_now
		FROM unnest(p_handler, p_key) AS k (handler, key)
		ON CONFLICT (handler, key) DO UPDATE SET fence = excluded.fence,
			lease_until = excluded.lease_until, at = excluded.at;
END $$;

-- Locks the rows of a marker, which exist then, against other transactions. The
-- keys are in ascending order, so that two transactions cannot deadlock. Waits
-- at most p_wait ms for all of them together.
CREATE FUNCTION @mark_lock_1(p_handler bigint[], p_key uuid[], p_wait bigint)
	RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_timeout text := current_setting('lock_timeout');
	-- As long as the setting can be, 24 days.
	v_wait integer := least(p_wait, 2147483647);
	v_end timestamptz := clock_timestamp() + v_wait * interval '1 ms';
BEGIN
	FOR i IN 1 .. cardinality(p_key) LOOP
		IF i > 1 THEN
			v_wait := extract(epoch FROM v_end - clock_timestamp()) * 1000;
		END IF;
		-- 0 would be without end.
		PERFORM set_config('lock_timeout', greatest(v_wait, 1)::text, true);
		-- Again if it was removed while this waited for it: of all that waited,
		-- one inserts it.
		LOOP
			INSERT INTO @marker (handler, key, fence, lease_until, at)
				VALUES (p_handler[i], p_key[i], 0, 1, 1)
				ON CONFLICT (handler, key) DO NOTHING;
			EXIT WHEN FOUND;
			PERFORM 1 FROM @marker WHERE handler = p_handler[i]
				AND key = p_key[i] FOR UPDATE;
			EXIT WHEN FOUND;
		END LOOP;
	END LOOP;
	PERFORM set_config('lock_timeout', v_timeout, true);
END $$;

-- Changes a marker: postern_mark_request, whose kinds are 0 begin, 1 extend,
-- 2 finish, 3 release, 4 try, 5 record, 7 forget.
CREATE FUNCTION @mark_change_1(p_now bigint, p_wait bigint, p_kind integer,
	p_handler bigint[], p_key uuid[], p_fence bigint, p_lease bigint,
	OUT before integer, OUT remaining bigint, OUT stale boolean)
	LANGUAGE plpgsql AS $$
DECLARE
	v_now bigint := coalesce(p_now, @now_ms());
	s record;
BEGIN
	stale := false;
	s := @mark_read_1(v_now, p_handler, p_key, p_fence);
	-- A copy of what is done, or is running, needs no lock.
	IF p_kind IN (0, 4, 5) AND (s.before = 2 AND NOT s.mine
			OR s.rival AND p_kind <> 5) THEN
		before := s.before;
		remaining := s.remaining;
		RETURN;
	END IF;
	PERFORM @mark_lock_1(p_handler, p_key, p_wait);
	v_now := coalesce(p_now, @now_ms());
	s := @mark_read_1(v_now, p_handler, p_key, p_fence);
	before := s.before;
	remaining := s.remaining;
	stale := p_kind IN (1, 2, 3) AND (s.present = 0 OR NOT s.mine
		OR s.before = 2 AND p_kind <> 2 OR s.before <> 1 AND p_kind = 1);
	-- Repeated, with the fence of the first time.
	IF p_kind = 0 AND s.before = 1 AND NOT s.rival
			OR p_kind IN (4, 5) AND s.before = 2 AND s.mine THEN
		before := 0;
		remaining := 0;
	END IF;
	IF p_kind = 0 AND before = 0 OR p_kind = 1 AND NOT stale THEN
		PERFORM @mark_write_1(p_handler, p_key, p_fence, v_now + p_lease,
			v_now);
	ELSIF p_kind = 2 AND NOT stale AND before <> 2
			OR p_kind IN (4, 5) AND s.before = 0
			OR p_kind = 5 AND s.before = 1 THEN
		PERFORM @mark_write_1(p_handler, p_key, p_fence, 0, v_now);
	ELSIF p_kind = 7 OR p_kind = 3 AND NOT stale THEN
		DELETE FROM @marker m USING unnest(p_handler, p_key)
			AS k (handler, key)
			WHERE m.handler = k.handler AND m.key = k.key;
	ELSE
		DELETE FROM @marker m USING unnest(p_handler, p_key)
			AS k (handler, key)
			WHERE m.handler = k.handler AND m.key = k.key
			AND m.lease_until = 1;
	END IF;
END $$;

-- Takes the marker inside the transaction that runs its function: done if it was
-- unknown. Returns the state before.
CREATE FUNCTION @mark_take_1(p_now bigint, p_wait bigint, p_handler bigint[],
	p_key uuid[], p_fence bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
	v_now bigint;
	s record;
BEGIN
	s := @mark_read_1(p_now, p_handler, p_key, p_fence);
	IF s.before > 0 THEN
		RETURN s.before;
	END IF;
	PERFORM @mark_lock_1(p_handler, p_key, p_wait);
	v_now := coalesce(p_now, @now_ms());
	s := @mark_read_1(v_now, p_handler, p_key, p_fence);
	IF s.before = 0 THEN
		PERFORM @mark_write_1(p_handler, p_key, p_fence, 0, v_now);
	END IF;
	RETURN s.before;
END $$;

-- Begins a transaction with a marker instead of deliveries, see begin_units_1,
-- under a lock_timeout. Returns the marker's state before, and the transaction's
-- id if it was unknown. Each statement and each expression of PL/pgSQL is
-- prepared once in a transaction, so there are few for a key that is new.
CREATE FUNCTION @begin_marked_1(p_pledge bigint, p_now bigint, p_wait bigint,
	p_handler bigint[], p_key uuid[], p_fence bigint, OUT before integer,
	OUT xid bigint) LANGUAGE plpgsql AS $$
DECLARE
	v_seen boolean;
BEGIN
	WITH m AS (
		INSERT INTO @marker (handler, key, fence, lease_until, at)
			SELECT p_handler[1], p_key[1], p_fence, 0,
				coalesce(p_now, @now_ms())
			WHERE cardinality(p_key) = 1
			ON CONFLICT (handler, key) DO NOTHING
			RETURNING fence
	)
	INSERT INTO @pledge (id) SELECT p_pledge FROM m
		RETURNING 0, pg_current_xact_id()::text::bigint,
			substr('@', 2, length('@') - 3) = ANY (current_schemas(false))
		INTO before, xid, v_seen;
	IF before IS NULL THEN
		before := @mark_take_1(p_now, p_wait, p_handler, p_key, p_fence);
		IF before = 0 THEN
			INSERT INTO @pledge (id) VALUES (p_pledge);
			xid := pg_current_xact_id()::text::bigint;
			v_seen := true;
		END IF;
	END IF;
	RESET lock_timeout;
	IF v_seen THEN
		PERFORM @look_away_1();
	END IF;
END $$;

-- The end of a marked function, whose session was reset: what else forget_1 does,
-- and the end of the pledge. As the pledge is there, so is the marker, and this is
-- the transaction in which both were written.
CREATE FUNCTION @mark_end_1(p_pledge bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM @pledge WHERE id = p_pledge;
	IF NOT FOUND THEN
		RAISE 'handler ended the transaction itself'
			USING ERRCODE = 'invalid_transaction_termination';
	END IF;
	DISCARD TEMP;
	EXECUTE 'CLOSE ALL';
	UNLISTEN *;
END $$;

-- Removes what has been done for longer than p_older ms among the next p_max
-- markers after the cursor. p_handler: NULL for all.
CREATE FUNCTION @mark_expire_1(p_now bigint, p_older bigint, p_max integer,
	p_only bigint, p_handler bigint, p_key uuid, OUT removed bigint,
	OUT examined bigint, OUT last_handler bigint, OUT last_key uuid)
	LANGUAGE plpgsql AS $$
DECLARE
	v_before bigint := coalesce(p_now, @now_ms()) - p_older;
BEGIN
	WITH piece AS (
		SELECT handler, key, lease_until, at FROM @marker
		WHERE (handler, key) > (p_handler, p_key)
			AND (p_only IS NULL OR handler = p_only)
		ORDER BY handler, key LIMIT p_max
	), gone AS (
		DELETE FROM @marker m USING piece p
		WHERE m.handler = p.handler AND m.key = p.key AND m.lease_until = 0
			AND m.at <= v_before
		RETURNING 1
	)
	SELECT (SELECT count(*) FROM gone), count(*),
			(array_agg(handler ORDER BY handler DESC, key DESC))[1],
			(array_agg(key ORDER BY handler DESC, key DESC))[1]
		INTO removed, examined, last_handler, last_key FROM piece;
END $$;
