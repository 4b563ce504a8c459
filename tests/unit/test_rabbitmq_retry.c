/* SPDX-License-Identifier: MIT */

/*
 * Copies for the retry queue: when the broker has one, and how often a message
 * was retried.
 */

#include "tap.h"

#include <amqp.h>
#include <stdlib.h>

#include "rabbitmq/rabbitmq.h"
#include "rabbitmq/retry.h"

static struct postern_error error;
static uint64_t moved;

/* A copy of position 70 that is published as number 3. */
static struct postern__rabbitmq_retry copy_of_70(void) {
	return (struct postern__rabbitmq_retry){
		.queue = (char *)"q.retry",
		.tag = 3,
		.moving = 70,
	};
}

static int read_ack(struct postern__rabbitmq_retry *retry, uint64_t tag) {
	amqp_basic_ack_t ack = { .delivery_tag = tag };
	const amqp_method_t method = { AMQP_BASIC_ACK_METHOD, &ack };
	return postern__rabbitmq_retry_method(retry, &method, &moved, &error);
}

static int read_other(struct postern__rabbitmq_retry *retry,
		amqp_method_number_t id) {
	amqp_basic_nack_t nack = { .delivery_tag = 3 };
	const amqp_method_t method = { id, &nack };
	return postern__rabbitmq_retry_method(retry, &method, &moved, &error);
}

static void confirmed(void) {
	struct postern__rabbitmq_retry retry = copy_of_70();
	CHECK_OK(read_ack(&retry, 3), &error);
	CHECK_INT(moved, 70);
	CHECK_INT(read_ack(&retry, 3), POSTERN_E_UNAVAILABLE); /* again */
	CHECK_INT(moved, 0);
}

static void other_tag(void) {
	struct postern__rabbitmq_retry retry = copy_of_70();
	CHECK_INT(read_ack(&retry, 2), POSTERN_E_UNAVAILABLE);
	CHECK_INT(moved, 0);
	CHECK_INT(read_ack(&retry, 4), POSTERN_E_UNAVAILABLE);
	CHECK_INT(moved, 0);
}

static void refused(void) {
	struct postern__rabbitmq_retry retry = copy_of_70();
	CHECK_INT(read_other(&retry, AMQP_BASIC_NACK_METHOD),
			POSTERN_E_UNAVAILABLE);
	CHECK_INT(moved, 0);
}

static void returned(void) {
	struct postern__rabbitmq_retry retry = copy_of_70();
	CHECK_OK(read_other(&retry, AMQP_BASIC_RETURN_METHOD), &error);
	CHECK_INT(read_ack(&retry, 3), POSTERN_E_UNAVAILABLE);
	CHECK_INT(moved, 0);
	CHECK_STR(error.text, "the broker returned the copy for the retry queue "
						  "'q.retry': there is no such queue");
}

static uint32_t count(amqp_field_value_t value) {
	amqp_table_entry_t entries[] = {
		{ amqp_cstring_bytes("other"), value },
		{ amqp_cstring_bytes(RABBITMQ_RETRIES_HEADER), value },
	};
	const amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_HEADERS_FLAG,
		.headers = { 2, entries },
	};
	return postern__rabbitmq_retries(&properties);
}

static void counted(void) {
	amqp_field_value_t value = { .kind = AMQP_FIELD_KIND_I32 };
	const amqp_basic_properties_t none = { 0 };
	CHECK_INT(postern__rabbitmq_retries(&none), 0);
	value.value.i32 = 2;
	CHECK_INT(count(value), 2);
	value.value.i32 = -1; /* of somebody else: not retried for ever */
	CHECK(count(value) > 1000);
	value.kind = AMQP_FIELD_KIND_UTF8;
	value.value.bytes = amqp_cstring_bytes("2");
	CHECK_INT(count(value), 0);
}

static void reasons_by_position(void) {
	struct postern__rabbitmq_reasons reasons;
	postern__rabbitmq_reasons_init(&reasons);
	postern__rabbitmq_reasons_put(&reasons, 1, "one");
	postern__rabbitmq_reasons_put(&reasons, 2, "two");
	CHECK(!postern__rabbitmq_reasons_take(&reasons, 3));
	char *text = postern__rabbitmq_reasons_take(&reasons, 1);
	CHECK_STR(text, "one");
	free(text);
	CHECK(!postern__rabbitmq_reasons_take(&reasons, 1));
	postern__rabbitmq_reasons_finish(&reasons);
}

static const struct tap_case cases[] = {
	{ "a delivery is moved when its copy is confirmed, and once", confirmed },
	{ "a confirm of another copy moves nothing", other_tag },
	{ "a copy that the broker refuses moves nothing", refused },
	{ "a copy that the broker returns moves nothing, though it is confirmed",
			returned },
	{ "retries are counted by a header, and a wrong count ends them", counted },
	{ "the reason of a failure is found by its position", reasons_by_position },
};

TAP_MAIN(cases)
