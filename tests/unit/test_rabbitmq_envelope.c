/* SPDX-License-Identifier: MIT */

/*
 * URLs, routing keys, and what AMQP has of a message: rabbitmq/address.c,
 * template.c, envelope.c, outgoing.c.
 */

#include <math.h>

#include "rabbitmq/rabbitmq.h"
#include "tap.h"

static struct postern__rabbitmq_address parse(const char *url) {
	struct postern__rabbitmq_address address;
	struct postern_error error = { 0 };
	CHECK_OK(postern__rabbitmq_address_parse(url, &address, &error), &error);
	return address;
}

static void parts_of_a_url(void) {
	struct postern__rabbitmq_address address = parse("amqp://broker");
	CHECK_STR(address.user, "guest");
	CHECK_STR(address.password, "guest");
	CHECK_STR(address.vhost, "/");
	CHECK_STR(address.hosts[0].name, "broker");
	CHECK_INT(address.hosts[0].port, 5672);
	CHECK_INT(address.host_count, 1);
	address = parse("amqps://a%40b:p%3A%2F%2C@one,two:99,[::1]:7/shop%2Feu");
	CHECK(address.tls);
	CHECK_STR(address.user, "a@b");
	CHECK_STR(address.password, "p:/,");
	CHECK_STR(address.vhost, "shop/eu");
	CHECK_INT(address.host_count, 3);
	CHECK_INT(address.hosts[0].port, 5671);
	CHECK_INT(address.hosts[1].port, 99);
	CHECK_STR(address.hosts[2].name, "::1");
	CHECK_INT(address.hosts[2].port, 7);
	address = parse("amqp://u:p@[fe80::1]/");
	CHECK_STR(address.hosts[0].name, "fe80::1");
	CHECK_STR(address.vhost, "/");
}

static void wrong_urls(void) {
	static const char *const urls[] = { "", "amqp:", "amqp://", "amqp://:1/",
		"amqp://h:0", "amqp://h:x", "amqp://h:65536", "amqp://h,,g",
		"amqp://[::1", "amqp://[::1]x", "amqp://h/a/b", "amqp://h?x=y",
		"amqp://h#x", "amqp://s%00cret@h", "amqp://s%4@h", "amqp://h/%",
		"amqp://h ost/", "http://h/" };
	for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
		struct postern_error error = { 0 };
		CHECK_INT(postern__rabbitmq_url_check(urls[i], &error),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(error.text, "the URL of RabbitMQ");
		CHECK(!strstr(error.text, "cret"));
	}
}

static const char *fill(const char *text,
		const struct postern_message *message) {
	static char out[RABBITMQ_SHORT_LEN_MAX + 1];
	struct postern_error error = { 0 };
	CHECK_OK(postern__rabbitmq_template_check(text, &error), &error);
	return postern__rabbitmq_template_fill(text, message, out) ? out : NULL;
}

static void routing_keys(void) {
	const struct postern_header headers[] = { { "region", "eu" } };
	char long_text[RABBITMQ_SHORT_LEN_MAX + 2];
	struct postern_error error = { 0 };
	struct postern_message message = {
		.size = sizeof message,
		.id = "m1",
		.source = "/s",
		.type = "a.b",
		.headers = headers,
		.header_count = 1,
	};
	CHECK_STR(fill("plain", &message), "plain");
	CHECK_STR(fill("{type}", &message), "a.b");
	CHECK_STR(fill("{header:region}.{type}.{id}{source}", &message),
			"eu.a.b.m1/s");
	CHECK_STR(fill("<{subject}{header:none}>", &message), "<>");
	memset(long_text, 'x', sizeof long_text);
	long_text[RABBITMQ_SHORT_LEN_MAX] = '\0';
	message.subject = long_text;
	CHECK_STR(fill("{subject}", &message), long_text);
	CHECK_STR(fill(".{subject}", &message), NULL);
	static const char *const wrong[] = { "{", "{type", "{none}", "{header:}",
		"{}", "a{type}{" };
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		CHECK_INT(postern__rabbitmq_template_check(wrong[i], &error),
				POSTERN_E_INVALID);
	}
}

static struct postern__arena arena;

static const char *text_of(amqp_field_value_t value) {
	struct postern_error error = { 0 };
	const char *text = NULL;
	CHECK_OK(postern__rabbitmq_value_text(&value, &arena, &text, &error),
			&error);
	return text;
}

static amqp_field_value_t nested(void) {
	static amqp_field_value_t items[3];
	static amqp_table_entry_t entry;
	items[0].kind = AMQP_FIELD_KIND_F64;
	items[0].value.f64 = NAN;
	items[1].kind = AMQP_FIELD_KIND_VOID;
	items[2].kind = AMQP_FIELD_KIND_UTF8;
	items[2].value.bytes = amqp_cstring_bytes("a\"b");
	entry.key = amqp_cstring_bytes("k");
	entry.value.kind = AMQP_FIELD_KIND_ARRAY;
	entry.value.value.array = (amqp_array_t){ 3, items };
	return (amqp_field_value_t){
		.kind = AMQP_FIELD_KIND_TABLE,
		.value.table = { 1, &entry },
	};
}

static void header_values(void) {
	CHECK_STR(text_of((amqp_field_value_t){ .kind = AMQP_FIELD_KIND_BOOLEAN,
					  .value.boolean = 1 }),
			"true");
	CHECK_STR(text_of((amqp_field_value_t){ .kind = AMQP_FIELD_KIND_I8,
					  .value.i8 = -128 }),
			"-128");
	CHECK_STR(text_of((amqp_field_value_t){ .kind = AMQP_FIELD_KIND_U8,
					  .value.u8 = 255 }),
			"255");
	CHECK_STR(text_of((amqp_field_value_t){ .kind = AMQP_FIELD_KIND_I16,
					  .value.i16 = -32768 }),
			"-32768");
	CHECK_STR(text_of((amqp_field_value_t){ .kind = AMQP_FIELD_KIND_U16,
					  .value.u16 = 65535 }),
			"65535");
	CHECK_STR(text_of((amqp_field_value_t){ .kind = AMQP_FIELD_KIND_I32,
					  .value.i32 = INT32_MIN }),
			"-2147483648");
	CHECK_STR(text_of((amqp_field_value_t){ .kind = AMQP_FIELD_KIND_U32,
					  .value.u32 = UINT32_MAX }),
			"4294967295");
	CHECK_STR(text_of((amqp_field_value_t){ .kind = AMQP_FIELD_KIND_I64,
					  .value.i64 = INT64_MIN }),
			"-9223372036854775808");
	CHECK_STR(text_of((amqp_field_value_t){ .kind = AMQP_FIELD_KIND_U64,
					  .value.u64 = UINT64_MAX }),
			"18446744073709551615");
	CHECK_STR(text_of((amqp_field_value_t){ .kind = AMQP_FIELD_KIND_F64,
					  .value.f64 = 0.5 }),
			"0.5");
	CHECK_STR(text_of((amqp_field_value_t){ .kind = AMQP_FIELD_KIND_DECIMAL,
					  .value.decimal = { 2, 1234 } }),
			"1234e-2");
	CHECK_STR(text_of((amqp_field_value_t){ .kind = AMQP_FIELD_KIND_TIMESTAMP,
					  .value.u64 = 0 }),
			"1970-01-01T00:00:00.000Z");
	CHECK_STR(text_of((amqp_field_value_t){ .kind = AMQP_FIELD_KIND_TIMESTAMP,
					  .value.u64 = UINT64_MAX }),
			"18446744073709551615");
	CHECK_STR(text_of((amqp_field_value_t){ .kind = AMQP_FIELD_KIND_VOID }),
			"");
	CHECK_STR(text_of(nested()), "{\"k\":[\"nan\",null,\"a\\\"b\"]}");
	postern__arena_finish(&arena);
}

static int read_properties(const amqp_basic_properties_t *properties,
		struct postern_message *out, bool *structured_out,
		struct postern_error *error) {
	const struct postern__rabbitmq_mapping mapping = { "/mapped" };
	return postern__rabbitmq_envelope_read(properties, &mapping, &arena, out,
			structured_out, error);
}

/* What is published is read as the same message. */
static void there_and_back(void) {
	const struct postern_header headers[] = { { "ce-extra", "1" },
		{ "plain", "2" }, { "content-encoding", "gzip" } };
	const struct postern_message message = {
		.size = sizeof message,
		.id = "id \xe2\x82\xac",
		.source = "/s",
		.type = "t",
		.subject = "sub",
		.time = "2024-05-01T10:00:00.5Z",
		.content_type = "text/plain",
		.correlation_id = "c",
		.traceparent = "00-1-2-01",
		.headers = headers,
		.header_count = 3,
	};
	struct postern__rabbitmq_outgoing outgoing = { 0 };
	struct postern_message back = { 0 };
	struct postern_error error = { 0 };
	bool structured = true;
	CHECK(postern__rabbitmq_outgoing_fill(&outgoing, &message));
	if (!CHECK_OK(read_properties(&outgoing.properties, &back, &structured,
						  &error),
				&error)) {
		return;
	}
	CHECK(!structured);
	CHECK_STR(back.id, message.id);
	CHECK_STR(back.source, message.source);
	CHECK_STR(back.type, message.type);
	CHECK_STR(back.subject, message.subject);
	CHECK_STR(back.time, message.time);
	CHECK_STR(back.content_type, message.content_type);
	CHECK_STR(back.correlation_id, message.correlation_id);
	CHECK_STR(back.traceparent, message.traceparent);
	CHECK_INT(back.header_count, 3);
	CHECK_STR(back.headers[0].name, "ce-extra");
	CHECK_STR(back.headers[1].value, "2");
	CHECK_STR(back.headers[2].name, "content-encoding");
	postern__arena_finish(&outgoing.arena);
	postern__arena_finish(&arena);
}

/* A short string of AMQP has 255 bytes; an id may have more. */
static void long_attributes(void) {
	char text[800];
	memset(text, 'x', sizeof text);
	text[sizeof text - 1] = '\0';
	const struct postern_message message = {
		.size = sizeof message,
		.id = text,
		.source = text,
		.type = text,
		.correlation_id = text,
	};
	struct postern__rabbitmq_outgoing outgoing = { 0 };
	struct postern_message back = { 0 };
	struct postern_error error = { 0 };
	bool structured;
	CHECK(postern__rabbitmq_outgoing_fill(&outgoing, &message));
	CHECK(!(outgoing.properties._flags &
			(AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG |
					AMQP_BASIC_CORRELATION_ID_FLAG)));
	CHECK_OK(read_properties(&outgoing.properties, &back, &structured, &error),
			&error);
	CHECK_STR(back.id, text);
	CHECK_STR(back.correlation_id, text);
	postern__arena_finish(&outgoing.arena);
	postern__arena_finish(&arena);
}

static void zero_bytes(void) {
	amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_MESSAGE_ID_FLAG,
		.message_id = { 3, (void *)(uintptr_t) "a\0b" },
	};
	struct postern_message message = { 0 };
	struct postern_error error = { 0 };
	bool structured;
	CHECK_INT(read_properties(&properties, &message, &structured, &error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "message-id has a zero byte");
	postern__arena_finish(&arena);
}

static void other_messages(void) {
	amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG,
		.message_id = amqp_cstring_bytes("m"),
		.type = amqp_cstring_bytes(""),
	};
	struct postern_message message = { 0 };
	struct postern_error error = { 0 };
	bool structured = true;
	CHECK_OK(read_properties(&properties, &message, &structured, &error),
			&error);
	CHECK_STR(message.id, "m");
	CHECK_STR(message.source, "/mapped");
	CHECK_STR(message.type, NULL);
	CHECK_STR(message.transport, "rabbitmq");
	CHECK(!structured);
	postern__arena_finish(&arena);
}

static void delays(void) {
	for (unsigned failures = 0; failures < 100; failures++) {
		int64_t ms = postern__rabbitmq_delay_ms(failures, 1000);
		int64_t whole = failures < 5 ? INT64_C(1000) << failures : 30000;
		CHECK(ms >= whole / 2 && ms <= whole);
	}
	CHECK_INT(postern__rabbitmq_delay_ms(40, 0), 0);
}

static const struct tap_case cases[] = {
	{ "a URL has a user, several hosts and a vhost", parts_of_a_url },
	{ "a wrong URL is refused without a word of it", wrong_urls },
	{ "a routing key is made of a message's attributes", routing_keys },
	{ "every type of a header's value has a text", header_values },
	{ "what is published is read as the same message", there_and_back },
	{ "attributes longer than a short string are headers only",
			long_attributes },
	{ "a text with a zero byte is refused", zero_bytes },
	{ "a message that is no CloudEvent has the configured source",
			other_messages },
	{ "the delay before a reconnect grows to half a minute", delays },
};

TAP_MAIN(cases)
