/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_SQLITE_PUBLISH_SQL_H
#define POSTERN_STORE_SQLITE_PUBLISH_SQL_H

/*
 * What "insert into postern_publish …" runs: the view postern_publish shows
 * what is staged, and its trigger validates a message and stages it, with the
 * rules of the library. The text is compiled into two triggers: that of the
 * schema, for all programs that write to a shared file, and that of the writer
 * of a file that is not shared, for the handlers of this process (stage.c).
 *
 * Before 3.47 RAISE() takes a literal only, so a text cannot name the message.
 * Functions and tables of SQLite 3.38 are sufficient, and all of them are
 * allowed with "PRAGMA trusted_schema = OFF".
 */

#define SQLITE_PUBLISH_VIEW "postern_publish"
#define SQLITE_PUBLISH_TRIGGER "postern_publish_insert"

#define SQLITE_PUBLISH_COLUMNS                                 \
	"channel, type, body, id, source, subject, headers, time," \
	" content_type, correlation_id, traceparent"

/* clang-format off */

#define SQLITE_PUBLISH_REFUSE(text, condition) \
"	SELECT RAISE(ABORT, 'postern_publish: " text "')\n" \
"	WHERE " condition ";\n"

/* What matches a text with a control character. */
#define SQLITE_PUBLISH_CONTROL \
"	'*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'"

#define SQLITE_PUBLISH_LONGER(column, len) \
"length(CAST(" column " AS BLOB)) > " len

/* The value of a header that has a column of its own. */
#define SQLITE_PUBLISH_HEADER(condition) \
"(SELECT value FROM json_each(NEW.headers) WHERE " condition " LIMIT 1)"

#define SQLITE_PUBLISH_NO_CHANNEL "no such channel"

#define SQLITE_PUBLISH_BODY \
SQLITE_PUBLISH_REFUSE(SQLITE_PUBLISH_NO_CHANNEL "; the server enrols the channels of its configuration when it starts", \
"NEW.channel IS NULL OR NOT EXISTS\n" \
"		(SELECT 1 FROM postern_channel_name WHERE name = NEW.channel)") \
SQLITE_PUBLISH_REFUSE("the type is missing, or not a text", \
"typeof(NEW.type) <> 'text'") \
SQLITE_PUBLISH_REFUSE("the body is neither a text nor a blob", \
"typeof(NEW.body) NOT IN ('text', 'blob')") \
SQLITE_PUBLISH_REFUSE("the body is longer than max_message_size of the channel", \
"length(CAST(NEW.body AS BLOB)) > (SELECT c.max_size\n" \
"		FROM postern_channel_name n JOIN postern_channel c ON c.id = n.channel\n" \
"		WHERE n.name = NEW.channel)") \
SQLITE_PUBLISH_REFUSE("the id is empty, a blob, or longer than 200 characters or 800 bytes", \
"NEW.id IS NOT NULL AND (typeof(NEW.id) = 'blob' OR NEW.id = ''\n" \
"		OR length(NEW.id) > 200 OR " SQLITE_PUBLISH_LONGER("NEW.id", "800") ")") \
SQLITE_PUBLISH_REFUSE("the source is empty", "NEW.source = ''") \
SQLITE_PUBLISH_REFUSE("an attribute is longer than 1024 bytes, the time than 64, or the traceparent than 256", \
SQLITE_PUBLISH_LONGER("NEW.type", "1024") "\n" \
"		OR " SQLITE_PUBLISH_LONGER("NEW.source", "1024") "\n" \
"		OR " SQLITE_PUBLISH_LONGER("NEW.subject", "1024") "\n" \
"		OR " SQLITE_PUBLISH_LONGER("NEW.content_type", "1024") "\n" \
"		OR " SQLITE_PUBLISH_LONGER("NEW.correlation_id", "1024") "\n" \
"		OR " SQLITE_PUBLISH_LONGER("NEW.time", "64") "\n" \
"		OR " SQLITE_PUBLISH_LONGER("NEW.traceparent", "256")) \
SQLITE_PUBLISH_REFUSE("an attribute contains a control character", \
"EXISTS (SELECT 1 FROM (SELECT NEW.id AS text UNION ALL SELECT NEW.type\n" \
"		UNION ALL SELECT NEW.source UNION ALL SELECT NEW.subject\n" \
"		UNION ALL SELECT NEW.time UNION ALL SELECT NEW.content_type\n" \
"		UNION ALL SELECT NEW.correlation_id UNION ALL SELECT NEW.traceparent)\n" \
"		WHERE instr(text, char(0)) > 0 OR text GLOB\n	" SQLITE_PUBLISH_CONTROL ")") \
SQLITE_PUBLISH_REFUSE("the headers are not a JSON object of texts", \
"NEW.headers IS NOT NULL AND (NOT json_valid(NEW.headers)\n" \
"		OR json_type(NEW.headers) <> 'object')") \
SQLITE_PUBLISH_REFUSE("a header has no name, is not a text, is too long, or contains a control character", \
"EXISTS (SELECT 1 FROM json_each(NEW.headers)\n" \
"		WHERE key = '' OR type <> 'text'\n" \
"		OR " SQLITE_PUBLISH_LONGER("key", "128") "\n" \
"		OR " SQLITE_PUBLISH_LONGER("value", "8192") "\n" \
"		OR instr(key || value, char(0)) > 0 OR key || value GLOB\n	" SQLITE_PUBLISH_CONTROL ")") \
SQLITE_PUBLISH_REFUSE("there are more than 64 headers, or they have more than 65536 bytes", \
"(SELECT count(*) > 64 OR sum(length(CAST(key || value AS BLOB))) > 65536\n" \
"		FROM json_each(NEW.headers))") \
"	INSERT INTO postern_staged (channel, id, source, type, subject, time,\n" \
"		content_type, correlation_id, traceparent, headers, body)\n" \
"	SELECT n.channel, coalesce(NEW.id, lower(hex(randomblob(4)) || '-'\n" \
"			|| hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2)\n" \
"			|| '-' || substr('89AB', 1 + (random() & 3), 1)\n" \
"			|| substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),\n" \
"		NEW.source, NEW.type, NEW.subject, NEW.time,\n" \
"		coalesce(NEW.content_type, " SQLITE_PUBLISH_HEADER("lower(key) = 'content-type'") "),\n" \
"		coalesce(NEW.correlation_id, " SQLITE_PUBLISH_HEADER("lower(key) IN\n			('correlation-id', 'x-correlation-id')") "),\n" \
"		coalesce(NEW.traceparent, " SQLITE_PUBLISH_HEADER("lower(key) = 'traceparent'") "),\n" \
"		(SELECT CAST(group_concat(key || char(0) || value || char(0), '') AS BLOB)\n" \
"			FROM json_each(NEW.headers) WHERE lower(key) NOT IN ('content-type',\n" \
"			'correlation-id', 'x-correlation-id', 'traceparent')),\n" \
"		NEW.body FROM postern_channel_name n WHERE n.name = NEW.channel;\n"

/* clang-format on */

#endif
