/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_AUTH_H
#define POSTERN_SERVER_AUTH_H

/*
 * Who may send requests to a server: its tokens, and the names it is called by.
 *
 * A token is kept as its SHA-256 only, and compared in a time that does not
 * depend on what it is. Once there are tokens, every request over TCP or a
 * socket that others may connect to needs one. Without tokens everyone who can
 * connect is an admin; then a web page must not be able to: a request over TCP
 * has to name this machine, or one of `hosts`, in its Host, and one from
 * another origin is refused.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/grant.h"

struct postern__request;
struct postern__response;
struct postern_error;

#define POSTERN__TOKEN_COUNT_MAX 256
#define POSTERN__TOKEN_HASH_LEN 32
/* 128 bits in base64 are 22 characters. */
#define POSTERN__TOKEN_LEN_MIN 22
#define POSTERN__TOKEN_LEN_MAX 512

struct postern__token {
	uint8_t hash[POSTERN__TOKEN_HASH_LEN];
	struct postern__grant grant; /* with the token's name */
};

struct postern__auth {
	const struct postern__token *tokens;
	size_t token_count; /* 0: none is needed */
	const char *hosts;  /* names, with commas between them; NULL: none */
};

/* Hash a token. POSTERN_E_INVALID: it is too short, or has a character that a
   header cannot have. The error does not show it. */
int postern__token_hash(const char *token, uint8_t out[POSTERN__TOKEN_HASH_LEN],
		struct postern_error *error);

/*
 * Set what the sender may do, by the request's headers: `grant` of the request,
 * which lives as long as `auth`. False: refused, by what is in the response.
 *
 * local  nobody else can connect, so no token is needed.
 * web    a browser can connect: it is an address of TCP.
 */
bool postern__auth_admit(const struct postern__auth *auth, bool local, bool web,
		struct postern__request *request, struct postern__response *response);

/* Whether the text is a list of names of hosts, with commas between them. */
int postern__auth_hosts_check(const char *text, struct postern_error *error);

#endif
