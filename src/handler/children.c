/* SPDX-License-Identifier: MIT */
/*
 * The thread that starts programs and waits for them.
 *
 * There is one thread for all handlers of this process, from the first handler
 * that needs it to the last: a handler costs no thread, and a program costs
 * descriptors only. The thread makes every fork, because the kernel kills the
 * children of a thread that ends (PR_SET_PDEATHSIG).
 *
 * Other threads put children into `added` and write to `wake_fd`; everything
 * else is used by the thread alone.
 */

#include "handler/children.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/container.h"
#include "base/fail.h"

/* How long to wait before the next try when there is no memory to poll. */
#define NO_MEMORY_MS 100

static struct {
	/* Serializes owners, so that a thread that ends is gone before the next
	   one starts. */
	pthread_mutex_t owners_mutex;
	size_t owner_count;
	pthread_t thread;

	pthread_mutex_t mutex;
	struct postern__list added; /* with the mutex */
	bool ending;                /* with the mutex */
	int wake_fd;

	/* The thread's own. */
	struct postern__list running;
	size_t running_count;
	struct pollfd *fds; /* [0] is wake_fd, then those of each child */
	size_t fd_room;
} children = {
	.owners_mutex = PTHREAD_MUTEX_INITIALIZER,
	.mutex = PTHREAD_MUTEX_INITIALIZER,
	.wake_fd = -1,
};

void postern__children_wake(void) {
	/* Never blocks: only 2^64 - 1 wake-ups that nobody read would. */
	uint64_t one = 1;
	ssize_t n = write(children.wake_fd, &one, sizeof one);
	(void)n;
}

void postern__children_start(struct postern__child *child) {
	(void)pthread_mutex_lock(&children.mutex);
	postern__list_push_back(&children.added, &child->link);
	(void)pthread_mutex_unlock(&children.mutex);
	postern__children_wake();
}

static struct postern__child *take_added(void) {
	(void)pthread_mutex_lock(&children.mutex);
	struct postern__list *first = postern__list_first(&children.added);
	if (first) {
		postern__list_remove(first);
	}
	(void)pthread_mutex_unlock(&children.mutex);
	return first ? container_of(first, struct postern__child, link) : NULL;
}

static void start_added(void) {
	struct postern__child *child;
	while ((child = take_added())) {
		if (postern__process_start(&child->process, &child->order,
					&child->result)) {
			postern__list_push_back(&children.running, &child->link);
			children.running_count++;
		} else {
			child->ended(child);
		}
	}
}

static bool make_room(void) {
	size_t count = 1 + children.running_count * POSTERN__PROCESS_FD_COUNT_MAX;
	if (count <= children.fd_room) {
		return true;
	}
	struct pollfd *fds = realloc(children.fds, 2 * count * sizeof *fds);
	if (!fds) {
		return false;
	}
	children.fds = fds;
	children.fd_room = 2 * count;
	return true;
}

/* Fill the descriptors; returns how long to wait. */
static int prepare_poll(nfds_t *count_out) {
	int wait_ms = -1;
	size_t at = 1;
	children.fds[0] = (struct pollfd){ children.wake_fd, POLLIN, 0 };
	postern__list_each(link, &children.running) {
		struct postern__process *process =
				&container_of(link, struct postern__child, link)->process;
		at += postern__process_poll(process, &children.fds[at]);
		int ms = postern__process_wait_ms(process);
		wait_ms = ms >= 0 && (wait_ms < 0 || ms < wait_ms) ? ms : wait_ms;
	}
	*count_out = at;
	return wait_ms;
}

/* Continue every child; those that have ended are reported. */
static void step_all(void) {
	size_t at = 1;
	struct postern__list *next;
	for (struct postern__list *link = children.running.next;
			link != &children.running; link = next) {
		next = link->next;
		struct postern__child *child =
				container_of(link, struct postern__child, link);
		const struct pollfd *fds = &children.fds[at];
		at += child->process.polled_count;
		if (!postern__process_step(&child->process, fds)) {
			postern__list_remove(link);
			children.running_count--;
			child->ended(child);
		}
	}
}

static void read_wake(void) {
	uint64_t count;
	ssize_t n = read(children.wake_fd, &count, sizeof count);
	(void)n; /* another wake-up may have been read with it */
}

static bool is_ending(void) {
	(void)pthread_mutex_lock(&children.mutex);
	bool ending = children.ending;
	(void)pthread_mutex_unlock(&children.mutex);
	return ending;
}

static void *children_loop(void *context) {
	(void)context;
	while (!is_ending()) {
		start_added();
		if (!make_room()) {
			(void)poll(NULL, 0, NO_MEMORY_MS);
			continue;
		}
		nfds_t count;
		int wait_ms = prepare_poll(&count);
		if (poll(children.fds, count, wait_ms) < 0) {
			/* Interrupted, or no memory in the kernel: deadlines are still
			   checked. */
			for (nfds_t i = 0; i < count; i++) {
				children.fds[i].revents = 0;
			}
			(void)poll(NULL, 0, errno == EINTR ? 0 : NO_MEMORY_MS);
		}
		if (children.fds[0].revents) {
			read_wake();
		}
		step_all();
	}
	return NULL;
}

/* With the owners' mutex. */
static int start_thread(struct postern_error *error) {
	postern__list_init(&children.added);
	postern__list_init(&children.running);
	children.ending = false;
	children.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (children.wake_fd < 0) {
		return postern__fail(error, POSTERN_E_NOMEM,
				"cannot wait for programs: eventfd: %s", strerror(errno));
	}
	int r = pthread_create(&children.thread, NULL, children_loop, NULL);
	if (r) {
		(void)close(children.wake_fd);
		return postern__fail(error, POSTERN_E_NOMEM,
				"cannot start the thread that waits for programs: %s",
				strerror(r));
	}
	return POSTERN_OK;
}

int postern__children_acquire(struct postern_error *error) {
	(void)pthread_mutex_lock(&children.owners_mutex);
	int r = children.owner_count > 0 ? POSTERN_OK : start_thread(error);
	children.owner_count += r == POSTERN_OK;
	(void)pthread_mutex_unlock(&children.owners_mutex);
	return r;
}

void postern__children_release(void) {
	(void)pthread_mutex_lock(&children.owners_mutex);
	if (--children.owner_count == 0) {
		(void)pthread_mutex_lock(&children.mutex);
		children.ending = true;
		(void)pthread_mutex_unlock(&children.mutex);
		postern__children_wake();
		(void)pthread_join(children.thread, NULL);
		(void)close(children.wake_fd);
		free(children.fds);
		children.fds = NULL;
		children.fd_room = 0;
	}
	(void)pthread_mutex_unlock(&children.owners_mutex);
}
