/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_GENERATIONS_H
#define POSTERN_TESTS_GENERATIONS_H

/*
 * Generations replaced on a store of any kind, whose URL the including test
 * supplies: scene_url() returns that of a store that is empty.
 */

#include "tap.h"

#include <postern/postern.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *scene_url(void);
static const char *scene_schema(void);
/* How often the generation is replaced under load; even. */
static int scene_swaps(void);

/* The context of one handler of one generation. */
struct role {
	struct scene *scene;
	int generation;
	const char *key;
	atomic_int runs;
};

#define ROLES_MAX 64

struct scene {
	struct postern_box *box;
	struct postern_runner *runner;
	struct postern_error error;
	struct role roles[ROLES_MAX];
	size_t role_count;
	/* A callback of the type "slow" posts `began` and waits for `may_end`. */
	sem_t began;
	sem_t may_end;
};

static void run_role(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct role *role = context;
	(void)outcome;
	CHECK_STR(delivery->handler, role->key);
	if (strcmp(message->type, "slow") == 0) {
		(void)sem_post(&role->scene->began);
		(void)sem_wait(&role->scene->may_end);
	}
	atomic_fetch_add(&role->runs, 1);
}

static struct role *add_role(struct scene *scene, int generation,
		const char *key) {
	struct role *role = &scene->roles[scene->role_count++];
	*role = (struct role){
		.scene = scene,
		.generation = generation,
		.key = key,
	};
	return role;
}

/* The options of a handler "key", or "key<legacy". */
static struct postern_handler_options role_options(struct role *role,
		const char *const *legacy, const struct postern_policy *policy) {
	return (struct postern_handler_options){
		.size = sizeof(struct postern_handler_options),
		.key = role->key,
		.legacy_keys = legacy,
		.legacy_key_count = legacy ? 1 : 0,
		.callback = run_role,
		.context = role,
		.policy = policy,
	};
}

static bool scene_open(struct scene *scene, enum postern_orphans orphans) {
	memset(scene, 0, sizeof(*scene));
	(void)sem_init(&scene->began, 0, 0);
	(void)sem_init(&scene->may_end, 0, 0);
	struct postern_box_options options = {
		.size = sizeof(options),
		.orphans = orphans,
		.schema = scene_schema(),
	};
	return CHECK_OK(postern_box_open(scene_url(), &options, &scene->box,
							&scene->error),
				   &scene->error) &&
		   CHECK_OK(postern_box_add_channel(scene->box, "c", NULL,
							&scene->error),
				   &scene->error);
}

static struct role *scene_first(struct scene *scene, const char *key,
		const struct postern_policy *policy) {
	struct role *role = add_role(scene, 1, key);
	struct postern_handler_options options = role_options(role, NULL, policy);
	CHECK_OK(postern_box_add_handler(scene->box, "c", &options, &scene->error),
			&scene->error);
	return role;
}

static void scene_start(struct scene *scene, bool runner) {
	CHECK_OK(postern_box_start(scene->box, &scene->error), &scene->error);
	if (runner) {
		CHECK_OK(postern_runner_create(scene->box, NULL, &scene->runner,
						 &scene->error),
				&scene->error);
		CHECK_OK(postern_runner_start(scene->runner, &scene->error),
				&scene->error);
	}
}

static void scene_close(struct scene *scene) {
	postern_runner_destroy(scene->runner);
	postern_box_destroy(scene->box);
	(void)sem_destroy(&scene->began);
	(void)sem_destroy(&scene->may_end);
}

static struct postern_generation *next_generation(struct scene *scene) {
	struct postern_generation *next = NULL;
	CHECK_OK(postern_generation_create(scene->box, &next, &scene->error),
			&scene->error);
	CHECK_OK(postern_generation_add_channel(next, "c", NULL, &scene->error),
			&scene->error);
	return next;
}

static struct role *next_role(struct scene *scene,
		struct postern_generation *next, const char *key,
		const char *const *legacy, const struct postern_policy *policy) {
	struct role *role = add_role(scene, 2, key);
	struct postern_handler_options options = role_options(role, legacy, policy);
	CHECK_OK(postern_generation_add_handler(next, "c", &options, &scene->error),
			&scene->error);
	return role;
}

static void put_in_place(struct scene *scene, struct postern_generation *next) {
	CHECK_OK(postern_box_replace_taking(scene->box, next, &scene->error),
			&scene->error);
}

static int scene_send(struct scene *scene, const char *type, const char *id) {
	struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.type = type,
	};
	return postern_box_accept(scene->box, "c", &message, NULL, &scene->error);
}

static void scene_process(struct scene *scene) {
	CHECK_OK(postern_box_process(scene->box, 0, NULL, &scene->error),
			&scene->error);
}

static void queued_runs_change_hands(void) {
	struct scene scene;
	if (scene_open(&scene, POSTERN_ORPHANS_HOLD)) {
		const struct role *old = scene_first(&scene, "h", NULL);
		scene_start(&scene, false);
		CHECK_INT(scene_send(&scene, "t", "1"), POSTERN_OK);
		size_t claimed = 0;
		CHECK_OK(postern_box_claim(scene.box, 10, &claimed, &scene.error),
				&scene.error);
		CHECK_INT(claimed, 1);
		struct postern_generation *next = next_generation(&scene);
		const struct role *new = next_role(&scene, next, "h", NULL, NULL);
		put_in_place(&scene, next);
		size_t ran = 0;
		CHECK_OK(postern_box_run(scene.box, 10, &ran, &scene.error),
				&scene.error);
		CHECK_INT(ran, 0);
		scene_process(&scene);
		CHECK_INT(old->runs, 0);
		CHECK_INT(new->runs, 1);
		CHECK_INT(scene_send(&scene, "t", "1"), POSTERN_E_DUPLICATE);
		scene_close(&scene);
	}
}

static void wait_for(const atomic_int *value, int wanted) {
	for (int i = 0; i < 60000 && atomic_load(value) < wanted; i++) {
		(void)usleep(1000);
	}
	CHECK_INT(atomic_load(value), wanted);
}

static void started_run_ends_as_it_began(void) {
	struct scene scene;
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.concurrency = 1;
	if (scene_open(&scene, POSTERN_ORPHANS_HOLD)) {
		const struct role *old = scene_first(&scene, "h", &policy);
		scene_start(&scene, true);
		CHECK_INT(scene_send(&scene, "slow", "1"), POSTERN_OK);
		(void)sem_wait(&scene.began);
		struct postern_generation *next = next_generation(&scene);
		const struct role *new = next_role(&scene, next, "h", NULL, &policy);
		put_in_place(&scene, next);
		/* Its concurrency is 1, and the run of the old generation counts. */
		CHECK_INT(scene_send(&scene, "t", "2"), POSTERN_OK);
		(void)usleep(100 * 1000);
		CHECK_INT(atomic_load(&new->runs), 0);
		(void)sem_post(&scene.may_end);
		wait_for(&new->runs, 1);
		CHECK_INT(atomic_load(&old->runs), 1);
		scene_close(&scene);
	}
}

/* Open deliveries of one handler, or of all (NULL). */
static uint64_t open_of(struct scene *scene, const char *key) {
	struct postern_stats *stats = NULL;
	uint64_t open = 0;
	CHECK_OK(postern_box_stats(scene->box, &stats, &scene->error),
			&scene->error);
	for (size_t i = 0; stats && i < stats->handler_count; i++) {
		const struct postern_handler_stats *handler = &stats->handlers[i];
		if (!key || strcmp(handler->key, key) == 0) {
			open += handler->pending + handler->leased;
		}
	}
	postern_stats_destroy(stats);
	return open;
}

static void removed_handler_waits(void) {
	struct scene scene;
	if (scene_open(&scene, POSTERN_ORPHANS_HOLD)) {
		struct role *first = scene_first(&scene, "h", NULL);
		scene_start(&scene, false);
		CHECK_INT(scene_send(&scene, "t", "1"), POSTERN_OK);
		put_in_place(&scene, next_generation(&scene));
		CHECK_INT(scene_send(&scene, "t", "2"), POSTERN_OK); /* parked */
		scene_process(&scene);
		CHECK_INT(first->runs, 0);
		CHECK_INT(open_of(&scene, "h"), 1);
		struct postern_generation *next = next_generation(&scene);
		const struct role *back = next_role(&scene, next, "h", NULL, NULL);
		put_in_place(&scene, next);
		/* The parked message has a delivery at once. */
		CHECK_INT(open_of(&scene, "h"), 2);
		scene_process(&scene);
		CHECK_INT(first->runs, 0);
		CHECK_INT(back->runs, 2);
		scene_close(&scene);
	}
}

static void renamed_handler_goes_on(void) {
	static const char *const legacy[] = { "h" };
	struct scene scene;
	if (scene_open(&scene, POSTERN_ORPHANS_HOLD)) {
		struct role *old = scene_first(&scene, "h", NULL);
		scene_start(&scene, false);
		CHECK_INT(scene_send(&scene, "t", "1"), POSTERN_OK);
		scene_process(&scene);
		CHECK_INT(old->runs, 1);
		CHECK_INT(scene_send(&scene, "t", "2"), POSTERN_OK);
		struct postern_generation *next = next_generation(&scene);
		const struct role *new = next_role(&scene, next, "i", legacy, NULL);
		put_in_place(&scene, next);
		CHECK_INT(scene_send(&scene, "t", "1"), POSTERN_E_DUPLICATE);
		scene_process(&scene);
		CHECK_INT(old->runs, 1);
		CHECK_INT(new->runs, 1);
		scene_close(&scene);
	}
}

/* Two handlers that the store has as one are refused, as at the start. */
static void refused_generation_changes_nothing(void) {
	static const char *const legacy[] = { "h" };
	struct scene scene;
	if (scene_open(&scene, POSTERN_ORPHANS_HOLD)) {
		const struct role *old = scene_first(&scene, "h", NULL);
		scene_start(&scene, false);
		struct postern_generation *next = next_generation(&scene);
		const struct role *renamed = next_role(&scene, next, "i", legacy, NULL);
		put_in_place(&scene, next);
		next = next_generation(&scene);
		(void)next_role(&scene, next, "h", NULL, NULL);
		(void)next_role(&scene, next, "i", NULL, NULL);
		CHECK_INT(postern_box_replace_taking(scene.box, next, &scene.error),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(scene.error.text, "'i'");
		CHECK_INT(scene_send(&scene, "t", "1"), POSTERN_OK);
		scene_process(&scene);
		CHECK_INT(renamed->runs, 1);
		CHECK_INT(old->runs, 0);
		scene_close(&scene);
	}
}

/* Each generation is valid, and two of them have two keys of one handler. */
static void renamed_there_and_back(void) {
	static const char *const legacy[] = { "h" };
	struct scene scene;
	if (scene_open(&scene, POSTERN_ORPHANS_HOLD)) {
		(void)scene_first(&scene, "h", NULL);
		scene_start(&scene, false);
		CHECK_INT(scene_send(&scene, "t", "1"), POSTERN_OK);
		struct postern_generation *next = next_generation(&scene);
		(void)next_role(&scene, next, "i", legacy, NULL);
		put_in_place(&scene, next);
		next = next_generation(&scene);
		(void)next_role(&scene, next, "h", NULL, NULL);
		put_in_place(&scene, next);
		next = next_generation(&scene);
		const struct role *last = next_role(&scene, next, "i", NULL, NULL);
		put_in_place(&scene, next);
		scene_process(&scene);
		CHECK_INT(last->runs, 1);
		scene_close(&scene);
	}
}

/* A run of the first generation lasts while its handler is renamed, its old key
   is dropped, and it is renamed again. */
static void renamed_twice_during_a_run(void) {
	static const char *const legacy[] = { "h", "i" };
	struct scene scene;
	if (scene_open(&scene, POSTERN_ORPHANS_HOLD)) {
		const struct role *old = scene_first(&scene, "h", NULL);
		scene_start(&scene, true);
		CHECK_INT(scene_send(&scene, "slow", "1"), POSTERN_OK);
		(void)sem_wait(&scene.began);
		struct postern_generation *next = next_generation(&scene);
		(void)next_role(&scene, next, "i", &legacy[0], NULL);
		put_in_place(&scene, next);
		next = next_generation(&scene);
		(void)next_role(&scene, next, "i", NULL, NULL);
		put_in_place(&scene, next);
		next = next_generation(&scene);
		const struct role *new = next_role(&scene, next, "j", &legacy[1], NULL);
		put_in_place(&scene, next);
		/* The generations between are destroyed. */
		CHECK_OK(postern_box_sweep(scene.box, NULL, &scene.error),
				&scene.error);
		CHECK_INT(scene_send(&scene, "t", "2"), POSTERN_OK);
		wait_for(&new->runs, 1);
		CHECK_INT(atomic_load(&old->runs), 0);
		(void)sem_post(&scene.may_end);
		wait_for(&old->runs, 1);
		scene_close(&scene);
	}
}

/* Fails in the first generation, once it may. */
static void retry_soon(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct role *role = context;
	(void)message;
	(void)delivery;
	(void)sem_post(&role->scene->began);
	(void)sem_wait(&role->scene->may_end);
	postern_outcome_set(outcome, POSTERN_RETRY_AFTER, 10, "once more");
	atomic_fetch_add(&role->runs, 1);
}

/* Well before the next poll. */
static void wait_soon(const atomic_int *value, int wanted) {
	for (int i = 0; i < 10000 && atomic_load(value) < wanted; i++) {
		(void)usleep(1000);
	}
	CHECK_INT(atomic_load(value), wanted);
}

/* Two handlers become one while both run. */
static void merged_handler_is_retried_in_time(void) {
	static const char *const legacy[] = { "i" };
	struct scene scene;
	if (scene_open(&scene, POSTERN_ORPHANS_HOLD)) {
		struct role *both[2];
		static const char *const keys[] = { "h", "i" };
		for (size_t i = 0; i < 2; i++) {
			both[i] = add_role(&scene, 1, keys[i]);
			struct postern_handler_options options =
					role_options(both[i], NULL, NULL);
			options.callback = retry_soon;
			CHECK_OK(postern_box_add_handler(scene.box, "c", &options,
							 &scene.error),
					&scene.error);
		}
		scene_start(&scene, true);
		CHECK_INT(scene_send(&scene, "t", "1"), POSTERN_OK);
		(void)sem_wait(&scene.began);
		(void)sem_wait(&scene.began);
		struct postern_generation *next = next_generation(&scene);
		const struct role *new = next_role(&scene, next, "h", legacy, NULL);
		put_in_place(&scene, next);
		/* Each of the two is a delivery, and is retried when it is due. */
		(void)sem_post(&scene.may_end);
		wait_soon(&new->runs, 1);
		(void)sem_post(&scene.may_end);
		wait_soon(&new->runs, 2);
		scene_close(&scene);
	}
}

/* Between two generations with the handler there is one without it, and the
   second is destroyed while a run of the first lasts. */
static void handler_outlives_its_generation(void) {
	struct scene scene;
	if (scene_open(&scene, POSTERN_ORPHANS_HOLD)) {
		struct role *old = add_role(&scene, 1, "h");
		struct postern_handler_options options = role_options(old, NULL, NULL);
		options.callback = retry_soon;
		CHECK_OK(postern_box_add_handler(scene.box, "c", &options,
						 &scene.error),
				&scene.error);
		scene_start(&scene, true);
		CHECK_INT(scene_send(&scene, "t", "1"), POSTERN_OK);
		(void)sem_wait(&scene.began);
		struct postern_generation *next = next_generation(&scene);
		const struct role *between = next_role(&scene, next, "h", NULL, NULL);
		put_in_place(&scene, next);
		put_in_place(&scene, next_generation(&scene));
		CHECK_OK(postern_box_sweep(scene.box, NULL, &scene.error),
				&scene.error);
		(void)sem_post(&scene.may_end);
		wait_for(&old->runs, 1);
		CHECK_OK(postern_box_commit(scene.box, NULL, &scene.error),
				&scene.error);
		next = next_generation(&scene);
		const struct role *new = next_role(&scene, next, "h", NULL, NULL);
		put_in_place(&scene, next);
		wait_soon(&new->runs, 1);
		CHECK_INT(atomic_load(&between->runs), 0);
		scene_close(&scene);
	}
}

/* The handler with the same key, rather than the first that shares one. */
static void same_key_is_continued_first(void) {
	static const char *const legacy[] = { "g" };
	static const char *const other[] = { "other" };
	struct scene scene;
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.concurrency = 1;
	if (scene_open(&scene, POSTERN_ORPHANS_HOLD)) {
		struct role *first = add_role(&scene, 1, "g");
		struct postern_handler_options options =
				role_options(first, NULL, NULL);
		options.types = other;
		options.type_count = 1;
		CHECK_OK(postern_box_add_handler(scene.box, "c", &options,
						 &scene.error),
				&scene.error);
		(void)scene_first(&scene, "h", &policy);
		scene_start(&scene, true);
		CHECK_INT(scene_send(&scene, "slow", "1"), POSTERN_OK);
		(void)sem_wait(&scene.began);
		struct postern_generation *next = next_generation(&scene);
		const struct role *new = next_role(&scene, next, "h", legacy, &policy);
		put_in_place(&scene, next);
		/* The run of the old "h" counts. */
		CHECK_INT(scene_send(&scene, "t", "2"), POSTERN_OK);
		(void)usleep(100 * 1000);
		CHECK_INT(atomic_load(&new->runs), 0);
		(void)sem_post(&scene.may_end);
		wait_soon(&new->runs, 1);
		scene_close(&scene);
	}
}

/* Load: senders, a runner, and a thread that replaces the generation. Each has
   the handlers "always" and "odd" or "even"; "always" is renamed each time. */

#define SENDERS 3
#define SWAPS_MAX 10000
/* The most messages that are sent between two replacements. */
#define PER_SWAP 50
#define MESSAGES_MAX (PER_SWAP * (SWAPS_MAX + 1) + SENDERS)

struct load_role {
	struct load *load;
	int generation;
	int column; /* of load->runs */
};

struct load {
	struct scene scene;
	int swaps;
	atomic_int in_place; /* the number of the generation */
	atomic_int senders_ended;
	atomic_bool stop;
	atomic_int next_id;
	/* Per message: the generation in place before it was sent, and runs. */
	int sent_at[MESSAGES_MAX];
	atomic_uchar runs[MESSAGES_MAX][2];
	atomic_int early; /* runs by a generation older than that */
	struct load_role *roles;
};

static void run_load(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	const struct load_role *role = context;
	struct load *load = role->load;
	(void)delivery;
	(void)outcome;
	long id = strtol(message->id, NULL, 10);
	atomic_fetch_add(&load->runs[id][role->column], 1);
	if (role->generation < load->sent_at[id]) {
		atomic_fetch_add(&load->early, 1);
	}
}

static void *send_load(void *context) {
	struct load *load = context;
	while (!atomic_load(&load->stop)) {
		if (atomic_load(&load->next_id) >=
				PER_SWAP * (atomic_load(&load->in_place) + 1)) {
			(void)usleep(100);
			continue;
		}
		int id = atomic_fetch_add(&load->next_id, 1);
		char text[16];
		(void)snprintf(text, sizeof(text), "%d", id);
		load->sent_at[id] = atomic_load(&load->in_place);
		CHECK_INT(scene_send(&load->scene, "t", text), POSTERN_OK);
	}
	return NULL;
}

static void add_load_handler(struct load *load, struct postern_generation *next,
		int generation, int column) {
	static const char *const names[] = { "always-a", "always-b" };
	struct load_role *role = &load->roles[2 * generation + column];
	*role = (struct load_role){ load, generation, column };
	const char *const *legacy = &names[(generation + 1) % 2];
	struct postern_handler_options options = {
		.size = sizeof(options),
		.key = column == 0 ? names[generation % 2] : "other",
		.legacy_keys = legacy,
		.legacy_key_count = column == 0,
		.callback = run_load,
		.context = role,
	};
	CHECK_OK(next ? postern_generation_add_handler(next, "c", &options,
							&load->scene.error)
				  : postern_box_add_handler(load->scene.box, "c", &options,
							&load->scene.error),
			&load->scene.error);
}

static void replace_often(struct load *load) {
	struct scene *scene = &load->scene;
	for (int i = 1; i <= load->swaps; i++) {
		struct postern_generation *next = next_generation(scene);
		add_load_handler(load, next, i, 0);
		/* In the last one again: what is open of "other" ends. */
		if (i % 2 == 0) {
			add_load_handler(load, next, i, 1);
		}
		put_in_place(scene, next);
		atomic_store(&load->in_place, i);
		int sent = atomic_load(&load->next_id);
		while (atomic_load(&load->next_id) < sent + SENDERS) {
			(void)usleep(100);
		}
	}
}

static void wait_until_idle(struct scene *scene) {
	for (int i = 0; i < 6000; i++) {
		if (open_of(scene, NULL) == 0) {
			return;
		}
		(void)usleep(10000);
	}
	FAIL("deliveries are still open after a minute");
}

static void replaced_under_load(void) {
	struct load *load = calloc(1, sizeof(*load));
	struct scene *scene = &load->scene;
	const char *swaps = getenv("POSTERN_SWAPS");
	load->swaps = swaps ? (int)strtol(swaps, NULL, 10) : scene_swaps();
	load->swaps = load->swaps < SWAPS_MAX ? load->swaps : SWAPS_MAX;
	load->roles = calloc((size_t)load->swaps + 1, 2 * sizeof(*load->roles));
	pthread_t senders[SENDERS];
	if (scene_open(scene, POSTERN_ORPHANS_HOLD)) {
		add_load_handler(load, NULL, 0, 0);
		scene_start(scene, true);
		for (int i = 0; i < SENDERS; i++) {
			CHECK_INT(pthread_create(&senders[i], NULL, send_load, load), 0);
		}
		replace_often(load);
		atomic_store(&load->stop, true);
		for (int i = 0; i < SENDERS; i++) {
			(void)pthread_join(senders[i], NULL);
		}
		wait_until_idle(scene);
		scene_close(scene);
		int sent = atomic_load(&load->next_id);
		int lost = 0;
		int doubled = 0;
		int others = 0;
		for (int i = 0; i < sent; i++) {
			lost += load->runs[i][0] == 0;
			doubled += load->runs[i][0] > 1 || load->runs[i][1] > 1;
			others += load->runs[i][1];
		}
		printf("# %d generations, %d messages, %d runs of the other handler\n",
				load->swaps, sent, others);
		CHECK(sent >= SENDERS * load->swaps);
		CHECK(others > 0);
		CHECK_INT(lost, 0);
		CHECK_INT(doubled, 0);
		CHECK_INT(load->early, 0);
	}
	free(load->roles);
	free(load);
}

#define GENERATION_CASES                                                  \
	{ "what is leased and not started is run by the next generation",     \
		queued_runs_change_hands },                                       \
			{ "a run that has started ends as it began, and counts",      \
				started_run_ends_as_it_began },                           \
			{ "deliveries of a removed handler wait until it comes back", \
				removed_handler_waits },                                  \
			{ "a renamed handler continues the old one",                  \
				renamed_handler_goes_on },                                \
			{ "a handler can be renamed back, and forth again",           \
				renamed_there_and_back },                                 \
			{ "a generation that is refused changes nothing",             \
				refused_generation_changes_nothing },                     \
			{ "a handler is renamed twice during one run",                \
				renamed_twice_during_a_run },                             \
			{ "a handler that continues two claims the retries of both",  \
				merged_handler_is_retried_in_time },                      \
			{ "a handler comes back while an old run of it lasts",        \
				handler_outlives_its_generation },                        \
			{ "a handler continues the one with its own key",             \
				same_key_is_continued_first },                            \
	{                                                                     \
		"generations replaced under load lose and double nothing",        \
				replaced_under_load                                       \
	}

#endif
