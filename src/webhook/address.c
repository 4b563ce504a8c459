/* SPDX-License-Identifier: MIT */

/*
 * Which addresses a request may reach. What is judged is the address that a
 * socket is about to be connected to, never a name: what a name resolves to may
 * change between two questions.
 *
 * An IPv6 address that carries an IPv4 address, for any kind of translation, is
 * judged by both.
 */

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fail.h"
#include "webhook/webhook.h"

/* A row of a table below. */
struct refused {
	const char *address;
	unsigned bits;
	const char *what;
	bool always; /* also if the host is written in the configuration */
};

/* clang-format off */
static const struct refused refused_4[] = {
	{ "169.254.0.0",     16, "a link-local address", true },
	{ "100.100.100.200", 32, "a metadata service", true },
	{ "168.63.129.16",   32, "a metadata service", true },
	{ "192.0.0.192",     32, "a metadata service", true },
	{ "224.0.0.0",        4, "a multicast address", true },
	{ "240.0.0.0",        4, "a reserved address", true },
	{ "0.0.0.0",          8, "this machine", false },
	{ "10.0.0.0",         8, "a private address", false },
	{ "100.64.0.0",      10, "a shared address", false },
	{ "127.0.0.0",        8, "a loopback address", false },
	{ "172.16.0.0",      12, "a private address", false },
	{ "192.0.0.0",       24, "a reserved address", false },
	{ "192.0.2.0",       24, "a reserved address", false },
	{ "192.88.99.0",     24, "a reserved address", false },
	{ "192.168.0.0",     16, "a private address", false },
	{ "198.18.0.0",      15, "a reserved address", false },
	{ "198.51.100.0",    24, "a reserved address", false },
	{ "203.0.113.0",     24, "a reserved address", false },
};

static const struct refused refused_6[] = {
	{ "fe80::",         10, "a link-local address", true },
	{ "ff00::",          8, "a multicast address", true },
	{ "fd00:ec2::254", 128, "a metadata service", true },
	{ "fd20:ce::254",  128, "a metadata service", true },
	{ "::",            128, "this machine", false },
	{ "::1",           128, "a loopback address", false },
	{ "fc00::",          7, "a private address", false },
	{ "fec0::",         10, "a private address", false },
	{ "100::",          64, "a reserved address", false },
	{ "2001:db8::",     32, "a reserved address", false },
	{ "2001::",         23, "a reserved address", false },
	{ "3fff::",         20, "a reserved address", false },
	{ "5f00::",         16, "a reserved address", false },
	{ "::",             96, "an embedded address", false },
	{ "::ffff:0:0",     96, "an embedded address", false },
	{ "::ffff:0:0:0",   96, "an embedded address", false },
	{ "64:ff9b::",      96, "an embedded address", false },
	{ "64:ff9b:1::",    48, "an embedded address", false },
	{ "2002::",         16, "an embedded address", false },
};

/* Where an IPv6 address carries an IPv4 address. */
static const struct embedding {
	const char *address;
	unsigned bits;
	unsigned offset;
	unsigned char mask; /* the bytes are combined with it */
} embeddings[] = {
	{ "::",           96, 12, 0 },
	{ "::ffff:0:0",   96, 12, 0 },
	{ "::ffff:0:0:0", 96, 12, 0 },
	{ "64:ff9b::",    96, 12, 0 },
	{ "64:ff9b:1::",  48, 12, 0 },
	{ "2002::",       16,  2, 0 },
	{ "2001::",       32,  4, 0 },
	{ "2001::",       32, 12, 0xff },
};
/* clang-format on */

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

static bool has_prefix(const unsigned char *address,
		const unsigned char *prefix, unsigned bits) {
	unsigned whole = bits / 8;
	unsigned rest = bits % 8;
	if (memcmp(address, prefix, whole) != 0) {
		return false;
	}
	unsigned mask = rest > 0 ? 0xffu << (8 - rest) : 0;
	return ((address[whole < 16 ? whole : 15] ^
					prefix[whole < 16 ? whole : 15]) &
				   mask & 0xffu) == 0;
}

static bool is_in(int family, const unsigned char *bytes, const char *address,
		unsigned bits) {
	unsigned char prefix[16] = { 0 };
	(void)inet_pton(family, address, prefix); /* the tables are correct */
	return has_prefix(bytes, prefix, bits);
}

static bool is_allowed(const struct postern__webhook_guard *guard, int family,
		const unsigned char *bytes) {
	for (size_t i = 0; i < guard->block_count; i++) {
		if (guard->blocks[i].family == family &&
				has_prefix(bytes, guard->blocks[i].address,
						guard->blocks[i].bits)) {
			return true;
		}
	}
	return false;
}

/* `bytes` has 16, also of an IPv4 address. */
static const char *find_refused(const struct postern__webhook_guard *guard,
		int family, const unsigned char *bytes, const struct refused *rows,
		size_t count) {
	bool strict = guard->templated && !is_allowed(guard, family, bytes);
	for (size_t i = 0; i < count; i++) {
		if ((strict || rows[i].always) &&
				is_in(family, bytes, rows[i].address, rows[i].bits)) {
			return rows[i].what;
		}
	}
	return NULL;
}

static const char *refuse_4(const struct postern__webhook_guard *guard,
		const unsigned char *address) {
	unsigned char bytes[16] = { 0 };
	memcpy(bytes, address, 4);
	return find_refused(guard, AF_INET, bytes, refused_4, COUNT(refused_4));
}

static const char *refuse_6(const struct postern__webhook_guard *guard,
		const unsigned char *bytes) {
	const char *why =
			find_refused(guard, AF_INET6, bytes, refused_6, COUNT(refused_6));
	for (size_t i = 0; !why && i < COUNT(embeddings); i++) {
		const struct embedding *row = &embeddings[i];
		/* "::1" and "::" carry nothing. */
		bool carries = is_in(AF_INET6, bytes, row->address, row->bits) &&
					   !is_in(AF_INET6, bytes, "::", 120);
		unsigned char inner[4];
		for (size_t n = 0; n < sizeof inner; n++) {
			inner[n] = bytes[row->offset + n] ^ row->mask;
		}
		why = carries ? refuse_4(guard, inner) : NULL;
	}
	return why;
}

const char *
postern__webhook_address_refuse(const struct postern__webhook_guard *guard,
		const struct sockaddr *address) {
	if (address->sa_family == AF_INET) {
		struct sockaddr_in in;
		memcpy(&in, address, sizeof in);
		return refuse_4(guard, (const unsigned char *)&in.sin_addr);
	}
	if (address->sa_family == AF_INET6) {
		struct sockaddr_in6 in;
		memcpy(&in, address, sizeof in);
		return refuse_6(guard, in.sin6_addr.s6_addr);
	}
	return "an address of an unknown family";
}

const char *
postern__webhook_host_refuse(const struct postern__webhook_guard *guard,
		const char *host) {
	const struct addrinfo hints = {
		.ai_flags = AI_NUMERICHOST,
		.ai_socktype = SOCK_STREAM,
	};
	struct addrinfo *found;
	char plain[256];
	size_t len = strlen(host);
	bool bracketed = len > 2 && host[0] == '[' && host[len - 1] == ']';
	host += bracketed;
	len -= bracketed ? 2 : 0;
	len -= len > 1 && host[len - 1] == '.';
	if (len >= sizeof plain) {
		return NULL;
	}
	memcpy(plain, host, len);
	plain[len] = '\0';
	/* A zone says on which link, not where. */
	plain[bracketed ? strcspn(plain, "%") : len] = '\0';
	if (getaddrinfo(plain, NULL, &hints, &found) != 0) {
		return NULL;
	}
	const char *why = postern__webhook_address_refuse(guard, found->ai_addr);
	freeaddrinfo(found);
	return why;
}

int postern__webhook_block_parse(const char *text,
		struct postern__webhook_block *out, struct postern_error *error) {
	char address[64];
	size_t len = strcspn(text, "/");
	*out = (struct postern__webhook_block){ 0 };
	bool ok = text[len] == '/' && len < sizeof address;
	if (ok) {
		memcpy(address, text, len);
		address[len] = '\0';
		out->family = strchr(address, ':') ? AF_INET6 : AF_INET;
		ok = inet_pton(out->family, address, out->address) == 1;
	}
	unsigned most = out->family == AF_INET ? 32 : 128;
	const char *digits = text + len + 1;
	ok = ok && *digits && strlen(digits) <= 3 &&
		 strspn(digits, "0123456789") == strlen(digits);
	out->bits = ok ? (unsigned)strtoul(digits, NULL, 10) : 0;
	if (!ok || out->bits > most) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.80s' is not a block of addresses such as 10.0.0.0/8 or "
				"fd00::/8",
				text);
	}
	return POSTERN_OK;
}
