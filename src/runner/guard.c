/* SPDX-License-Identifier: MIT */

/*
 * The guard: a function runs once for a handler and a key.
 *
 * A call first joins the table of what runs in this process. A copy waits
 * there, without a connection, until the call that runs has ended: if that
 * succeeded it is a duplicate, if not, one of the copies runs. So at most one
 * call of a process asks the store about a key, and what happens between
 * processes is left to the store: a transaction waits for another one's row, a
 * lease for its end.
 */

#include "runner/guard.h"

#include "base/fail.h"
#include "base/sized.h"
#include "base/wait.h"
#include "core/box.h"
#include "store/marker_kind.h"

#include <postern/sys/clock.h>
#include <postern/sys/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_MS_DEFAULT ((int64_t)10000)
#define LEASE_MS_DEFAULT ((int64_t)30000)
/* Between two looks at a lease that another process has. */
#define LOOK_MS_MIN ((int64_t)10)
#define LOOK_MS_MAX ((int64_t)250)

/* A key that a call of this process works on. Freed with the last call. */
struct entry {
	struct postern__list link; /* in its bucket, until it has ended */
	const struct postern_mark *mark;
	pthread_t thread;
	size_t refs;
	bool ended;
	bool done;
	pthread_cond_t wake;
};

/* One call of a guarded function. */
struct call {
	struct postern_guard *guard;
	struct postern__guarded_run *run;
	const struct postern_mark *mark;
	const char *handler; /* its name in errors */
	uint64_t fence;
	bool leased; /* another process has the marker */
	struct postern__guard_watched watched;
	int64_t until_ms; /* monotonic: the end of waiting for a copy */
};

static struct postern__list *bucket_of(struct postern_guard *guard,
		const struct postern_mark *mark) {
	uint64_t hash =
			postern__siphash_of(guard->secret, mark->value, mark->value_len);
	return &guard->buckets[hash % POSTERN__GUARD_BUCKET_COUNT];
}

static bool is_same(const struct postern_mark *a,
		const struct postern_mark *b) {
	return a->value_len == b->value_len &&
		   memcmp(a->value, b->value, a->value_len) == 0 &&
		   strcmp(a->handlers[0], b->handlers[0]) == 0;
}

/* With the mutex. */
static struct entry *find_entry(struct postern_guard *guard,
		const struct postern_mark *mark) {
	postern__list_each(link, bucket_of(guard, mark)) {
		struct entry *entry = container_of(link, struct entry, link);
		if (is_same(entry->mark, mark)) {
			return entry;
		}
	}
	return NULL;
}

/* With the mutex. */
static void release_entry(struct entry *entry) {
	if (--entry->refs == 0) {
		(void)pthread_cond_destroy(&entry->wake);
		free(entry);
	}
}

/* With the mutex: wait until the call that runs has ended. */
static int wait_for_copy(struct call *call, struct entry *entry,
		struct postern_error *error) {
	struct postern_guard *guard = call->guard;
	entry->refs++;
	/* A call inside its own function would wait for itself. */
	bool own = pthread_equal(entry->thread, pthread_self());
	int64_t left = own ? 0 : call->until_ms - postern__guard_now_ms(guard);
	while (!entry->ended && left > 0) {
		postern__wait(&entry->wake, &guard->mutex, left);
		left = call->until_ms - postern__guard_now_ms(guard);
	}
	bool ended = entry->ended;
	bool done = entry->done;
	release_entry(entry);
	if (!ended) {
		return postern__guard_fail_running(call->handler, error);
	}
	return done ? postern__guard_fail_done(call->handler, error) : POSTERN_OK;
}

/* Become the one call of this process that works on the key. */
static int enter(struct call *call, struct entry **out,
		struct postern_error *error) {
	struct postern_guard *guard = call->guard;
	struct entry *entry = calloc(1, sizeof(*entry));
	if (!entry || postern__wait_init(&entry->wake)) {
		free(entry);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	entry->mark = call->mark;
	entry->thread = pthread_self();
	entry->refs = 1;
	int r = POSTERN_OK;
	struct entry *other;
	(void)pthread_mutex_lock(&guard->mutex);
	while (!r && (other = find_entry(guard, entry->mark))) {
		r = wait_for_copy(call, other, error);
	}
	if (!r) {
		postern__list_push_back(bucket_of(guard, entry->mark), &entry->link);
		*out = entry;
	} else {
		release_entry(entry);
	}
	(void)pthread_mutex_unlock(&guard->mutex);
	return r;
}

static void leave(struct postern_guard *guard, struct entry *entry, bool done) {
	(void)pthread_mutex_lock(&guard->mutex);
	postern__list_remove(&entry->link);
	entry->mark = NULL; /* of a call that ends now */
	entry->ended = true;
	entry->done = done;
	(void)pthread_cond_broadcast(&entry->wake);
	release_entry(entry);
	(void)pthread_mutex_unlock(&guard->mutex);
}

static bool is_success(const struct postern_outcome *outcome) {
	return outcome->kind == POSTERN_DONE || outcome->kind == POSTERN_DISCARD;
}

static void call_function(struct call *call, void *transaction,
		uint64_t epoch) {
	struct postern__guarded_run *run = call->run;
	run->called = true;
	run->run(run->context, call->fence, transaction, epoch, &run->outcome);
}

static int fail_function(const struct call *call, struct postern_error *error) {
	return postern__fail(error, POSTERN_E_FAILED, "%s",
			call->run->outcome.reason[0] ? call->run->outcome.reason
										 : "the function failed");
}

/* Read whether the key was done, without writing anything. */
static int look(struct call *call, struct postern_mark_request *request,
		struct postern_error *error) {
	struct postern_markers *markers = call->guard->markers;
	*request = (struct postern_mark_request){ .kind = POSTERN_MARK_READ };
	int r = markers->ops->change(markers, call->mark, request, error);
	if (!r && request->before == POSTERN_MARK_DONE) {
		r = postern__guard_fail_done(call->handler, error);
	}
	return r;
}

static void run_unit(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	struct call *call = context;
	struct postern_guard *guard = call->guard;
	/* Only now: what it waited for, the writer or a row, is not its time. */
	if (call->run->timeout_ms > 0) {
		postern__guard_watch_set(&guard->timeouts, &call->watched,
				call->run->timeout_ms);
	}
	call_function(call, transaction, epoch);
	*outcome = call->run->outcome;
}

/* What came of a unit. */
static int judge_unit(struct call *call, const struct postern_unit *unit,
		struct postern_error *error) {
	if (call->run->called) {
		call->run->outcome = unit->outcome;
	}
	if (unit->committed) {
		return POSTERN_OK;
	}
	if (unit->code == POSTERN_E_DUPLICATE) {
		return postern__guard_fail_done(call->handler, error);
	}
	if (unit->code == POSTERN_E_BUSY) {
		call->leased = true;
		return postern__guard_fail_running(call->handler, error);
	}
	if (unit->code) {
		return postern__fail(error, unit->code, "%s",
				unit->outcome.reason[0] ? unit->outcome.reason
										: postern_error_text(unit->code));
	}
	return fail_function(call, error);
}

static int transact_once(struct call *call, struct postern_error *error) {
	struct postern_guard *guard = call->guard;
	int64_t left = call->until_ms - postern__guard_now_ms(guard);
	struct postern_unit unit = {
		.fence = call->fence,
		.mark = call->mark,
		.wait_ms = left > 0 ? left : 0,
		.context = call,
		.run = run_unit,
	};
	int r = POSTERN_OK;
	call->watched = (struct postern__guard_watched){ .unit = call };
	if (call->run->timeout_ms > 0) {
		r = postern__guard_watch_add(&guard->timeouts, &call->watched,
				POSTERN__GUARD_NEVER, error);
	}
	if (r) {
		return r;
	}
	r = guard->store->ops->transact(guard->store, 0, NULL, &unit, 1, error);
	if (call->run->timeout_ms > 0) {
		postern__guard_watch_remove(&guard->timeouts, &call->watched);
	}
	return r ? r : judge_unit(call, &unit, error);
}

static void sleep_ms(int64_t ms) {
	struct timespec time = {
		.tv_sec = ms / 1000,
		.tv_nsec = ms % 1000 * 1000000,
	};
	(void)nanosleep(&time, NULL);
}

/* Wait for a lease that another process has. False: no longer. */
static bool wait_for_lease(const struct call *call, int64_t left_ms,
		int64_t *pause_ms) {
	int64_t left = call->until_ms - postern__guard_now_ms(call->guard);
	int64_t pause = *pause_ms < left ? *pause_ms : left;
	if (left <= 0) {
		return false;
	}
	sleep_ms(left_ms > 0 && left_ms < pause ? left_ms : pause);
	*pause_ms = *pause_ms * 2 < LOOK_MS_MAX ? *pause_ms * 2 : LOOK_MS_MAX;
	return true;
}

/* Whether to look before the transaction, which finds a duplicate as well: that
   costs less than a transaction, and more than nothing. Where transactions wait
   for each other, a duplicate must not wait; elsewhere one is likely to follow
   another. */
static bool looks_first(const struct postern_guard *guard) {
	return guard->store->transactions <= 1 ||
		   atomic_load_explicit(&guard->copied, memory_order_relaxed);
}

static int run_transactional(struct call *call, struct postern_error *error) {
	struct postern_guard *guard = call->guard;
	struct postern_mark_request request = { .before = POSTERN_MARK_UNKNOWN };
	int64_t pause_ms = LOOK_MS_MIN;
	bool looks = looks_first(guard);
	int r;
	do {
		call->leased = false;
		r = looks ? look(call, &request, error) : POSTERN_OK;
		looks = true;
		if (!r && request.before == POSTERN_MARK_UNKNOWN) {
			r = transact_once(call, error);
		} else if (!r) {
			call->leased = true;
			r = postern__guard_fail_running(call->handler, error);
		}
		/* If the writer was busy, the call has waited already. */
	} while (call->leased && !call->run->called &&
			 wait_for_lease(call, request.left_ms, &pause_ms));
	atomic_store_explicit(&guard->copied, r == POSTERN_E_DUPLICATE,
			memory_order_relaxed);
	return r;
}

static void release_lease(struct call *call) {
	struct postern_markers *markers = call->guard->markers;
	struct postern_mark_request request = {
		.kind = POSTERN_MARK_RELEASE,
		.fence = call->fence,
	};
	/* If this fails, it is unknown when its lease has ended. */
	(void)markers->ops->change(markers, call->mark, &request, NULL);
}

/* Begin the lease, once more if the answer came late: it may have ended since,
   and another call may have begun. */
static int ask_lease(struct call *call, struct postern_mark_request *request,
		struct postern_error *error) {
	struct postern_guard *guard = call->guard;
	struct postern_markers *markers = guard->markers;
	for (int i = 0; i < 2; i++) {
		int64_t asked_ms = postern__guard_now_ms(guard);
		*request = (struct postern_mark_request){
			.kind = POSTERN_MARK_BEGIN,
			.fence = call->fence,
			.lease_ms = guard->lease_ms,
		};
		int r = markers->ops->change(markers, call->mark, request, error);
		bool late =
				postern__guard_now_ms(guard) - asked_ms > guard->lease_ms / 2;
		if (r || request->before != POSTERN_MARK_UNKNOWN || !late) {
			return r;
		}
	}
	release_lease(call);
	return postern__fail(error, POSTERN_E_UNAVAILABLE,
			"the store answers too slowly for a lease of %lld ms",
			(long long)guard->lease_ms);
}

static int begin_lease(struct call *call, struct postern_error *error) {
	struct postern_mark_request request;
	int64_t pause_ms = LOOK_MS_MIN;
	do {
		int r = ask_lease(call, &request, error);
		if (r || request.before == POSTERN_MARK_UNKNOWN) {
			return r;
		}
		if (request.before == POSTERN_MARK_DONE) {
			return postern__guard_fail_done(call->handler, error);
		}
	} while (wait_for_lease(call, request.left_ms, &pause_ms));
	return postern__guard_fail_running(call->handler, error);
}

static int end_lease(struct call *call, struct postern_error *error) {
	struct postern_markers *markers = call->guard->markers;
	struct postern_mark_request request = {
		.kind = POSTERN_MARK_FINISH,
		.fence = call->fence,
	};
	if (!is_success(&call->run->outcome)) {
		release_lease(call);
		return fail_function(call, error);
	}
	return markers->ops->change(markers, call->mark, &request, error);
}

static int run_leased(struct call *call, struct postern_error *error) {
	struct postern_guard *guard = call->guard;
	struct postern_mark_request request;
	/* A duplicate is read without a write. Where only markers are kept, a
	   lease that is refused writes nothing either. */
	int r = guard->store ? look(call, &request, error) : POSTERN_OK;
	if (!r) {
		r = begin_lease(call, error);
	}
	if (r) {
		return r;
	}
	call->watched = (struct postern__guard_watched){
		.mark = call->mark,
		.fence = call->fence,
	};
	r = postern__guard_watch_add(&guard->leases, &call->watched,
			guard->lease_ms / 3, error);
	if (r) {
		release_lease(call);
		return r;
	}
	call_function(call, NULL, 0);
	postern__guard_watch_remove(&guard->leases, &call->watched);
	return end_lease(call, error);
}

/* The keys are in memory: no other process has them, and copies in this one
   wait already. */
static int run_in_memory(struct call *call, struct postern_error *error) {
	struct postern__guarded_run *run = call->run;
	const struct postern_mark *mark = call->mark;
	if (postern__recent_has(run->recent, mark->value, mark->value_len,
				&run->recent_limits, postern__guard_now_ms(call->guard))) {
		return postern__guard_fail_done(call->handler, error);
	}
	call_function(call, NULL, 0);
	if (!is_success(&run->outcome)) {
		return fail_function(call, error);
	}
	run->forgot = postern__recent_add(run->recent, mark->value, mark->value_len,
			&run->recent_limits, postern__guard_now_ms(call->guard));
	return POSTERN_OK;
}

static int run_entered(struct call *call, struct postern_error *error) {
	if (call->run->recent) {
		return run_in_memory(call, error);
	}
	return call->run->transactional ? run_transactional(call, error)
									: run_leased(call, error);
}

static int check_run(const struct call *call, struct postern_error *error) {
	const struct postern_guard *guard = call->guard;
	bool transacts = guard->store && guard->store->ops->transactional;
	if (call->run->transactional && !transacts) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"'%s' is transactional, which a %s store does not support",
				call->handler, guard->markers->ops->name);
	}
	return POSTERN_OK;
}

int postern__guard_do(struct postern_guard *guard,
		struct postern__guarded_run *run, struct postern_error *error) {
	struct call call = {
		.guard = guard,
		.run = run,
		.mark = &run->mark,
		.handler = run->mark.handlers[0],
		.fence = postern__guard_fence(guard),
		.until_ms = postern__guard_now_ms(guard) + run->wait_ms,
	};
	struct entry *entry;
	postern_outcome_set(&run->outcome, POSTERN_DONE, 0, NULL);
	run->called = false;
	run->forgot = false;
	int r = check_run(&call, error);
	if (!r) {
		r = enter(&call, &entry, error);
	}
	if (r) {
		return r;
	}
	r = run_entered(&call, error);
	leave(guard, entry, r == POSTERN_OK || r == POSTERN_E_DUPLICATE);
	return r;
}

/* A function of a program. */
struct program {
	struct postern_guard_call call;
	postern_guard_function *function;
	void *context;
};

static void call_program(void *context, uint64_t fence, void *transaction,
		uint64_t epoch, struct postern_outcome *outcome) {
	struct program *program = context;
	(void)epoch;
	program->call.fence = fence;
	program->call.transaction = transaction;
	program->function(program->context, &program->call, outcome);
}

int postern_guard_run(struct postern_guard *guard,
		const struct postern_guarded *given, postern_guard_function *function,
		void *context, struct postern_outcome *outcome_out,
		struct postern_error *error) {
	struct postern_guarded guarded = { 0 };
	struct postern__mark_names names;
	struct program program = { .function = function, .context = context };
	int r = postern__sized_copy(&guarded, sizeof(guarded), given,
			"struct postern_guarded", error);
	if (!r) {
		r = postern__mark_names_init(&names, guarded.handler,
				guarded.legacy_keys, guarded.legacy_key_count, guarded.key,
				guarded.key_len, error);
	}
	if (r) {
		return r;
	}
	program.call = (struct postern_guard_call){
		.size = sizeof(program.call),
		.handler = guarded.handler,
		.key = guarded.key,
		.key_len = names.mark.value_len,
	};
	struct postern__guarded_run run = {
		.mark = names.mark,
		.transactional = guarded.transactional,
		.wait_ms = guard->wait_ms,
		.timeout_ms = guard->timeout_ms,
		.context = &program,
		.run = call_program,
	};
	r = postern__guard_do(guard, &run, error);
	if (run.called && outcome_out) {
		*outcome_out = run.outcome;
	}
	return r;
}

static int take_options(struct postern_guard *guard,
		const struct postern_guard_options *options,
		struct postern_error *error) {
	guard->wait_ms = options->wait_ms ? options->wait_ms : WAIT_MS_DEFAULT;
	guard->wait_ms = guard->wait_ms < 0 ? 0 : guard->wait_ms;
	guard->lease_ms = options->lease_ms ? options->lease_ms : LEASE_MS_DEFAULT;
	guard->timeout_ms = options->timeout_ms ? options->timeout_ms
											: POSTERN_TRANSACTION_TIMEOUT_MS;
	guard->timeout_ms = guard->timeout_ms < 0 ? 0 : guard->timeout_ms;
	guard->clock = options->clock ? options->clock : postern_clock_system();
	guard->random = options->random ? options->random : postern_random_system();
	if (guard->lease_ms < POSTERN_GUARD_LEASE_MS_MIN ||
			guard->lease_ms > POSTERN_DURATION_MS_MAX ||
			guard->wait_ms > POSTERN_DURATION_MS_MAX ||
			guard->timeout_ms > POSTERN_DURATION_MS_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a lease is 1 s to ten years, a wait and a timeout at most ten "
				"years");
	}
	return POSTERN_OK;
}

/* What a guard works on. */
struct base {
	struct postern_store *store; /* NULL: it keeps markers only */
	struct postern_markers *markers;
	const struct postern_marker_kind *kind;
	bool owned;
};

static void destroy_base(const struct base *base) {
	if (base->owned && base->store) {
		postern_store_destroy(base->store);
	} else if (base->owned && base->markers) {
		base->markers->ops->destroy(base->markers);
	}
}

static int create_guard(const struct base *base,
		const struct postern_guard_options *options, struct postern_guard **out,
		struct postern_error *error) {
	struct postern_guard *guard = calloc(1, sizeof(*guard));
	if (!guard) {
		destroy_base(base);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	guard->store = base->store;
	guard->owns_store = base->owned;
	guard->markers = base->markers;
	guard->kind = base->kind;
	/* This cannot fail on Linux. */
	(void)pthread_mutex_init(&guard->mutex, NULL);
	postern__guard_watch_init(guard, &guard->leases);
	postern__guard_watch_init(guard, &guard->timeouts);
	for (size_t i = 0; i < POSTERN__GUARD_BUCKET_COUNT; i++) {
		postern__list_init(&guard->buckets[i]);
	}
	int r = take_options(guard, options, error);
	if (!r && !guard->markers) {
		r = postern__fail(error, POSTERN_E_UNSUPPORTED,
				"a %s store keeps no markers",
				guard->store ? guard->store->ops->name : "none:");
	}
	if (r) {
		postern_guard_destroy(guard);
		return r;
	}
	for (size_t i = 0; i < sizeof(guard->secret); i++) {
		guard->secret[i] = (uint8_t)guard->random->next(guard->random->context);
	}
	*out = guard;
	return POSTERN_OK;
}

/* The options of any version. */
static int copy_options(struct postern_guard_options *out,
		const struct postern_guard_options *given,
		struct postern_error *error) {
	*out = (struct postern_guard_options){ .size = sizeof(*out) };
	return given ? postern__sized_copy(out, sizeof(*out), given,
						   "struct postern_guard_options", error)
				 : POSTERN_OK;
}

int postern_guard_open(const char *url,
		const struct postern_guard_options *given, struct postern_guard **out,
		struct postern_error *error) {
	struct postern_guard_options options;
	int r = copy_options(&options, given, error);
	if (r) {
		return r;
	}
	const struct postern_store_options store_options = {
		.size = sizeof(store_options),
		.must_exist = options.must_exist,
		.no_migrate = options.no_migrate,
		.command_timeout_ms = options.command_timeout_ms,
		.command_retries = options.command_retries,
		.schema = options.schema,
		.connections = options.connections,
		.clock = options.clock,
		.random = options.random,
		.markers_only = true,
	};
	struct base base = { .owned = true, .kind = postern__marker_kind_of(url) };
	if (base.kind) {
		r = postern__markers_open(url, &store_options, &base.markers, error);
	} else {
		r = postern_store_open(url, &store_options, &base.store, error);
		base.markers = r ? NULL : base.store->markers;
	}
	return r ? r : create_guard(&base, &options, out, error);
}

int postern_guard_create(struct postern_box *box,
		const struct postern_guard_options *given, struct postern_guard **out,
		struct postern_error *error) {
	struct postern_guard_options options;
	int r = copy_options(&options, given, error);
	const struct base base = {
		.store = box->store->markers_only ? NULL : box->store,
		.markers = box->store->markers,
		.kind = box->store->marker_kind,
	};
	return r ? r : create_guard(&base, &options, out, error);
}

void postern_guard_destroy(struct postern_guard *guard) {
	if (!guard) {
		return;
	}
	postern__guard_watch_stop(guard);
	const struct base base = {
		.store = guard->store,
		.markers = guard->markers,
		.owned = guard->owns_store,
	};
	destroy_base(&base);
	(void)pthread_mutex_destroy(&guard->mutex);
	free(guard);
}

struct warning {
	char *text;
	size_t size;
	size_t len;
};

static void add_warning(void *context, int code, const char *text) {
	struct warning *warning = context;
	(void)code;
	int len =
			snprintf(warning->text + warning->len, warning->size - warning->len,
					"%s%s", warning->len ? "; " : "", text);
	warning->len += len > 0 ? (size_t)len : 0;
	if (warning->len >= warning->size) {
		warning->len = warning->size - 1;
	}
}

int postern_guard_check(struct postern_guard *guard, char *warning_out,
		size_t size, struct postern_error *error) {
	struct warning warning = { .text = warning_out, .size = size };
	if (size == 0) {
		return postern__fail(error, POSTERN_E_INVALID, "no room for a warning");
	}
	warning_out[0] = '\0';
	return guard->kind ? guard->kind->examine(guard->markers, add_warning,
								 &warning, error)
					   : POSTERN_OK;
}
