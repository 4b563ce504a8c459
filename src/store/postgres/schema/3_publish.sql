-- Staging in a transaction: the functions for publishers, and for nodes that
-- collect what they staged.

-- Validates one attribute of a message, with the rules of the library.
CREATE FUNCTION @check_attribute_1(p_name text, p_text text, p_max integer)
	RETURNS void LANGUAGE plpgsql IMMUTABLE
	SET search_path = pg_catalog, pg_temp AS $$
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

-- Headers as they are stored: name, zero byte, value, zero byte, …
CREATE FUNCTION @pack_headers_1(p_headers jsonb)
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
		PERFORM @check_attribute_1('a header''s name', v_header.key, 128);
		PERFORM @check_attribute_1('a header''s value', v_header.value #>> '{}',
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

-- The value of a header that has a column of its own.
CREATE FUNCTION @header_1(p_headers jsonb, p_name text)
	RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT value #>> '{}' FROM jsonb_each(p_headers)
		WHERE lower(key) = p_name LIMIT 1;
$$;

-- Raises unless the id is valid.
CREATE FUNCTION @check_id_1(p_id text)
	RETURNS void LANGUAGE plpgsql IMMUTABLE
	SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF p_id = '' OR length(p_id) > 200 THEN
		RAISE 'postern.publish: the id has % characters, and 1 to 200 are '
			'allowed', length(p_id) USING ERRCODE = 'invalid_parameter_value';
	END IF;
	PERFORM @check_attribute_1('the id', p_id, 800);
END $$;

-- Stages a message that has more than an id, a type and a body.
CREATE FUNCTION @stage_full_1(p_channel integer, p_id text, p_type text,
	p_body bytea, p_source text, p_subject text, p_headers jsonb,
	p_content_type text, p_time text, p_correlation_id text, p_traceparent text)
	RETURNS void LANGUAGE plpgsql
	SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_content_type text := p_content_type;
	v_correlation_id text := p_correlation_id;
	v_traceparent text := p_traceparent;
BEGIN
	IF p_source = '' THEN
		RAISE 'postern.publish: the source is empty'
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	IF jsonb_typeof(p_headers) <> 'object' THEN
		RAISE 'postern.publish: headers are a JSON object of texts'
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	IF p_headers IS NOT NULL THEN
		v_content_type := coalesce(@header_1(p_headers, 'content-type'),
			v_content_type);
		v_correlation_id := coalesce(v_correlation_id,
			@header_1(p_headers, 'correlation-id'),
			@header_1(p_headers, 'x-correlation-id'));
		v_traceparent := coalesce(v_traceparent,
			@header_1(p_headers, 'traceparent'));
	END IF;
	PERFORM @check_attribute_1('the source', p_source, 1024),
		@check_attribute_1('the subject', p_subject, 1024),
		@check_attribute_1('the time', p_time, 64),
		@check_attribute_1('the traceparent', v_traceparent, 256),
		@check_attribute_1('the content type', v_content_type, 1024),
		@check_attribute_1('the correlation id', v_correlation_id, 1024);
	INSERT INTO @staged (channel, id, source, type, subject, time,
			content_type, correlation_id, traceparent, headers, body)
		VALUES (p_channel, p_id, p_source, p_type, p_subject, p_time,
			v_content_type, v_correlation_id, v_traceparent,
			@pack_headers_1(p_headers), p_body);
END $$;

-- Stages a message and returns its id. Runs with the privileges of the schema's
-- owner, so that publishers need only USAGE of the schema.
--
-- Setting search_path for each call would cost more than the insert. Instead
-- every name in here is qualified, those of operators too, so that nothing of
-- the caller's is run with the owner's privileges. Keep it so: a test looks.
--
-- Notifications make commits wait for each other, so one is sent only if all
-- nodes sleep; a node that is just falling asleep polls again within a second.
CREATE FUNCTION @stage_1(p_channel text, p_type text, p_body bytea, p_id text,
	p_source text, p_subject text, p_headers jsonb, p_content_type text,
	p_time text, p_correlation_id text, p_traceparent text)
	RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
	v_id pg_catalog.text := p_id;
	v_channel pg_catalog.int4;
	v_max pg_catalog.int8;
	v_all_rest pg_catalog.bool;
BEGIN
	SELECT c.id, c.max_size,
		(SELECT pg_catalog.bool_and(rests) FROM @node_sleep)
		INTO v_channel, v_max, v_all_rest FROM @channel c
		WHERE c.name OPERATOR(pg_catalog.=) p_channel;
	IF v_channel IS NULL THEN -- perhaps a former name
		SELECT c.id, c.max_size,
			(SELECT pg_catalog.bool_and(rests) FROM @node_sleep)
			INTO v_channel, v_max, v_all_rest
			FROM @channel_name n JOIN @channel c
				ON c.id OPERATOR(pg_catalog.=) n.channel
			WHERE n.name OPERATOR(pg_catalog.=) p_channel;
	END IF;
	IF v_channel IS NULL THEN
		RAISE 'postern.publish: no channel "%"', p_channel
			USING ERRCODE = 'undefined_object', HINT = 'Nodes enrol the channels '
				'of their configuration when they start.';
	END IF;
	IF p_type IS NULL OR p_body IS NULL THEN
		RAISE 'postern.publish: the type or the body is NULL'
			USING ERRCODE = 'null_value_not_allowed';
	END IF;
	IF pg_catalog.octet_length(p_body) OPERATOR(pg_catalog.>) v_max THEN
		RAISE 'postern.publish: the body has % bytes, the limit of channel "%" '
			'is %', pg_catalog.octet_length(p_body), p_channel, v_max
			USING ERRCODE = 'program_limit_exceeded',
				HINT = 'The limit is max_message_size of the channel.';
	END IF;
	IF v_id IS NULL THEN
		v_id := pg_catalog.gen_random_uuid();
	ELSIF pg_catalog.octet_length(v_id) OPERATOR(pg_catalog.>) 200
		OR v_id OPERATOR(pg_catalog.~) '^$|[\x01-\x1f\x7f-\x9f]'
	THEN
		PERFORM @check_id_1(v_id); -- raises, unless it has long characters
	END IF;
	IF pg_catalog.octet_length(p_type) OPERATOR(pg_catalog.>) 1024
		OR p_type OPERATOR(pg_catalog.~) '[\x01-\x1f\x7f-\x9f]'
	THEN
		PERFORM @check_attribute_1('the type', p_type, 1024); -- raises
	END IF;
	IF COALESCE(p_source, p_subject, p_time, p_correlation_id, p_traceparent)
			IS NULL AND p_headers IS NULL AND (p_content_type IS NULL
			OR p_content_type OPERATOR(pg_catalog.=) 'application/json')
	THEN
		INSERT INTO @staged (channel, id, type, content_type, body)
			VALUES (v_channel, v_id, p_type, p_content_type, p_body);
	ELSE
		PERFORM @stage_full_1(v_channel, v_id, p_type, p_body, p_source,
			p_subject, p_headers, p_content_type, p_time, p_correlation_id,
			p_traceparent);
	END IF;
	IF v_all_rest THEN
		PERFORM pg_catalog.pg_notify(@bell_1(), '');
	END IF;
	RETURN v_id;
END $$;

-- Stages several messages that differ in body and id; returns the ids. It has the
-- name of the other, so that an upgrade gives it the same privileges.
CREATE FUNCTION @stage_1(p_channel text, p_type text, p_bodies text[],
	p_ids text[], p_source text, p_subject text, p_headers jsonb,
	p_content_type text)
	RETURNS text[] LANGUAGE plpgsql SECURITY DEFINER
	SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_ids text[];
	v_bad text;
	v_content_type text := coalesce(@header_1(p_headers, 'content-type'),
		p_content_type);
	v_correlation_id text := coalesce(@header_1(p_headers, 'correlation-id'),
		@header_1(p_headers, 'x-correlation-id'));
	v_traceparent text := @header_1(p_headers, 'traceparent');
	v_channel integer;
	v_max bigint;
BEGIN
	SELECT c.id, c.max_size INTO v_channel, v_max
		FROM @channel_name n JOIN @channel c ON c.id = n.channel
		WHERE n.name = p_channel;
	IF NOT FOUND THEN
		RAISE 'postern.publish: no channel "%"', p_channel
			USING ERRCODE = 'undefined_object', HINT = 'Nodes enrol the channels '
				'of their configuration when they start.';
	END IF;
	IF p_type IS NULL OR p_bodies IS NULL THEN
		RAISE 'postern.publish: the type or the bodies are NULL'
			USING ERRCODE = 'null_value_not_allowed';
	END IF;
	IF p_ids IS NOT NULL AND cardinality(p_ids) <> cardinality(p_bodies) THEN
		RAISE 'postern.publish: % ids for % bodies', cardinality(p_ids),
			cardinality(p_bodies) USING ERRCODE = 'invalid_parameter_value';
	END IF;
	SELECT CASE WHEN body IS NULL THEN 'body ' || n || ' is NULL'
		ELSE 'body ' || n || ' has ' || octet_length(body) || ' bytes, the limit '
			|| 'of channel "' || p_channel || '" is ' || v_max END
		INTO v_bad FROM unnest(p_bodies) WITH ORDINALITY AS b (body, n)
		WHERE body IS NULL OR octet_length(body) > v_max ORDER BY n LIMIT 1;
	IF v_bad IS NOT NULL THEN
		RAISE 'postern.publish: %', v_bad
			USING ERRCODE = 'program_limit_exceeded',
				HINT = 'The limit is max_message_size of the channel.';
	END IF;
	IF p_source = '' OR jsonb_typeof(p_headers) <> 'object' THEN
		RAISE 'postern.publish: the source is empty, or the headers are not '
			'a JSON object of texts' USING ERRCODE = 'invalid_parameter_value';
	END IF;
	PERFORM @check_id_1(id) FROM unnest(p_ids) AS id WHERE id IS NOT NULL;
	PERFORM @check_attribute_1('the type', p_type, 1024),
		@check_attribute_1('the source', p_source, 1024),
		@check_attribute_1('the subject', p_subject, 1024),
		@check_attribute_1('the traceparent', v_traceparent, 256),
		@check_attribute_1('the content type', v_content_type, 1024),
		@check_attribute_1('the correlation id', v_correlation_id, 1024);
	-- In the order of the items, whatever the bounds of the arrays are.
	v_ids := ARRAY(SELECT coalesce(b.id, gen_random_uuid()::text)
		FROM unnest(p_bodies, p_ids) WITH ORDINALITY AS b (body, id, n)
		ORDER BY b.n);
	INSERT INTO @staged (channel, id, source, type, subject, content_type,
			correlation_id, traceparent, headers, body)
		SELECT v_channel, b.id, p_source, p_type, p_subject, v_content_type,
			v_correlation_id, v_traceparent, @pack_headers_1(p_headers),
			convert_to(b.body, 'UTF8')
		FROM unnest(p_bodies, v_ids) WITH ORDINALITY AS b (body, id, n)
		ORDER BY b.n;
	IF (SELECT bool_and(rests) FROM @node_sleep) THEN
		PERFORM pg_notify(@bell_1(), '');
	END IF;
	RETURN v_ids;
END $$;

-- The functions for publishers, with a body of text, JSON or bytes. A text
-- without a content type is text.
CREATE FUNCTION @publish(channel text, type text, body text,
	id text DEFAULT NULL, source text DEFAULT NULL, subject text DEFAULT NULL,
	headers jsonb DEFAULT NULL) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT @stage_1($1, $2, pg_catalog.convert_to($3, 'UTF8'), $4, $5, $6, $7,
		NULL, NULL, NULL, NULL);
$$;
CREATE FUNCTION @publish(channel text, type text, body jsonb,
	id text DEFAULT NULL, source text DEFAULT NULL, subject text DEFAULT NULL,
	headers jsonb DEFAULT NULL) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT @stage_1($1, $2, pg_catalog.convert_to($3::pg_catalog.text, 'UTF8'),
		$4, $5, $6, $7, 'application/json', NULL, NULL, NULL);
$$;
CREATE FUNCTION @publish(channel text, type text, body bytea,
	id text DEFAULT NULL, source text DEFAULT NULL, subject text DEFAULT NULL,
	headers jsonb DEFAULT NULL) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT @stage_1($1, $2, $3, $4, $5, $6, $7, NULL, NULL, NULL, NULL);
$$;
CREATE FUNCTION @publish_many(channel text, type text, bodies text[],
	ids text[] DEFAULT NULL, source text DEFAULT NULL,
	subject text DEFAULT NULL, headers jsonb DEFAULT NULL)
	RETURNS text[] LANGUAGE sql VOLATILE AS $$
	SELECT @stage_1($1, $2, $3, $4, $5, $6, $7, NULL);
$$;
CREATE FUNCTION @publish_many(channel text, type text, bodies jsonb[],
	ids text[] DEFAULT NULL, source text DEFAULT NULL,
	subject text DEFAULT NULL, headers jsonb DEFAULT NULL)
	RETURNS text[] LANGUAGE sql VOLATILE AS $$
	SELECT @stage_1($1, $2, $3::pg_catalog.text[], $4, $5, $6, $7,
		'application/json');
$$;

-- Whether there is anything to collect. p_rests: the node will not poll again
-- soon unless it is woken; transactions that stage from now on see that.
CREATE FUNCTION @look_staged_1(p_node bigint, p_rests boolean)
	RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM 1 FROM @node_sleep WHERE node = p_node AND rests <> p_rests;
	IF FOUND THEN
		UPDATE @node_sleep SET rests = p_rests WHERE node = p_node;
	END IF;
	PERFORM 1 FROM @staged WHERE refused IS NULL LIMIT 1;
	RETURN FOUND;
END $$;

-- Locks and returns staged messages of those of these channels that are not
-- closed, at most p_max and none
-- after the body that exceeds p_bytes, in the order they were staged.
CREATE FUNCTION @take_staged_1(p_node bigint, p_channels integer[],
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
			SELECT s.ctid AS place, s.* FROM @staged s
			WHERE s.channel = ANY (p_channels) AND s.refused IS NULL
				AND s.channel NOT IN (
					SELECT c.id FROM @channel c WHERE c.closed)
			LIMIT p_max FOR UPDATE SKIP LOCKED
		)
		SELECT t.place, t.channel, t.id, coalesce(t.source, c.first_name, c.name), t.type,
			t.subject, t.time, t.content_type, t.correlation_id,
			t.traceparent, 'publish'::text, t.headers, t.body, 0::bigint,
			pg_current_xact_id()::text::bigint
		FROM (SELECT *, sum(octet_length(body)) OVER (ORDER BY n
				ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
			FROM taken) AS t
		JOIN @channel c ON c.id = t.channel
		WHERE coalesce(t.before, 0) <= p_bytes ORDER BY t.n;
END $$;
