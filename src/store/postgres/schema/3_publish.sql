-- Staging in a transaction: the functions for publishers, and for nodes that
-- collect what they staged.

-- Validates one attribute of a message, with the rules of the library.
CREATE FUNCTION @check_attribute_1(p_name text, p_text text, p_max integer)
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

-- Stages a message and returns its id. Runs with the privileges of the schema's
-- owner, so that publishers need only USAGE of the schema.
--
-- Notifications make commits wait for each other, so one is sent only if all
-- nodes sleep; a node that is just falling asleep polls again within a second.
CREATE FUNCTION @stage_1(p_channel text, p_type text, p_body bytea, p_id text,
	p_source text, p_subject text, p_headers jsonb, p_content_type text)
	RETURNS text LANGUAGE plpgsql SECURITY DEFINER
	SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_id text := p_id;
	v_channel record;
BEGIN
	SELECT c.id, c.max_size, (SELECT bool_and(rests) FROM @node_sleep) AS all_rest
		INTO v_channel FROM @channel c WHERE c.name = p_channel;
	IF NOT FOUND THEN -- perhaps a former name
		SELECT c.id, c.max_size,
			(SELECT bool_and(rests) FROM @node_sleep) AS all_rest
			INTO v_channel FROM @channel_name n JOIN @channel c ON c.id = n.channel
			WHERE n.name = p_channel;
	END IF;
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
		PERFORM @check_attribute_1('the id', v_id, 800);
	END IF;
	IF p_source = '' THEN
		RAISE 'postern.publish: the source is empty'
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	IF octet_length(p_type) > 1024 OR p_type ~ '[\x01-\x1f\x7f-\x9f]' THEN
		PERFORM @check_attribute_1('the type', p_type, 1024); -- raises
	END IF;
	IF coalesce(p_source, p_subject) IS NOT NULL THEN
		PERFORM @check_attribute_1('the source', p_source, 1024);
		PERFORM @check_attribute_1('the subject', p_subject, 1024);
	END IF;
	IF p_headers IS NULL THEN
		INSERT INTO @staged (channel, id, source, type, subject, content_type,
				body)
			VALUES (v_channel.id, v_id, p_source, p_type, p_subject,
				p_content_type, p_body);
	ELSE
		IF jsonb_typeof(p_headers) <> 'object' THEN
			RAISE 'postern.publish: headers are a JSON object of texts'
				USING ERRCODE = 'invalid_parameter_value';
		END IF;
		PERFORM @check_attribute_1('the traceparent',
			@header_1(p_headers, 'traceparent'), 256);
		PERFORM @check_attribute_1('the content type',
			@header_1(p_headers, 'content-type'), 1024);
		PERFORM @check_attribute_1('the correlation id', coalesce(
			@header_1(p_headers, 'correlation-id'),
			@header_1(p_headers, 'x-correlation-id')), 1024);
		INSERT INTO @staged (channel, id, source, type, subject, content_type,
				correlation_id, traceparent, headers, body)
			VALUES (v_channel.id, v_id, p_source, p_type, p_subject,
				coalesce(@header_1(p_headers, 'content-type'), p_content_type),
				coalesce(@header_1(p_headers, 'correlation-id'),
					@header_1(p_headers, 'x-correlation-id')),
				@header_1(p_headers, 'traceparent'),
				@pack_headers_1(p_headers), p_body);
	END IF;
	IF v_channel.all_rest THEN
		PERFORM pg_notify(@bell_1(), '');
	END IF;
	RETURN v_id;
END $$;

-- The functions for publishers, with a body of text, JSON or bytes. A text
-- without a content type is text.
CREATE FUNCTION @publish(channel text, type text, body text,
	id text DEFAULT NULL, source text DEFAULT NULL, subject text DEFAULT NULL,
	headers jsonb DEFAULT NULL) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT @stage_1($1, $2, convert_to($3, 'UTF8'), $4, $5, $6, $7, NULL);
$$;
CREATE FUNCTION @publish(channel text, type text, body jsonb,
	id text DEFAULT NULL, source text DEFAULT NULL, subject text DEFAULT NULL,
	headers jsonb DEFAULT NULL) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT @stage_1($1, $2, convert_to($3::text, 'UTF8'), $4, $5, $6, $7,
		'application/json');
$$;
CREATE FUNCTION @publish(channel text, type text, body bytea,
	id text DEFAULT NULL, source text DEFAULT NULL, subject text DEFAULT NULL,
	headers jsonb DEFAULT NULL) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT @stage_1($1, $2, $3, $4, $5, $6, $7, NULL);
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
			t.subject, NULL::text, t.content_type, t.correlation_id,
			t.traceparent, 'publish'::text, t.headers, t.body, 0::bigint,
			pg_current_xact_id()::text::bigint
		FROM (SELECT *, sum(octet_length(body)) OVER (ORDER BY n
				ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
			FROM taken) AS t
		JOIN @channel c ON c.id = t.channel
		WHERE coalesce(t.before, 0) <= p_bytes ORDER BY t.n;
END $$;
