/* SPDX-License-Identifier: MIT */

/*
 * The connections of a store, and the frame of every operation.
 *
 * Connections are made when they are needed and kept. When the server cannot
 * be reached, the next try waits, longer each time; until then whoever asks is
 * told why at once, so that a database that is down does not tie up every
 * thread. The pool waits no longer than the server has been away so far, and
 * not at all once any connection was made, be it the keeper's.
 *
 * An operation never needs a second connection while it has one: whoever has
 * lost its connection in a COMMIT connects again in the same place to ask for
 * the result. Otherwise as many losses at a time as there are places would wait
 * for each other.
 *
 * The renewal of the node does not use the pool: its connection, the keeper, is
 * outside of it and is never waited for behind the node's own work.
 */

#include <poll.h>
#include <postern/sys/clock.h>
#include <postern/sys/random.h>
#include <time.h>

#include "base/fail.h"
#include "base/point.h"
#include "base/wait.h"
#include "store/postgres/postgres.h"

#define RETRY_MS_MIN 50
#define RETRY_MS_MAX 5000
/* What a renewal may take at least: connecting to a busy server takes its time
   also where the term is short. */
#define TENURE_MS_MIN INT64_C(2000)
/* The same for ending a node, which waits for all that it has under way. */
#define END_MS_MIN INT64_C(10000)

static int64_t now_ms(const struct pg_store *self) {
	return self->clock->monotonic_ms(self->clock->context);
}

/* Half of it for certain, and half by chance: not all at once. */
static int64_t pause_ms(const struct pg_store *self, uint32_t failures) {
	int64_t whole = RETRY_MS_MAX;
	if (failures < 7) {
		whole = (int64_t)RETRY_MS_MIN << failures;
	}
	whole = whole < RETRY_MS_MAX ? whole : RETRY_MS_MAX;
	uint64_t chance = self->random->next(self->random->context);
	return whole / 2 + (int64_t)(chance % (uint64_t)(whole / 2 + 1));
}

static void rest(int64_t ms) {
	struct timespec time = {
		.tv_sec = ms / 1000,
		.tv_nsec = ms % 1000 * 1000000,
	};
	(void)nanosleep(&time, NULL);
}

void postern__pg_pool_init(struct pg_store *self) {
	(void)pthread_mutex_init(&self->mutex, NULL);
	(void)pthread_mutex_init(&self->active.mutex, NULL);
	(void)pthread_mutex_init(&self->settling, NULL);
	(void)postern__wait_init(&self->given);
	(void)postern__wait_init(&self->kept);
	self->keeper.store = self;
	(void)postern__wait_init(&self->active.ended);
	for (size_t i = 0; i < PG_CONNECTION_MAX; i++) {
		self->connections[i].store = self;
	}
}

void postern__pg_pool_finish(struct pg_store *self) {
	for (size_t i = 0; i < PG_CONNECTION_MAX; i++) {
		postern__pg_disconnect(&self->connections[i]);
	}
	postern__pg_disconnect(&self->keeper);
	(void)pthread_cond_destroy(&self->given);
	(void)pthread_cond_destroy(&self->kept);
	(void)pthread_mutex_destroy(&self->mutex);
	(void)pthread_mutex_destroy(&self->active.mutex);
	(void)pthread_cond_destroy(&self->active.ended);
	(void)pthread_mutex_destroy(&self->settling);
}

/* With the lock: one that is free, connected rather than not. */
static struct pg_connection *find_free(struct pg_store *self) {
	struct pg_connection *found = NULL;
	for (size_t i = 0; i < self->connection_max; i++) {
		struct pg_connection *connection = &self->connections[i];
		if (!connection->taken && (!found || !found->link)) {
			found = connection;
		}
	}
	return found;
}

static int wait_free(struct pg_store *self, struct pg_connection **out,
		struct postern_error *error) {
	int64_t end = now_ms(self) + self->command_timeout_ms;
	struct pg_connection *found = find_free(self);
	while (!found) {
		int64_t left = end - now_ms(self);
		if (left <= 0) {
			return postern__fail(error, POSTERN_E_TIMEOUT,
					"all %zu connections to PostgreSQL were busy for %lld ms",
					self->connection_max, (long long)self->command_timeout_ms);
		}
		postern__wait(&self->given, &self->mutex, left);
		found = find_free(self);
	}
	found->taken = true;
	*out = found;
	return POSTERN_OK;
}

/* Whether the last failure is too fresh to try once more. */
static int check_turn(struct pg_store *self, struct postern_error *error) {
	if (self->connect_failures == 0 || now_ms(self) >= self->connect_at_ms) {
		return POSTERN_OK;
	}
	if (error) {
		*error = self->connect_error;
	}
	return self->connect_error.code;
}

/* A connection was made, by the pool or by the keeper: nothing is known of it
   yet, and nobody has to wait for a turn. */
static void note_made(struct pg_store *self, struct pg_connection *made) {
	(void)pthread_mutex_lock(&self->mutex);
	self->connect_failures = 0;
	made->epoch = ++self->epoch;
	made->direct = false;
	made->named = false;
	made->apply_named = false;
	made->names = made->epoch;
	(void)pthread_mutex_unlock(&self->mutex);
}

/* Connecting failed, for others that want to connect. The pause grows by one
   step when its turn has failed: threads that fail beside each other, or try
   again without a turn, see the same outage once more. */
static void note_failed(struct pg_store *self, const struct pg_connection *made,
		const struct postern_error *error) {
	(void)pthread_mutex_lock(&self->mutex);
	int64_t now = now_ms(self);
	if (self->connect_failures == 0 || now >= self->connect_at_ms) {
		self->connect_at_ms = now + pause_ms(self, self->connect_failures);
		self->connect_failures++;
	}
	self->connect_hopeless = made->hopeless;
	self->connect_error = *error;
	(void)pthread_mutex_unlock(&self->mutex);
}

/* Whether the server has something to say to a connection that rests. That is
   most often its last word; another one is made soon enough. */
static bool has_news(const struct pg_connection *connection) {
	struct pollfd line = {
		.fd = PQsocket(connection->link),
		.events = POLLIN,
	};
	return poll(&line, 1, 0) > 0;
}

/* A free place of the pool. Whoever has just tried in vain need not wait for
   the next turn: turn_out is NULL. Otherwise it says whether it is there. */
static int take_place(struct pg_store *self, bool *turn_out,
		struct pg_connection **out, struct postern_error *error) {
	struct pg_connection *taken = NULL;
	(void)pthread_mutex_lock(&self->mutex);
	int r = wait_free(self, &taken, error);
	if (r == POSTERN_OK && !taken->link && turn_out) {
		r = check_turn(self, error);
		*turn_out = r == POSTERN_OK;
		if (r != POSTERN_OK) {
			taken->taken = false;
		}
	}
	(void)pthread_mutex_unlock(&self->mutex);
	*out = taken;
	return r;
}

/* It may be another server than before, or have other settings. */
static int connect_and_judge(struct pg_connection *connection,
		struct postern_error *error) {
	int64_t until = connection->until_ms;
	int r = postern__pg_connect(connection, error);
	if (r == POSTERN_OK) {
		r = postern__pg_judge(connection, error);
		if (r != POSTERN_OK) {
			postern__pg_disconnect(connection);
		} else {
			note_made(connection->store, connection);
		}
	}
	connection->until_ms = until;
	return r;
}

/* The same for a place of the pool. */
static int connect_place(struct pg_connection *connection,
		struct postern_error *error) {
	struct postern_error failure = { 0 };
	int r = connect_and_judge(connection, &failure);
	if (r != POSTERN_OK) {
		note_failed(connection->store, connection, &failure);
		if (error) {
			*error = failure;
		}
	}
	return r;
}

static int take(struct pg_store *self, bool *turn_out,
		struct pg_connection **out, struct postern_error *error) {
	struct pg_connection *taken = NULL;
	int r = take_place(self, turn_out, &taken, error);
	if (r != POSTERN_OK) {
		return r;
	}
	taken->lost = false;
	taken->collided = false;
	if (taken->link && has_news(taken)) {
		postern__pg_disconnect(taken);
	}
	if (!taken->link) {
		r = connect_place(taken, error);
		if (r != POSTERN_OK) {
			postern__pg_give(taken);
			return r;
		}
	}
	*out = taken;
	return POSTERN_OK;
}

int postern__pg_take(struct pg_store *self, struct pg_connection **out,
		struct postern_error *error) {
	bool turn;
	return take(self, &turn, out, error);
}

static void close_unless_idle(struct pg_connection *connection) {
	if (connection->link &&
			(connection->lost ||
					PQtransactionStatus(connection->link) != PQTRANS_IDLE)) {
		/* A transaction that was left open is undone with it. */
		postern__pg_disconnect(connection);
	}
}

void postern__pg_give(struct pg_connection *connection) {
	struct pg_store *self = connection->store;
	close_unless_idle(connection);
	(void)pthread_mutex_lock(&self->mutex);
	connection->taken = false;
	(void)pthread_cond_signal(&self->given);
	(void)pthread_mutex_unlock(&self->mutex);
}

void postern__pg_forget_names(struct pg_connection *connection) {
	struct pg_store *self = connection->store;
	(void)pthread_mutex_lock(&self->mutex);
	connection->named = false;
	connection->apply_named = false;
	connection->names = ++self->epoch;
	(void)pthread_mutex_unlock(&self->mutex);
}

void postern__pg_saw_session(struct pg_connection *connection, int64_t number) {
	connection->direct = number == PQbackendPID(connection->link);
}

/* Whether there may soon be a connection that is not there now: not if all are
   busy, or if the server does not answer at all, for that was waited for; nor
   if it will have none of us. */
static bool may_come(struct pg_store *self, int r) {
	(void)pthread_mutex_lock(&self->mutex);
	bool hopeless = self->connect_failures > 0 && self->connect_hopeless;
	(void)pthread_mutex_unlock(&self->mutex);
	return r == POSTERN_E_UNAVAILABLE && !hopeless;
}

/* What became of a try. */
struct attempt {
	bool tried;  /* in: by us, before; out: it was our turn to try */
	bool repeat; /* out: another one is worth it */
};

static int do_it(struct pg_store *self, pg_work *work, void *context,
		bool again, struct attempt *attempt, struct postern_error *error) {
	struct pg_connection *connection = NULL;
	bool turn = true;
	int r = take(self, attempt->tried ? NULL : &turn, &connection, error);
	attempt->tried = attempt->tried || turn;
	if (r != POSTERN_OK) {
		attempt->repeat = may_come(self, r);
		return r;
	}
	r = work(connection, context, again, error);
	attempt->repeat = r != POSTERN_OK && r != POSTERN_E_TIMEOUT &&
					  (connection->lost || connection->collided);
	postern__pg_give(connection);
	return r;
}

int postern__pg_do(struct pg_store *self, pg_work *work, void *context,
		struct postern_error *error) {
	struct attempt attempt = { 0 };
	bool again = false;
	for (uint32_t failures = 0;; failures++) {
		int r = do_it(self, work, context, again, &attempt, error);
		if (r == POSTERN_OK || !attempt.repeat ||
				failures >= self->command_retries) {
			return r;
		}
		again = true;
		rest(pause_ms(self, failures));
	}
}

int postern__pg_do_once(struct pg_store *self, pg_work *work, void *context,
		struct postern_error *error) {
	struct attempt attempt = { 0 };
	return do_it(self, work, context, false, &attempt, error);
}

/* One try in a place that is taken. */
static int do_in_place(struct pg_connection *connection, pg_work *work,
		void *context, bool again, struct postern_error *error) {
	int r = POSTERN_OK;
	if (connection->lost || !connection->link) {
		postern__pg_disconnect(connection);
		r = connect_place(connection, error);
		connection->lost = r != POSTERN_OK;
	}
	return r == POSTERN_OK ? work(connection, context, again, error) : r;
}

int postern__pg_do_here(struct pg_connection *connection, pg_work *work,
		void *context, struct postern_error *error) {
	struct pg_store *self = connection->store;
	for (uint32_t failures = 0;; failures++) {
		int r = do_in_place(connection, work, context, failures > 0, error);
		bool repeat = connection->link ? connection->lost : may_come(self, r);
		if (r == POSTERN_OK || r == POSTERN_E_TIMEOUT || !repeat ||
				failures >= self->command_retries) {
			return r;
		}
		rest(pause_ms(self, failures));
	}
}

/* Wait until nobody else has the keeper. */
static int take_keeper(struct pg_store *self, int64_t end,
		struct postern_error *error) {
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&self->mutex);
	int64_t left = end - now_ms(self);
	for (; self->keeper.taken && left > 0; left = end - now_ms(self)) {
		postern__wait(&self->kept, &self->mutex, left);
	}
	if (self->keeper.taken) {
		r = postern__fail(error, POSTERN_E_TIMEOUT,
				"the connection to PostgreSQL for renewals was busy for too "
				"long");
	} else {
		self->keeper.taken = true;
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return r;
}

static void give_keeper(struct pg_store *self) {
	close_unless_idle(&self->keeper);
	(void)pthread_mutex_lock(&self->mutex);
	self->keeper.taken = false;
	(void)pthread_cond_signal(&self->kept);
	(void)pthread_mutex_unlock(&self->mutex);
}

static int do_with_keeper(struct pg_store *self, pg_work *work, void *context,
		bool again, struct postern_error *error) {
	struct pg_connection *keeper = &self->keeper;
	int r = POSTERN_OK;
	keeper->collided = false;
	if (keeper->link && (keeper->lost || has_news(keeper))) {
		postern__pg_disconnect(keeper);
	}
	if (!keeper->link) {
		r = connect_and_judge(keeper, error);
		keeper->lost = r == POSTERN_E_UNAVAILABLE || r == POSTERN_E_TIMEOUT;
	}
	return r == POSTERN_OK ? work(keeper, context, again, error) : r;
}

/* How long a call may take. */
static int64_t tenure_patience(struct pg_store *self, int64_t term_ms,
		bool ends) {
	(void)pthread_mutex_lock(&self->mutex);
	if (term_ms > 0) {
		self->term_ms = term_ms;
	}
	int64_t third = self->term_ms / 3;
	(void)pthread_mutex_unlock(&self->mutex);
	int64_t patience = ends ? 2 * third : third;
	int64_t least = ends ? END_MS_MIN : TENURE_MS_MIN;
	patience = patience < least ? least : patience;
	return third > 0 && patience < self->command_timeout_ms
				   ? patience
				   : self->command_timeout_ms;
}

/* Whether another try is worth it. A connection that did not answer is always
   replaced once. */
static bool may_repeat(const struct pg_store *self, int r, uint32_t failures) {
	const struct pg_connection *keeper = &self->keeper;
	if (keeper->hopeless || (!keeper->lost && !keeper->collided)) {
		return false;
	}
	return r == POSTERN_E_TIMEOUT ? failures == 0
								  : failures < self->command_retries;
}

int postern__pg_do_tenure(struct pg_store *self, int64_t term_ms, bool ends,
		pg_work *work, void *context, struct postern_error *error) {
	int64_t start = now_ms(self);
	int64_t patience = tenure_patience(self, term_ms, ends);
	int r = take_keeper(self, start + patience, error);
	if (r != POSTERN_OK) {
		return r;
	}
	self->keeper.until_ms = start + (ends ? patience : patience / 2);
	for (uint32_t failures = 0;; failures++) {
		r = do_with_keeper(self, work, context, failures > 0, error);
		int64_t pause = r == POSTERN_E_TIMEOUT ? 0 : pause_ms(self, failures);
		self->keeper.until_ms = start + patience;
		if (r == POSTERN_OK || !may_repeat(self, r, failures) ||
				now_ms(self) + pause >= start + patience) {
			break;
		}
		rest(pause);
	}
	give_keeper(self);
	return r;
}
