/* SPDX-License-Identifier: MIT */

/*
 * What a program without Postern would do to run a function once per key, with
 * a marker in Redis: a lease under a number of its own, the function, and done;
 * two short scripts. Threads share one connection, on which their requests are
 * pipelined: each sends its own, and a thread that reads passes the replies on,
 * in their order. A single thread reads its replies itself.
 *
 *   bare_redis SOCKET COUNT THREADS
 *
 * Prints {"messages_per_second": …}.
 */

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define DIGEST_SIZE 41
#define WORD_COUNT 6
#define THREAD_MAX 256

static const char begin_script[] =
		"if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then "
		"return 1 end return 0";
static const char finish_script[] =
		"if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
		"redis.call('SET', KEYS[1], 'done', 'PX', ARGV[2]) return 1";

struct job {
	long first;
	long count;
	sem_t replied;
	pthread_t thread;
};

static redisContext *redis;
static redisReader *reader;
static char begin[DIGEST_SIZE];
static char finish[DIGEST_SIZE];
static bool alone;

/* Who waits for a reply, in the order of the requests. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct job *waiting[THREAD_MAX];
static size_t first_waiting;
static size_t waiting_count;

static void fail(const char *what) {
	(void)fprintf(stderr, "bare_redis: %s failed\n", what);
	exit(1);
}

static void load(const char *script, char digest[DIGEST_SIZE]) {
	redisReply *reply = redisCommand(redis, "SCRIPT LOAD %s", script);
	if (!reply || reply->type != REDIS_REPLY_STRING) {
		fail("SCRIPT LOAD");
	}
	(void)snprintf(digest, DIGEST_SIZE, "%s", reply->str);
	freeReplyObject(reply);
}

static void send_all(const char *bytes, size_t len) {
	while (len > 0) {
		ssize_t sent = send(redis->fd, bytes, len, MSG_NOSIGNAL);
		if (sent <= 0) {
			fail("send");
		}
		bytes += sent;
		len -= (size_t)sent;
	}
}

/* The next reply, which must be 1. */
static void read_reply(void) {
	char bytes[16384];
	void *reply = NULL;
	while (redisReaderGetReply(reader, &reply) == REDIS_OK && !reply) {
		ssize_t len = recv(redis->fd, bytes, sizeof bytes, 0);
		if (len <= 0 || redisReaderFeed(reader, bytes, (size_t)len)) {
			fail("recv");
		}
	}
	const redisReply *one = reply;
	if (!one || one->type != REDIS_REPLY_INTEGER || one->integer != 1) {
		fail("a script");
	}
	freeReplyObject(reply);
}

static void *read_all(void *context) {
	for (long left = *(long *)context; left > 0; left--) {
		read_reply();
		(void)pthread_mutex_lock(&mutex);
		struct job *job = waiting[first_waiting];
		first_waiting = (first_waiting + 1) % THREAD_MAX;
		waiting_count--;
		(void)pthread_mutex_unlock(&mutex);
		(void)sem_post(&job->replied);
	}
	return NULL;
}

static void call(struct job *job, const char *digest, long key,
		const char *ms) {
	char name[64];
	char fence[32];
	char *command = NULL;
	(void)snprintf(name, sizeof name, "bare:k%ld", key);
	(void)snprintf(fence, sizeof fence, "%ld", key + 1);
	const char *words[WORD_COUNT] = { "EVALSHA", digest, "1", name, fence, ms };
	int len = redisFormatCommandArgv(&command, WORD_COUNT, words, NULL);
	if (len < 0) {
		fail("format");
	}
	if (alone) {
		send_all(command, (size_t)len);
		read_reply();
	} else {
		(void)pthread_mutex_lock(&mutex);
		waiting[(first_waiting + waiting_count++) % THREAD_MAX] = job;
		send_all(command, (size_t)len);
		(void)pthread_mutex_unlock(&mutex);
		(void)sem_wait(&job->replied);
	}
	redisFreeCommand(command);
}

static void *run(void *context) {
	struct job *job = context;
	for (long i = 0; i < job->count; i++) {
		call(job, begin, job->first + i, "30000");
		/* The function: nothing. */
		call(job, finish, job->first + i, "604800000");
	}
	return NULL;
}

static double seconds(void) {
	struct timespec time;
	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void run_all(struct job *jobs, long thread_count, long count) {
	long replies = 2 * count;
	pthread_t reading;
	if (!alone && pthread_create(&reading, NULL, read_all, &replies)) {
		fail("pthread_create");
	}
	for (long i = 0; i < thread_count; i++) {
		jobs[i].count = count / thread_count;
		jobs[i].first = i * jobs[i].count;
		(void)sem_init(&jobs[i].replied, 0, 0);
		if (pthread_create(&jobs[i].thread, NULL, run, &jobs[i])) {
			fail("pthread_create");
		}
	}
	for (long i = 0; i < thread_count; i++) {
		(void)pthread_join(jobs[i].thread, NULL);
	}
	if (!alone) {
		(void)pthread_join(reading, NULL);
	}
}

int main(int argc, char **argv) {
	static struct job jobs[THREAD_MAX];
	long count = argc == 4 ? strtol(argv[2], NULL, 10) : 0;
	long thread_count = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
	if (count < 1 || thread_count < 1 || thread_count > THREAD_MAX) {
		(void)fputs("usage: bare_redis SOCKET COUNT THREADS\n", stderr);
		return 2;
	}
	redis = redisConnectUnix(argv[1]);
	reader = redisReaderCreate();
	if (!redis || redis->err || !reader) {
		fail("connect");
	}
	load(begin_script, begin);
	load(finish_script, finish);
	alone = thread_count == 1;
	count -= count % thread_count;
	double start = seconds();
	run_all(jobs, thread_count, count);
	(void)printf("{\"messages_per_second\": %.1f}\n",
			(double)count / (seconds() - start));
	redisReaderFree(reader);
	redisFree(redis);
	return 0;
}
