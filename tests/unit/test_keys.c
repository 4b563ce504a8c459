/* SPDX-License-Identifier: MIT */

/* Key rules of channels and handlers, through a box. */

#include <postern/postern.h>
#include <stdio.h>
#include <string.h>

#include "tap.h"

struct scene {
	struct postern_box *box;
	struct postern_error error;
	int mail;
	int ledger;
};

static void count_run(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	int *count = context;
	(void)message;
	(void)delivery;
	(void)outcome;
	(*count)++;
}

static int add_handler(struct scene *scene, const char *key, void *count,
		const struct postern_key_rule *rules, size_t rule_count) {
	const struct postern_handler_options options = {
		.size = sizeof options,
		.key = key,
		.callback = count_run,
		.context = count,
		.key_rules = rules,
		.key_rule_count = rule_count,
	};
	return postern_box_add_handler(scene->box, "orders", &options,
			&scene->error);
}

/* A box with the channel "orders" and the handlers "mail", with rules of its
   own, and "ledger". */
static bool scene_open(struct scene *scene,
		const struct postern_channel_options *channel,
		const struct postern_key_rule *mail_rules, size_t mail_count) {
	*scene = (struct scene){ 0 };
	return CHECK_OK(postern_box_open("memory:", NULL, &scene->box,
							&scene->error),
				   &scene->error) &&
		   CHECK_OK(postern_box_add_channel(scene->box, "orders", channel,
							&scene->error),
				   &scene->error) &&
		   CHECK_OK(add_handler(scene, "mail", &scene->mail, mail_rules,
							mail_count),
				   &scene->error) &&
		   CHECK_OK(add_handler(scene, "ledger", &scene->ledger, NULL, 0),
				   &scene->error) &&
		   CHECK_OK(postern_box_start(scene->box, &scene->error),
				   &scene->error);
}

static void scene_close(struct scene *scene) {
	postern_box_destroy(scene->box);
}

static int64_t last_seq;

static int send(struct scene *scene, const char *id, const char *type,
		const char *body, const char *correlation_id) {
	const struct postern_message message = {
		.size = sizeof message,
		.id = id,
		.source = "shop",
		.type = type,
		.body = body,
		.body_len = strlen(body),
		.correlation_id = correlation_id,
	};
	return postern_box_accept(scene->box, "orders", &message, &last_seq,
			&scene->error);
}

static void process(struct scene *scene) {
	CHECK_OK(postern_box_process(scene->box, 0, NULL, &scene->error),
			&scene->error);
}

/* The state of a delivery, and its last error. */
static void check_state(struct scene *scene, int64_t seq, const char *handler,
		enum postern_state state, const char *text) {
	struct postern_detail *detail = NULL;
	bool found = false;
	if (!CHECK_OK(postern_box_get(scene->box, seq, &detail, &scene->error),
				&scene->error)) {
		return;
	}
	for (size_t i = 0; i < detail->delivery_count; i++) {
		const struct postern_row *row = &detail->deliveries[i].row;
		if (strcmp(row->handler, handler) == 0) {
			found = true;
			CHECK_INT(row->state, state);
			CHECK_STR(row->last_error, text);
		}
	}
	CHECK(found);
	postern_detail_destroy(detail);
}

static void business_key(void) {
	static const struct postern_key_rule rules[] = {
		{ .rule = "json:/order/id" },
	};
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.key_rules = rules,
		.key_rule_count = 1,
	};
	struct scene scene;
	if (!scene_open(&scene, &channel, NULL, 0)) {
		return;
	}
	CHECK_OK(send(&scene, "a", "order", "{\"order\":{\"id\":7}}", NULL),
			&scene.error);
	int64_t first = last_seq;
	/* Another id, another body, the same key as a string. */
	CHECK_INT(send(&scene, "b", "order", "{\"order\":{\"id\":\"7\"},\"t\":1}",
					  NULL),
			POSTERN_E_DUPLICATE);
	CHECK_INT(last_seq, first);
	CHECK_OK(send(&scene, "a", "order", "{\"order\":{\"id\":8}}", NULL),
			&scene.error);
	process(&scene);
	CHECK_INT(scene.mail, 2);
	/* The difference is recorded. */
	struct postern_detail *detail = NULL;
	if (CHECK_OK(postern_box_get(scene.box, first, &detail, &scene.error),
				&scene.error)) {
		CHECK_INT(detail->conflict_count, 1);
		postern_detail_destroy(detail);
	}
	/* It is found by its key. */
	int64_t seqs[2];
	size_t count = 0;
	CHECK_OK(postern_box_find(scene.box, "7", NULL, NULL, seqs, 2, &count,
					 &scene.error),
			&scene.error);
	CHECK_INT(count, 1);
	scene_close(&scene);
}

static void conflict_if_wanted(void) {
	static const struct postern_key_rule rules[] = { { .rule = "json:/id" } };
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.key_rules = rules,
		.key_rule_count = 1,
		.on_conflict = POSTERN_CONFLICT_REJECT_ALWAYS,
	};
	struct scene scene;
	if (!scene_open(&scene, &channel, NULL, 0)) {
		return;
	}
	CHECK_OK(send(&scene, "a", "order", "{\"id\":7}", NULL), &scene.error);
	CHECK_INT(send(&scene, "a", "order", "{\"id\":7,\"t\":1}", NULL),
			POSTERN_E_CONFLICT);
	scene_close(&scene);
}

static void rules_by_type(void) {
	static const struct postern_key_rule rules[] = {
		{ .rule = "id" },
		{ .type = "order.*", .rule = "json:/order" },
		{ .type = "payment", .rule = "json:/payment" },
	};
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.key_rules = rules,
		.key_rule_count = 3,
	};
	struct scene scene;
	if (!scene_open(&scene, &channel, NULL, 0)) {
		return;
	}
	CHECK_OK(send(&scene, "1", "order.placed", "{\"order\":7}", NULL),
			&scene.error);
	CHECK_INT(send(&scene, "2", "order.paid", "{\"order\":7}", NULL),
			POSTERN_E_DUPLICATE);
	/* Number 7 of something else. */
	CHECK_OK(send(&scene, "3", "payment", "{\"payment\":7}", NULL),
			&scene.error);
	CHECK_OK(send(&scene, "7", "other", "{}", NULL), &scene.error);
	CHECK_INT(send(&scene, "7", "other", "{}", NULL), POSTERN_E_DUPLICATE);
	scene_close(&scene);
}

static void missing_key(void) {
	static const struct postern_key_rule rules[] = { { .rule = "json:/id" } };
	struct postern_channel_options channel = {
		.size = sizeof channel,
		.key_rules = rules,
		.key_rule_count = 1,
	};
	struct scene scene;
	if (!scene_open(&scene, &channel, NULL, 0)) {
		return;
	}
	CHECK_INT(send(&scene, "a", "order", "{}", NULL), POSTERN_E_INVALID);
	CHECK_STR(scene.error.text, "the message has no key: json:/id is missing");
	process(&scene);
	CHECK_INT(scene.mail, 0);
	scene_close(&scene);

	channel.missing_key = POSTERN_MISSING_KEY_PROCESS;
	if (!scene_open(&scene, &channel, NULL, 0)) {
		return;
	}
	CHECK_OK(send(&scene, "a", "order", "{}", NULL), &scene.error);
	CHECK_OK(send(&scene, "a", "order", "{}", NULL), &scene.error);
	process(&scene);
	CHECK_INT(scene.mail, 2);
	scene_close(&scene);
}

static void generated_id(void) {
	static const struct postern_key_rule rules[] = { { .rule = "json:/id" } };
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.key_rules = rules,
		.key_rule_count = 1,
	};
	struct scene scene;
	if (!scene_open(&scene, &channel, NULL, 0)) {
		return;
	}
	CHECK_OK(send(&scene, NULL, "order", "{\"id\":7}", NULL), &scene.error);
	CHECK_INT(send(&scene, NULL, "order", "{\"id\":7}", NULL),
			POSTERN_E_DUPLICATE);
	CHECK_OK(send(&scene, NULL, "order", "{\"id\":8}", NULL), &scene.error);
	scene_close(&scene);
	/* Under the rule id, an id is needed. */
	if (!scene_open(&scene, NULL, NULL, 0)) {
		return;
	}
	CHECK_INT(send(&scene, NULL, "order", "{\"id\":7}", NULL),
			POSTERN_E_INVALID);
	scene_close(&scene);
}

static void handler_rule(void) {
	static const struct postern_key_rule rules[] = {
		{ .rule = "json:/order" }
	};
	struct scene scene;
	if (!scene_open(&scene, NULL, rules, 1)) {
		return;
	}
	CHECK_OK(send(&scene, "1", "order", "{\"order\":7}", NULL), &scene.error);
	int64_t first = last_seq;
	CHECK_OK(send(&scene, "2", "order", "{\"order\":7}", NULL), &scene.error);
	int64_t second = last_seq;
	char text[64];
	(void)snprintf(text, sizeof text, "suppressed by #%lld", (long long)first);
	check_state(&scene, second, "mail", POSTERN_STATE_DISCARDED, text);
	process(&scene);
	CHECK_INT(scene.mail, 1);
	CHECK_INT(scene.ledger, 2);
	scene_close(&scene);
}

static void handler_without_key(void) {
	static const struct postern_key_rule rules[] = {
		{ .rule = "json:/order" }
	};
	struct postern_channel_options channel = { .size = sizeof channel };
	struct scene scene;
	if (!scene_open(&scene, &channel, rules, 1)) {
		return;
	}
	CHECK_OK(send(&scene, "1", "order", "{}", NULL), &scene.error);
	check_state(&scene, last_seq, "mail", POSTERN_STATE_POISONED,
			"the message has no key: json:/order is missing");
	process(&scene);
	CHECK_INT(scene.mail, 0);
	CHECK_INT(scene.ledger, 1);
	scene_close(&scene);

	channel.missing_key = POSTERN_MISSING_KEY_PROCESS;
	if (!scene_open(&scene, &channel, rules, 1)) {
		return;
	}
	CHECK_OK(send(&scene, "1", "order", "{}", NULL), &scene.error);
	process(&scene);
	CHECK_INT(scene.mail, 1);
	CHECK_INT(scene.ledger, 1);
	scene_close(&scene);
}

/* Replaces the generation by one in which "mail" wants payments, too. */
static void want_payments(struct scene *scene,
		const struct postern_key_rule *rules, size_t rule_count) {
	static const char *const types[] = { "order", "payment" };
	const struct postern_handler_options options = {
		.size = sizeof options,
		.key = "mail",
		.types = types,
		.type_count = 2,
		.callback = count_run,
		.context = &scene->mail,
		.key_rules = rules,
		.key_rule_count = rule_count,
	};
	struct postern_generation *next = NULL;
	CHECK_OK(postern_generation_create(scene->box, &next, &scene->error),
			&scene->error);
	CHECK_OK(postern_generation_add_channel(next, "orders", NULL,
					 &scene->error),
			&scene->error);
	CHECK_OK(postern_generation_add_handler(next, "orders", &options,
					 &scene->error),
			&scene->error);
	CHECK_OK(postern_box_replace_taking(scene->box, next, &scene->error),
			&scene->error);
}

static void parked_gets_key(void) {
	static const struct postern_key_rule rules[] = {
		{ .rule = "json:/order" }
	};
	static const char *const types[] = { "order" };
	const struct postern_handler_options options = {
		.size = sizeof options,
		.key = "mail",
		.types = types,
		.type_count = 1,
		.callback = count_run,
	};
	struct scene scene = { 0 };
	CHECK_OK(postern_box_open("memory:", NULL, &scene.box, &scene.error),
			&scene.error);
	CHECK_OK(postern_box_add_channel(scene.box, "orders", NULL, &scene.error),
			&scene.error);
	CHECK_OK(postern_box_add_handler(scene.box, "orders", &options,
					 &scene.error),
			&scene.error);
	CHECK_OK(postern_box_start(scene.box, &scene.error), &scene.error);
	int64_t seqs[3];
	static const char *const bodies[] = { "{\"order\":7}", "{\"order\":\"7\"}",
		"{}" };
	for (size_t i = 0; i < 3; i++) {
		const char id[] = { (char)('1' + i), '\0' };
		CHECK_OK(send(&scene, id, "payment", bodies[i], NULL), &scene.error);
		seqs[i] = last_seq;
	}
	want_payments(&scene, rules, 1);
	char text[64];
	(void)snprintf(text, sizeof text, "suppressed by #%lld",
			(long long)seqs[0]);
	check_state(&scene, seqs[0], "mail", POSTERN_STATE_PENDING, NULL);
	check_state(&scene, seqs[1], "mail", POSTERN_STATE_DISCARDED, text);
	check_state(&scene, seqs[2], "mail", POSTERN_STATE_POISONED,
			"the message has no key: json:/order is missing");
	/* The key is remembered for what comes later. */
	CHECK_OK(send(&scene, "9", "order", "{\"order\":7}", NULL), &scene.error);
	check_state(&scene, last_seq, "mail", POSTERN_STATE_DISCARDED, text);
	process(&scene);
	CHECK_INT(scene.mail, 1);
	scene_close(&scene);
}

static void composite(void) {
	static const struct postern_key_rule rules[] = { { .rule = "composite" } };
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.key_rules = rules,
		.key_rule_count = 1,
	};
	static const struct postern_key_rule own[] = { { .rule = "json:/n" } };
	struct scene scene;
	if (!scene_open(&scene, &channel, own, 1)) {
		return;
	}
	/* Each handler has its own key; "mail" has a rule of its own. */
	CHECK_OK(send(&scene, "1", "order", "{\"n\":1}", "c1"), &scene.error);
	CHECK_OK(send(&scene, "2", "order", "{\"n\":2}", "c1"), &scene.error);
	CHECK_OK(send(&scene, "3", "order", "{\"n\":2}", "c2"), &scene.error);
	/* The message itself is identified by its id. */
	CHECK_INT(send(&scene, "3", "order", "{\"n\":2}", "c2"),
			POSTERN_E_DUPLICATE);
	process(&scene);
	CHECK_INT(scene.mail, 2);
	CHECK_INT(scene.ledger, 2);
	scene_close(&scene);
}

/* The key is in the body: "key=…"; a body of another form has none. */
static int body_key(void *context, const struct postern_message *message,
		char *key, size_t size) {
	int *calls = context;
	const char *body = message->body;
	(*calls)++;
	return strncmp(body, "key=", 4) == 0 ? snprintf(key, size, "%s", body + 4)
										 : 0;
}

static const struct postern_key_rule callback_rule[] = {
	{ .rule = "callback" },
};

static void callback_makes_key(void) {
	int calls = 0;
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.key_rules = callback_rule,
		.key_rule_count = 1,
		.key_callback = body_key,
		.key_context = &calls,
	};
	struct scene scene;
	char longer[1100] = "key=";
	if (!scene_open(&scene, &channel, NULL, 0)) {
		return;
	}
	CHECK_OK(send(&scene, "a", "order", "key=17", NULL), &scene.error);
	CHECK_INT(send(&scene, "b", "paid", "key=17", NULL), POSTERN_E_DUPLICATE);
	CHECK_OK(send(&scene, "a", "order", "key=18", NULL), &scene.error);
	CHECK_INT(calls, 3);
	CHECK_INT(send(&scene, "c", "order", "none", NULL), POSTERN_E_INVALID);
	CHECK_STR(scene.error.text, "the message has no key: callback found none");
	CHECK_INT(send(&scene, "c", "order", "key=", NULL), POSTERN_E_INVALID);
	CHECK_INT(send(&scene, "c", "order", "key=a\nb", NULL), POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "control characters");
	memset(longer + 4, 'x', 1001);
	CHECK_INT(send(&scene, "c", "order", longer, NULL), POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "longer than 1000 bytes");
	longer[1004] = '\0';
	CHECK_OK(send(&scene, "c", "order", longer, NULL), &scene.error);
	scene_close(&scene);
}

static void callback_of_handler(void) {
	int calls = 0;
	const struct postern_handler_options options = {
		.size = sizeof options,
		.key = "mail",
		.callback = count_run,
		.context = &calls,
		.key_rules = callback_rule,
		.key_rule_count = 1,
		.key_callback = body_key,
		.key_context = &(int){ 0 },
	};
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.missing_key = POSTERN_MISSING_KEY_PROCESS,
	};
	struct scene scene = { 0 };
	CHECK_OK(postern_box_open("memory:", NULL, &scene.box, &scene.error),
			&scene.error);
	CHECK_OK(postern_box_add_channel(scene.box, "orders", &channel,
					 &scene.error),
			&scene.error);
	CHECK_OK(postern_box_add_handler(scene.box, "orders", &options,
					 &scene.error),
			&scene.error);
	CHECK_OK(postern_box_start(scene.box, &scene.error), &scene.error);
	CHECK_OK(send(&scene, "a", "order", "key=17", NULL), &scene.error);
	int64_t first = last_seq;
	CHECK_OK(send(&scene, "b", "order", "key=17", NULL), &scene.error);
	char text[64];
	(void)snprintf(text, sizeof text, "suppressed by #%lld", (long long)first);
	check_state(&scene, last_seq, "mail", POSTERN_STATE_DISCARDED, text);
	/* Without a key it runs each time. */
	CHECK_OK(send(&scene, "c", "order", "none", NULL), &scene.error);
	CHECK_OK(send(&scene, "d", "order", "none", NULL), &scene.error);
	process(&scene);
	CHECK_INT(calls, 3);
	scene_close(&scene);
}

static void refused_callbacks(void) {
	static const struct postern_key_rule joined[] = {
		{ .rule = "callback+json:/a" },
	};
	struct scene scene = { 0 };
	struct postern_channel_options channel = {
		.size = sizeof channel,
		.key_rules = callback_rule,
		.key_rule_count = 1,
	};
	CHECK_OK(postern_box_open("memory:", NULL, &scene.box, &scene.error),
			&scene.error);
	CHECK_INT(postern_box_add_channel(scene.box, "orders", &channel,
					  &scene.error),
			POSTERN_E_INVALID);
	CHECK_STR(scene.error.text,
			"channel 'orders': the key rule 'callback' needs key_callback");
	channel.key_callback = body_key;
	channel.key_rule_count = 0;
	CHECK_INT(postern_box_add_channel(scene.box, "orders", &channel,
					  &scene.error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "no key rule 'callback' that calls it");
	channel.key_rules = joined;
	channel.key_rule_count = 1;
	CHECK_INT(postern_box_add_channel(scene.box, "orders", &channel,
					  &scene.error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "cannot be joined");
	scene_close(&scene);
}

static void refused_rules(void) {
	static const struct postern_key_rule bad[] = { { .rule = "json:x" } };
	static const struct postern_key_rule twice[] = {
		{ .type = "a", .rule = "correlation-id" },
		{ .type = "a", .rule = "json:/a" },
	};
	struct scene scene = { 0 };
	struct postern_channel_options channel = {
		.size = sizeof channel,
		.key_rules = bad,
		.key_rule_count = 1,
	};
	CHECK_OK(postern_box_open("memory:", NULL, &scene.box, &scene.error),
			&scene.error);
	CHECK_INT(postern_box_add_channel(scene.box, "orders", &channel,
					  &scene.error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "channel 'orders': the JSON pointer");
	channel.key_rules = twice;
	channel.key_rule_count = 2;
	CHECK_INT(postern_box_add_channel(scene.box, "orders", &channel,
					  &scene.error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "two key rules for the type 'a'");
	CHECK_OK(postern_box_add_channel(scene.box, "orders", NULL, &scene.error),
			&scene.error);
	CHECK_INT(add_handler(&scene, "mail", &scene.mail, bad, 1),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "handler 'mail': the JSON pointer");
	scene_close(&scene);
}

/* The channel has a business key, and one handler also looks at the id. */
static void handler_by_id(void) {
	static const struct postern_key_rule rules[] = { { .rule = "json:/n" } };
	static const struct postern_key_rule own[] = { { .rule = "id" } };
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.key_rules = rules,
		.key_rule_count = 1,
	};
	struct scene scene;
	if (!scene_open(&scene, &channel, own, 1)) {
		return;
	}
	CHECK_OK(send(&scene, "a", "order", "{\"n\":1}", NULL), &scene.error);
	CHECK_OK(send(&scene, "a", "order", "{\"n\":2}", NULL), &scene.error);
	CHECK_OK(send(&scene, "b", "order", "{\"n\":3}", NULL), &scene.error);
	process(&scene);
	CHECK_INT(scene.mail, 2);
	CHECK_INT(scene.ledger, 3);
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "a business key is the same key whatever the id and the body",
			business_key },
	{ "another body under a business key is a conflict if that is wanted",
			conflict_if_wanted },
	{ "rules by type have keys of their own", rules_by_type },
	{ "a message without a key is rejected, or processed each time",
			missing_key },
	{ "an id is generated where something else is the key", generated_id },
	{ "a handler with a rule of its own gets the first message of a key",
			handler_rule },
	{ "a handler that finds no key poisons its delivery, or runs it",
			handler_without_key },
	{ "a parked message gets the key of the handler that wants it later",
			parked_gets_key },
	{ "composite on a channel gives each handler its own key", composite },
	{ "a handler may go by the id where the channel does not", handler_by_id },
	{ "a callback makes the key of a message, or finds none",
			callback_makes_key },
	{ "a handler has a callback for its own key", callback_of_handler },
	{ "a callback without its rule, or a rule without it, is refused",
			refused_callbacks },
	{ "a rule that is not valid is refused when it is added", refused_rules },
};

TAP_MAIN(cases)
