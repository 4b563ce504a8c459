/* SPDX-License-Identifier: MIT */

/*
 * A connection: hiredis formats requests and reads replies, this file moves the
 * bytes. A connection is usable once the server has accepted the password and
 * has said that it is a primary.
 */

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "redis/redis.h"

/* Much more than any reply that is asked for (INFO has some kilobytes). */
#define REPLY_LEN_MAX ((size_t)1024 * 1024)
#define WORD_MAX 4

static int fail_protocol(struct postern_error *error) {
	return postern__fail(error, POSTERN_E_UNAVAILABLE,
			"the answer is not the protocol of Redis");
}

int postern__redis_connection_send(struct postern__redis_connection *self,
		const char *bytes, size_t len,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error) {
	return postern__redis_socket_send(&self->socket, bytes, len, deadline,
			error);
}

int postern__redis_connection_receive(struct postern__redis_connection *self,
		const struct postern__redis_deadline *deadline, redisReply **out,
		struct postern_error *error) {
	char bytes[16384];
	size_t total = 0;
	for (;;) {
		void *reply = NULL;
		if (redisReaderGetReply(self->reader, &reply) != REDIS_OK) {
			return fail_protocol(error);
		}
		if (reply) {
			*out = reply;
			return POSTERN_OK;
		}
		size_t len = 0;
		int r = postern__redis_socket_receive(&self->socket, bytes,
				sizeof bytes, &len, deadline, error);
		if (r) {
			return r;
		}
		total += len;
		if (total > REPLY_LEN_MAX ||
				redisReaderFeed(self->reader, bytes, len) != REDIS_OK) {
			return fail_protocol(error);
		}
	}
}

static int send_words(struct postern__redis_connection *self,
		const char *const *words, size_t count,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error) {
	const char *list[WORD_MAX] = { 0 };
	char *command = NULL;
	for (size_t i = 0; i < count; i++) {
		list[i] = words[i];
	}
	int len = redisFormatCommandArgv(&command, (int)count, list, NULL);
	if (len < 0) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	int r = postern__redis_connection_send(self, command, (size_t)len, deadline,
			error);
	explicit_bzero(command, (size_t)len); /* may be a password */
	redisFreeCommand(command);
	return r;
}

int postern__redis_session_call(struct postern__redis_session *session,
		const char *const *words, size_t count, redisReply **out,
		struct postern_error *error) {
	int r = send_words(&session->connection, words, count, &session->deadline,
			error);
	return r ? r
			 : postern__redis_connection_receive(&session->connection,
					   &session->deadline, out, error);
}

/* One step of the greeting. *reply_out is yours, and no error. */
static int greet(struct postern__redis_connection *self, const char *place,
		const char *const *words, size_t count,
		const struct postern__redis_deadline *deadline, redisReply **reply_out,
		enum postern__redis_action *action_out, struct postern_error *error) {
	redisReply *reply = NULL;
	int r = send_words(self, words, count, deadline, error);
	if (!r) {
		r = postern__redis_connection_receive(self, deadline, &reply, error);
	}
	if (r) {
		*action_out = r == POSTERN_E_NOMEM ? REDIS_FAIL : REDIS_RECONNECT;
		return postern__fail(error, r, "%s: %s", place,
				error ? error->text : "");
	}
	if (reply->type == REDIS_REPLY_ERROR) {
		r = postern__redis_fail_reply(reply, place, action_out, error);
		freeReplyObject(reply);
		return r;
	}
	*reply_out = reply;
	return POSTERN_OK;
}

static int authenticate(struct postern__redis_connection *self,
		const struct postern__redis_address *address,
		const struct postern__redis_deadline *deadline,
		enum postern__redis_action *action_out, struct postern_error *error) {
	const char *words[] = { "AUTH", address->password, NULL };
	size_t count = 2;
	redisReply *reply = NULL;
	if (!address->has_password) {
		return POSTERN_OK;
	}
	if (address->user[0]) {
		words[1] = address->user;
		words[2] = address->password;
		count = 3;
	}
	int r = greet(self, address->place, words, count, deadline, &reply,
			action_out, error);
	if (!r) {
		freeReplyObject(reply);
	}
	return r;
}

static int select_database(struct postern__redis_connection *self,
		const struct postern__redis_address *address,
		const struct postern__redis_deadline *deadline,
		enum postern__redis_action *action_out, struct postern_error *error) {
	char number[16];
	const char *const words[] = { "SELECT", number };
	redisReply *reply = NULL;
	if (address->database == 0) {
		return POSTERN_OK;
	}
	(void)snprintf(number, sizeof number, "%u", (unsigned)address->database);
	int r = greet(self, address->place, words, 2, deadline, &reply, action_out,
			error);
	if (!r) {
		freeReplyObject(reply);
	}
	return r;
}

/* The script would be refused by a replica, too; this is before any waiting
   call is sent, and answers LOADING and NOAUTH. */
static int check_role(struct postern__redis_connection *self,
		const struct postern__redis_address *address,
		const struct postern__redis_deadline *deadline,
		enum postern__redis_action *action_out, struct postern_error *error) {
	static const char *const words[] = { "ROLE" };
	char code[] = "READONLY";
	const redisReply read_only = {
		.type = REDIS_REPLY_ERROR,
		.str = code,
		.len = sizeof code - 1,
	};
	redisReply *reply = NULL;
	int r = greet(self, address->place, words, 1, deadline, &reply, action_out,
			error);
	if (r && *action_out == REDIS_DENIED) {
		return POSTERN_OK; /* the user may not ask */
	}
	if (!r && reply && reply->type == REDIS_REPLY_ARRAY &&
			reply->elements > 0 &&
			reply->element[0]->type == REDIS_REPLY_STRING &&
			strcmp(reply->element[0]->str, "slave") == 0) {
		r = postern__redis_fail_reply(&read_only, address->place, action_out,
				error);
	}
	if (reply) {
		freeReplyObject(reply);
	}
	return r;
}

int postern__redis_connection_open(struct postern__redis_connection *self,
		const struct postern__redis_address *address, SSL_CTX *tls,
		const struct postern__redis_deadline *deadline,
		enum postern__redis_action *action_out, struct postern_error *error) {
	struct postern_error why = { 0 };
	int r = postern__redis_socket_open(&self->socket, address, tls, deadline,
			&why);
	if (r) {
		*action_out = r == POSTERN_E_UNAVAILABLE ? REDIS_RECONNECT : REDIS_FAIL;
		return postern__fail(error, r, "cannot connect to %s: %s",
				address->place, why.text);
	}
	self->reader = redisReaderCreate();
	if (!self->reader) {
		*action_out = REDIS_FAIL;
		postern__redis_connection_close(self);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	r = authenticate(self, address, deadline, action_out, error);
	if (!r) {
		r = select_database(self, address, deadline, action_out, error);
	}
	if (!r) {
		r = check_role(self, address, deadline, action_out, error);
	}
	if (r) {
		postern__redis_connection_close(self);
	}
	return r;
}

void postern__redis_connection_close(struct postern__redis_connection *self) {
	if (self->reader) {
		redisReaderFree(self->reader);
	}
	self->reader = NULL;
	postern__redis_socket_close(&self->socket);
}
