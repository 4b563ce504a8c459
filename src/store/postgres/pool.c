/* SPDX-License-Identifier: MIT */

/*
 * The connections of a store, and the frame of every operation.
 *
 * Connections are opened when they are needed and kept. While the server cannot
 * be reached, the delay before the next try grows with each failure; until then
 * callers get the last error at once, so that a database that is down does not
 * block every thread. The delay grows with the outage, to at most about twice
 * its length so far, and ends when any connection was opened, also the one for
 * renewals.
 *
 * An operation never needs a second connection while it has one: an operation
 * whose connection was lost in a COMMIT reconnects in the same slot to
 * determine the outcome. Otherwise as many simultaneous losses as there are
 * slots would wait for each other.
 *
 * Renewals of the node do not use the pool: their connection, `renewal`, is
 * separate, so that a renewal never waits for the node's other operations.
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
/* The shortest limit of a renewal: connecting to a busy server takes time also
   if the node lease is short. */
#define TENURE_MS_MIN INT64_C(2000)
/* The same for ending a node, which waits for all its running transactions. */
#define END_MS_MIN INT64_C(10000)

static int64_t now_ms(const struct pg_store *self) {
	return self->clock->monotonic_ms(self->clock->context);
}

/* Half of the delay is fixed and half is random, so that callers do not retry
   at the same time. */
static int64_t retry_delay_ms(const struct pg_store *self, uint32_t failures) {
	int64_t whole = RETRY_MS_MAX;
	if (failures < 7) {
		whole = (int64_t)RETRY_MS_MIN << failures;
	}
	whole = whole < RETRY_MS_MAX ? whole : RETRY_MS_MAX;
	uint64_t chance = self->random->next(self->random->context);
	return whole / 2 + (int64_t)(chance % (uint64_t)(whole / 2 + 1));
}

static void sleep_ms(int64_t ms) {
	struct timespec time = {
		.tv_sec = ms / 1000,
		.tv_nsec = ms % 1000 * 1000000,
	};
	(void)nanosleep(&time, NULL);
}

void postern__pg_pool_init(struct pg_store *self) {
	(void)pthread_mutex_init(&self->mutex, NULL);
	(void)pthread_mutex_init(&self->active.mutex, NULL);
	(void)pthread_mutex_init(&self->return_mutex, NULL);
	(void)postern__wait_init(&self->released);
	(void)postern__wait_init(&self->renewal_free);
	self->renewal.store = self;
	(void)postern__wait_init(&self->active.ended);
	for (size_t i = 0; i < PG_CONNECTION_MAX; i++) {
		self->connections[i].store = self;
	}
}

void postern__pg_pool_finish(struct pg_store *self) {
	for (size_t i = 0; i < PG_CONNECTION_MAX; i++) {
		postern__pg_disconnect(&self->connections[i]);
	}
	postern__pg_disconnect(&self->renewal);
	(void)pthread_cond_destroy(&self->released);
	(void)pthread_cond_destroy(&self->renewal_free);
	(void)pthread_mutex_destroy(&self->mutex);
	(void)pthread_mutex_destroy(&self->active.mutex);
	(void)pthread_cond_destroy(&self->active.ended);
	(void)pthread_mutex_destroy(&self->return_mutex);
}

/* The caller holds the mutex. Returns a free slot, preferably a connected one.
 */
static struct pg_connection *find_free(struct pg_store *self) {
	struct pg_connection *found = NULL;
	for (size_t i = 0; i < self->connection_max; i++) {
		struct pg_connection *connection = &self->connections[i];
		if (!connection->in_use && (!found || !found->link)) {
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
		postern__wait(&self->released, &self->mutex, left);
		found = find_free(self);
	}
	found->in_use = true;
	*out = found;
	return POSTERN_OK;
}

/* Returns the last error if its delay has not passed. */
static int check_connect_delay(struct pg_store *self,
		struct postern_error *error) {
	if (self->connect_failures == 0 || now_ms(self) >= self->connect_at_ms) {
		return POSTERN_OK;
	}
	if (error) {
		*error = self->connect_error;
	}
	return self->connect_error.code;
}

/* A new connection, of the pool or for renewals: nothing is known about its
   session yet, and the delay before the next try ends. */
static void note_new_connection(struct pg_store *self,
		struct pg_connection *made) {
	(void)pthread_mutex_lock(&self->mutex);
	self->connect_failures = 0;
	made->epoch = ++self->epoch;
	made->direct = false;
	made->own_named = false;
	made->apply_named = false;
	made->names_epoch = made->epoch;
	(void)pthread_mutex_unlock(&self->mutex);
}

/* Record a failure to connect, for other threads that want to. The delay grows
   by one step when a try that was due has failed: threads that fail at the same
   time, or that reconnect without waiting for the delay, see the same outage
   once more. */
static void note_connect_failure(struct pg_store *self,
		const struct pg_connection *made, const struct postern_error *error) {
	(void)pthread_mutex_lock(&self->mutex);
	int64_t now = now_ms(self);
	if (self->connect_failures == 0 || now >= self->connect_at_ms) {
		self->connect_at_ms =
				now + retry_delay_ms(self, self->connect_failures);
		self->connect_failures++;
	}
	self->connect_refused = made->refused;
	self->connect_error = *error;
	(void)pthread_mutex_unlock(&self->mutex);
}

/* Whether the server has sent something on an idle connection. Most often that
   is the last message before it closes the connection; opening another is
   cheap. */
static bool has_input(const struct pg_connection *connection) {
	struct pollfd line = {
		.fd = PQsocket(connection->link),
		.events = POLLIN,
	};
	return poll(&line, 1, 0) > 0;
}

/* Returns a free slot of the pool. With turn_out, an unconnected slot is
   returned only if the delay after the last failure has passed, and *turn_out
   is whether it has; NULL: this operation has just tried, and need not wait. */
static int acquire_slot(struct pg_store *self, bool *turn_out,
		struct pg_connection **out, struct postern_error *error) {
	struct pg_connection *slot = NULL;
	(void)pthread_mutex_lock(&self->mutex);
	int r = wait_free(self, &slot, error);
	if (r == POSTERN_OK && !slot->link && turn_out) {
		r = check_connect_delay(self, error);
		*turn_out = r == POSTERN_OK;
		if (r != POSTERN_OK) {
			slot->in_use = false;
		}
	}
	(void)pthread_mutex_unlock(&self->mutex);
	*out = slot;
	return r;
}

/* Checks the server each time: it may be another one than before, or have other
   settings. */
static int connect_and_check(struct pg_connection *connection,
		struct postern_error *error) {
	int64_t until = connection->until_ms;
	int r = postern__pg_connect(connection, error);
	if (r == POSTERN_OK) {
		r = postern__pg_check_server(connection, error);
		if (r != POSTERN_OK) {
			postern__pg_disconnect(connection);
		} else {
			note_new_connection(connection->store, connection);
		}
	}
	connection->until_ms = until;
	return r;
}

/* The same for a slot of the pool. */
static int connect_slot(struct pg_connection *connection,
		struct postern_error *error) {
	struct postern_error failure = { 0 };
	int r = connect_and_check(connection, &failure);
	if (r != POSTERN_OK) {
		note_connect_failure(connection->store, connection, &failure);
		if (error) {
			*error = failure;
		}
	}
	return r;
}

static int acquire_connection(struct pg_store *self, bool *turn_out,
		struct pg_connection **out, struct postern_error *error) {
	struct pg_connection *slot = NULL;
	int r = acquire_slot(self, turn_out, &slot, error);
	if (r != POSTERN_OK) {
		return r;
	}
	slot->lost = false;
	slot->collided = false;
	if (slot->link && has_input(slot)) {
		postern__pg_disconnect(slot);
	}
	if (!slot->link) {
		r = connect_slot(slot, error);
		if (r != POSTERN_OK) {
			postern__pg_release(slot);
			return r;
		}
	}
	*out = slot;
	return POSTERN_OK;
}

int postern__pg_acquire(struct pg_store *self, struct pg_connection **out,
		struct postern_error *error) {
	bool turn;
	return acquire_connection(self, &turn, out, error);
}

static void close_unless_idle(struct pg_connection *connection) {
	if (connection->link &&
			(connection->lost ||
					PQtransactionStatus(connection->link) != PQTRANS_IDLE)) {
		/* Closing the connection rolls back an open transaction. */
		postern__pg_disconnect(connection);
	}
}

void postern__pg_release(struct pg_connection *connection) {
	struct pg_store *self = connection->store;
	close_unless_idle(connection);
	(void)pthread_mutex_lock(&self->mutex);
	connection->in_use = false;
	(void)pthread_cond_signal(&self->released);
	(void)pthread_mutex_unlock(&self->mutex);
}

void postern__pg_forget_names(struct pg_connection *connection) {
	struct pg_store *self = connection->store;
	(void)pthread_mutex_lock(&self->mutex);
	connection->own_named = false;
	connection->apply_named = false;
	connection->names_epoch = ++self->epoch;
	(void)pthread_mutex_unlock(&self->mutex);
}

void postern__pg_note_session(struct pg_connection *connection,
		int64_t number) {
	connection->direct = number == PQbackendPID(connection->link);
}

/* Whether a retry may get a connection: not if all were in use, or if the
   server did not respond, because both were waited for; nor if it refused the
   connection for good. */
static bool may_connect_later(struct pg_store *self, int r) {
	(void)pthread_mutex_lock(&self->mutex);
	bool refused = self->connect_failures > 0 && self->connect_refused;
	(void)pthread_mutex_unlock(&self->mutex);
	return r == POSTERN_E_UNAVAILABLE && !refused;
}

/* The result of one try. */
struct pool_try {
	/* In: this operation has tried before. Out: the delay allowed a try. */
	bool tried;
	bool repeat; /* out: another try may succeed */
};

static int do_one_try(struct pg_store *self, pg_work *work, void *context,
		bool again, struct pool_try *try, struct postern_error *error) {
	struct pg_connection *connection = NULL;
	bool turn = true;
	int r = acquire_connection(self, try->tried ? NULL : &turn, &connection,
			error);
	try->tried = try->tried || turn;
	if (r != POSTERN_OK) {
		try->repeat = may_connect_later(self, r);
		return r;
	}
	r = work(connection, context, again, error);
	try->repeat = r != POSTERN_OK && r != POSTERN_E_TIMEOUT &&
				  (connection->lost || connection->collided);
	postern__pg_release(connection);
	return r;
}

int postern__pg_do(struct pg_store *self, pg_work *work, void *context,
		struct postern_error *error) {
	struct pool_try try = { 0 };
	bool again = false;
	for (uint32_t failures = 0;; failures++) {
		int r = do_one_try(self, work, context, again, &try, error);
		if (r == POSTERN_OK || !try.repeat ||
				failures >= self->command_retries) {
			return r;
		}
		again = true;
		sleep_ms(retry_delay_ms(self, failures));
	}
}

int postern__pg_do_once(struct pg_store *self, pg_work *work, void *context,
		struct postern_error *error) {
	struct pool_try try = { 0 };
	return do_one_try(self, work, context, false, &try, error);
}

/* One try in a slot that the caller has acquired. */
static int do_in_slot(struct pg_connection *connection, pg_work *work,
		void *context, bool again, struct postern_error *error) {
	int r = POSTERN_OK;
	if (connection->lost || !connection->link) {
		postern__pg_disconnect(connection);
		r = connect_slot(connection, error);
		connection->lost = r != POSTERN_OK;
	}
	return r == POSTERN_OK ? work(connection, context, again, error) : r;
}

int postern__pg_do_here(struct pg_connection *connection, pg_work *work,
		void *context, struct postern_error *error) {
	struct pg_store *self = connection->store;
	for (uint32_t failures = 0;; failures++) {
		int r = do_in_slot(connection, work, context, failures > 0, error);
		bool repeat = connection->link ? connection->lost
									   : may_connect_later(self, r);
		if (r == POSTERN_OK || r == POSTERN_E_TIMEOUT || !repeat ||
				failures >= self->command_retries) {
			return r;
		}
		sleep_ms(retry_delay_ms(self, failures));
	}
}

/* Wait until no other thread uses the connection for renewals. */
static int acquire_renewal(struct pg_store *self, int64_t end,
		struct postern_error *error) {
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&self->mutex);
	int64_t left = end - now_ms(self);
	for (; self->renewal.in_use && left > 0; left = end - now_ms(self)) {
		postern__wait(&self->renewal_free, &self->mutex, left);
	}
	if (self->renewal.in_use) {
		r = postern__fail(error, POSTERN_E_TIMEOUT,
				"the connection to PostgreSQL for renewals was busy for too "
				"long");
	} else {
		self->renewal.in_use = true;
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return r;
}

static void release_renewal(struct pg_store *self) {
	close_unless_idle(&self->renewal);
	(void)pthread_mutex_lock(&self->mutex);
	self->renewal.in_use = false;
	(void)pthread_cond_signal(&self->renewal_free);
	(void)pthread_mutex_unlock(&self->mutex);
}

static int do_on_renewal(struct pg_store *self, pg_work *work, void *context,
		bool again, struct postern_error *error) {
	struct pg_connection *renewal = &self->renewal;
	int r = POSTERN_OK;
	renewal->collided = false;
	if (renewal->link && (renewal->lost || has_input(renewal))) {
		postern__pg_disconnect(renewal);
	}
	if (!renewal->link) {
		r = connect_and_check(renewal, error);
		renewal->lost = r == POSTERN_E_UNAVAILABLE || r == POSTERN_E_TIMEOUT;
	}
	return r == POSTERN_OK ? work(renewal, context, again, error) : r;
}

/* The time limit of a call. */
static int64_t renewal_limit_ms(struct pg_store *self, int64_t term_ms,
		bool ends) {
	(void)pthread_mutex_lock(&self->mutex);
	if (term_ms > 0) {
		self->term_ms = term_ms;
	}
	int64_t third = self->term_ms / 3;
	(void)pthread_mutex_unlock(&self->mutex);
	int64_t limit = ends ? 2 * third : third;
	int64_t least = ends ? END_MS_MIN : TENURE_MS_MIN;
	limit = limit < least ? least : limit;
	return third > 0 && limit < self->command_timeout_ms
				   ? limit
				   : self->command_timeout_ms;
}

/* Whether another try may succeed. A connection that did not respond is always
   replaced once. */
static bool may_repeat(const struct pg_store *self, int r, uint32_t failures) {
	const struct pg_connection *renewal = &self->renewal;
	if (renewal->refused || (!renewal->lost && !renewal->collided)) {
		return false;
	}
	return r == POSTERN_E_TIMEOUT ? failures == 0
								  : failures < self->command_retries;
}

int postern__pg_do_tenure(struct pg_store *self, int64_t term_ms, bool ends,
		pg_work *work, void *context, struct postern_error *error) {
	int64_t start = now_ms(self);
	int64_t limit = renewal_limit_ms(self, term_ms, ends);
	int r = acquire_renewal(self, start + limit, error);
	if (r != POSTERN_OK) {
		return r;
	}
	self->renewal.until_ms = start + (ends ? limit : limit / 2);
	for (uint32_t failures = 0;; failures++) {
		r = do_on_renewal(self, work, context, failures > 0, error);
		int64_t pause =
				r == POSTERN_E_TIMEOUT ? 0 : retry_delay_ms(self, failures);
		self->renewal.until_ms = start + limit;
		if (r == POSTERN_OK || !may_repeat(self, r, failures) ||
				now_ms(self) + pause >= start + limit) {
			break;
		}
		sleep_ms(pause);
	}
	release_renewal(self);
	return r;
}
