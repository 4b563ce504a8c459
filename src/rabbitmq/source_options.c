/* SPDX-License-Identifier: MIT */

/*
 * The options of a source, and the row of its kind.
 */

#include <postern/sys/option.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "rabbitmq/rabbitmq.h"

static int check_short(const char *text, struct postern_error *error) {
	return strlen(text) <= RABBITMQ_SHORT_LEN_MAX
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_INVALID,
							 "the name is over %d bytes",
							 RABBITMQ_SHORT_LEN_MAX);
}

static int check_suffix(const char *text, struct postern_error *error) {
	return *text ? check_short(text, error)
				 : postern__fail(error, POSTERN_E_INVALID,
						   "the suffix is empty: it would be the queue itself");
}

static const struct postern_option options[] = {
	{
			.name = "url",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct postern__rabbitmq_source_settings, url),
			.flags = POSTERN_OPTION_REQUIRED | POSTERN_OPTION_SECRET,
			.help = "the broker: amqp://USER:PASSWORD@HOST/VHOST",
			.form = "URL",
			.check = postern__rabbitmq_url_check,
	},
	{
			.name = "queue",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct postern__rabbitmq_source_settings, queue),
			.flags = POSTERN_OPTION_REQUIRED,
			.help = "the queue to consume from",
			.form = "NAME",
			.check = check_short,
	},
	{
			.name = "prefetch",
			.type = POSTERN_OPTION_COUNT,
			.offset = offsetof(struct postern__rabbitmq_source_settings,
					prefetch),
			.min = 1,
			.max = UINT16_MAX,
			.fallback = "1000",
			.help = "the most messages that are not acknowledged yet",
	},
	{
			.name = "prefetch_bytes",
			.type = POSTERN_OPTION_SIZE,
			.offset = offsetof(struct postern__rabbitmq_source_settings,
					prefetch_bytes),
			.min = 65536,
			.max = UINT64_C(1) << 40,
			.fallback = "64MiB",
			.help = "no further message is read while as much is not stored",
	},
	{
			.name = "source",
			.type = POSTERN_OPTION_TEXT,
			.offset =
					offsetof(struct postern__rabbitmq_source_settings, source),
			.help = "the source of messages that are no CloudEvents (the "
					"channel's name)",
			.form = "TEXT",
	},
	{
			.name = "on_unacceptable",
			.type = POSTERN_OPTION_CHOICE,
			.offset = offsetof(struct postern__rabbitmq_source_settings,
					on_unacceptable),
			.choices = "quarantine|reject|drop",
			.fallback = "quarantine",
			.help = "what happens to a message that can never be accepted",
	},
	{
			.name = "on_failed",
			.type = POSTERN_OPTION_CHOICE,
			.offset = offsetof(struct postern__rabbitmq_source_settings,
					on_failed),
			.choices = "hold|reject|retry",
			.fallback = "hold",
			.help = "guard, direct: what happens to a message whose run failed",
	},
	{
			.name = "heartbeat",
			.type = POSTERN_OPTION_DURATION,
			.offset = offsetof(struct postern__rabbitmq_source_settings,
					heartbeat_ms),
			.min = 1000,
			.max = 600000,
			.fallback = "30s",
			.help = "a connection that is silent for as long is lost",
	},
	{
			.name = "ca_file",
			.type = POSTERN_OPTION_TEXT,
			.offset =
					offsetof(struct postern__rabbitmq_source_settings, ca_file),
			.flags = POSTERN_OPTION_PATH,
			.help = "amqps: the certificates that are trusted",
			.form = "FILE",
	},
	{
			.name = "declare",
			.type = POSTERN_OPTION_SWITCH,
			.offset =
					offsetof(struct postern__rabbitmq_source_settings, declare),
			.fallback = "off",
			.help = "create what is missing: queues, exchange, bindings",
	},
	{
			.name = "queue_type",
			.type = POSTERN_OPTION_CHOICE,
			.offset = offsetof(struct postern__rabbitmq_source_settings,
					queue_type),
			.choices = "quorum|classic",
			.fallback = "quorum",
			.help = "of a queue that is declared",
	},
	{
			.name = "exchange",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct postern__rabbitmq_source_settings,
					exchange),
			.help = "declared, and the queue is bound to it",
			.form = "NAME",
			.check = check_short,
	},
	{
			.name = "exchange_type",
			.type = POSTERN_OPTION_CHOICE,
			.offset = offsetof(struct postern__rabbitmq_source_settings,
					exchange_type),
			.choices = "topic|direct|fanout",
			.fallback = "topic",
			.help = "of an exchange that is declared",
	},
	{
			.name = "binding_keys",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct postern__rabbitmq_source_settings,
					binding_keys),
			.fallback = "#",
			.help = "routing keys of the bindings, separated by commas",
			.form = "KEYS",
	},
	{
			.name = "dead_letters",
			.type = POSTERN_OPTION_SWITCH,
			.offset = offsetof(struct postern__rabbitmq_source_settings,
					dead_letters),
			.fallback = "on",
			.help = "declare a queue QUEUE.dlq for what is rejected",
	},
	{
			.name = "max_retries",
			.type = POSTERN_OPTION_COUNT,
			.offset = offsetof(struct postern__rabbitmq_source_settings,
					max_retries),
			.max = 100000,
			.fallback = "3",
			.help = "on_failed: retry: how often before it is rejected",
	},
	{
			.name = "retry_delay",
			.type = POSTERN_OPTION_DURATION,
			.offset = offsetof(struct postern__rabbitmq_source_settings,
					retry_delay_ms),
			.min = 1,
			.max = INT32_MAX,
			.fallback = "30s",
			.help = "on_failed: retry: how long it is in the retry queue",
	},
	{
			.name = "retry_suffix",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct postern__rabbitmq_source_settings,
					retry_suffix),
			.fallback = ".retry",
			.help = "the retry queue is QUEUE with this",
			.form = "TEXT",
			.check = check_suffix,
	},
	{
			.name = "dead_suffix",
			.type = POSTERN_OPTION_TEXT,
			.offset = offsetof(struct postern__rabbitmq_source_settings,
					dead_suffix),
			.fallback = ".dlq",
			.help = "the queue for what is rejected is QUEUE with this",
			.form = "TEXT",
			.check = check_suffix,
	},
};

/* What is rejected is lost unless its queue has a dead-letter exchange. */
static void caution(const void *given, char *out, size_t size) {
	const struct postern__rabbitmq_source_settings *settings = given;
	bool rejects = settings->on_unacceptable == RABBITMQ_UNACCEPTABLE_REJECT ||
				   settings->on_failed != RABBITMQ_FAILED_HOLD;
	if (rejects && settings->declare && !settings->dead_letters) {
		(void)snprintf(out, size,
				"what is rejected is lost: queue '%.60s' has no dead-letter "
				"exchange; set 'dead_letters: on'",
				settings->queue);
	} else if (rejects && !settings->declare) {
		(void)snprintf(out, size,
				"what is rejected is lost unless queue '%.60s' has a "
				"dead-letter exchange",
				settings->queue);
	}
}

const struct postern_source_kind postern__rabbitmq_source_kind = {
	.size = sizeof(struct postern_source_kind),
	.name = "rabbitmq",
	.help = "a queue of RabbitMQ",
	.options = options,
	.option_count = sizeof options / sizeof options[0],
	.settings_size = sizeof(struct postern__rabbitmq_source_settings),
	.create = postern__rabbitmq_source_create,
	.caution = caution,
};
