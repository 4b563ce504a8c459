/* SPDX-License-Identifier: MIT */

/*
 * Removing secrets from addresses. People make mistakes in addresses, mostly
 * unescaped characters in passwords, and a wrong address is the one that is
 * quoted in an error. So a part is not shown merely because it was not
 * recognised as secret: each part must be plausible for its position, and a
 * single part that is not makes everything after the scheme ***.
 *
 *   scheme://user:password@hosts/path?name=value&name=value#fragment
 *   scheme:path?name=value                          (local files only)
 *   name=value name='value' …                       (libpq, also behind
 *                                                    "postgres:")
 *
 * The functions that write parts return false if a part is not plausible; the
 * output is discarded then.
 */

#include "base/redact.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"

/* Longer than any realistic address; bounds the stack. */
#define ADDRESS_LEN_MAX 4096
#define SCHEME_LEN_MAX 32

static const char stars[] = "***";

/* A parameter with one of these in its name is secret. Lower case. */
static const char *const secret_words[] = {
	"pass",
	"pwd",
	"secret",
	"token",
	"key",
	"sig",
	"auth",
	"cred",
	"jwt",
	"private",
};

/* Schemes where a user without a password is a name, not an access token. */
static const char *const named_user_schemes[] = {
	"postgres",
	"postgresql",
	"amqp",
	"amqps",
};

/* Schemes that name something on this machine, without an authority. */
static const char *const local_schemes[] = {
	"sqlite",
	"memory",
	"unix",
	"file",
};

/* Schemes that may be followed by libpq's `name=value` form. */
static const char *const conninfo_schemes[] = {
	"postgres",
	"postgresql",
};

/* Parameters of libpq or of a store that may be shown. */
static const char *const conninfo_names[] = {
	"application_name",
	"channel_binding",
	"client_encoding",
	"connect_timeout",
	"connections",
	"dbname",
	"fallback_application_name",
	"gssencmode",
	"gsslib",
	"host",
	"hostaddr",
	"keepalives",
	"keepalives_count",
	"keepalives_idle",
	"keepalives_interval",
	"krbsrvname",
	"load_balance_hosts",
	"options",
	"port",
	"replication",
	"requirepeer",
	"schema",
	"service",
	"sslcert",
	"sslcompression",
	"sslcrl",
	"sslcrldir",
	"sslmode",
	"sslrootcert",
	"sslsni",
	"ssl_max_protocol_version",
	"ssl_min_protocol_version",
	"target_session_attrs",
	"tcp_user_timeout",
	"user",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A piece of the address. */
struct slice {
	const char *at;
	size_t len;
};

/* The output; full once a part did not fit. */
struct writer {
	char *out;
	size_t size;
	size_t len;
	bool full;
};

static void put(struct writer *writer, const char *text, size_t len) {
	if (writer->full) {
		return;
	}
	size_t room = writer->size - 1 - writer->len;
	if (len > room) {
		len = postern__utf8_cut(text, len, room);
		writer->full = true;
	}
	memcpy(writer->out + writer->len, text, len);
	writer->len += len;
	writer->out[writer->len] = '\0';
}

static void put_text(struct writer *writer, const char *text) {
	put(writer, text, strlen(text));
}

static bool is_one_of(const char *const *list, size_t count,
		struct slice name) {
	for (size_t i = 0; i < count; i++) {
		if (strlen(list[i]) == name.len &&
				memcmp(list[i], name.at, name.len) == 0) {
			return true;
		}
	}
	return false;
}

static char to_lower(char c) {
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static int hex_value(char c) {
	c = to_lower(c);
	if (c >= '0' && c <= '9') {
		return c - '0';
	}
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/*
 * Undo percent-encoding and fold to lower case, so that a secret cannot hide
 * behind its spelling. False if it is malformed, has a zero byte, or is
 * encoded twice.
 */
static bool decode(struct slice from, char out[ADDRESS_LEN_MAX + 1]) {
	size_t len = 0;
	for (size_t i = 0; i < from.len; i++) {
		char c = from.at[i];
		if (c == '%') {
			if (from.len - i < 3) {
				return false;
			}
			int high = hex_value(from.at[i + 1]);
			int low = hex_value(from.at[i + 2]);
			if (high < 0 || low < 0) {
				return false;
			}
			c = (char)(high * 16 + low);
			if (c == '\0' || c == '%') {
				return false;
			}
			i += 2;
		}
		out[len++] = to_lower(c);
	}
	out[len] = '\0';
	return true;
}

static bool has_secret_word(const char *text) {
	for (size_t i = 0; i < COUNT(secret_words); i++) {
		if (strstr(text, secret_words[i])) {
			return true;
		}
	}
	return false;
}

/* Whether decoded text may have a setting such as "password=x" inside. */
static bool has_secret_setting(const char *text) {
	return strchr(text, '=') && has_secret_word(text);
}

/* name=value&name=value, up to the end or a '#'. */
static void put_query(struct writer *writer, struct slice query) {
	char text[ADDRESS_LEN_MAX + 1];
	while (query.len > 0) {
		const char *end = memchr(query.at, '&', query.len);
		size_t len = end ? (size_t)(end - query.at) : query.len;
		const char *equals = len > 0 ? memchr(query.at, '=', len) : NULL;
		if (equals) {
			struct slice name = { query.at, (size_t)(equals - query.at) };
			struct slice value = { equals + 1, len - name.len - 1 };
			bool shown = decode(name, text) && !has_secret_word(text) &&
						 !strpbrk(text, "@:/") && decode(value, text) &&
						 !strchr(text, '@') && !strstr(text, "://") &&
						 !has_secret_setting(text);
			put(writer, name.at, name.len);
			put_text(writer, "=");
			put(writer, shown ? value.at : stars,
					shown ? value.len : sizeof stars - 1);
		} else if (len > 0) {
			/* A value without a name may be a token. */
			put_text(writer, stars);
		}
		if (end) {
			put_text(writer, "&");
			len++;
		}
		query.at += len;
		query.len -= len;
	}
}

/* What follows the path: "?query#fragment", either part may be missing. */
static void put_tail(struct writer *writer, struct slice tail) {
	const char *hash = tail.len > 0 ? memchr(tail.at, '#', tail.len) : NULL;
	struct slice query = tail;
	if (hash) {
		query.len = (size_t)(hash - tail.at);
	}
	if (query.len > 0) {
		put_text(writer, "?");
		query.at++;
		query.len--;
		put_query(writer, query);
	}
	if (hash) {
		put_text(writer, "#");
		put_text(writer, stars);
	}
}

/*
 * Whether each host's colon is followed by a port number. Otherwise it may be
 * `user:password` without the `@host`.
 */
static bool are_hosts(struct slice hosts) {
	bool in_brackets = false;
	bool in_port = false;
	size_t digits = 0;
	for (size_t i = 0; i < hosts.len; i++) {
		char c = hosts.at[i];
		if (c == '[' || c == ']') {
			in_brackets = c == '[';
		} else if (c == ',') {
			in_port = false;
		} else if (c == ':' && !in_brackets) {
			if (in_port) {
				return false;
			}
			in_port = true;
			digits = 0;
		} else if (in_port && (c < '0' || c > '9' || ++digits > 5)) {
			return false;
		}
	}
	return !in_brackets;
}

static bool put_user(struct writer *writer, struct slice scheme,
		struct slice user) {
	char text[ADDRESS_LEN_MAX + 1];
	const char *colon = memchr(user.at, ':', user.len);
	struct slice name = user;
	if (colon) {
		name.len = (size_t)(colon - user.at);
	}
	if (!decode(name, text) || strchr(text, ':') || has_secret_setting(text)) {
		return false;
	}
	if (colon ||
			is_one_of(named_user_schemes, COUNT(named_user_schemes), scheme)) {
		put(writer, name.at, name.len);
	} else {
		put_text(writer, stars);
	}
	if (colon) {
		put_text(writer, ":");
		put_text(writer, stars);
	}
	put_text(writer, "@");
	return true;
}

/* The position of the first of these bytes, or the end. */
static size_t find_any(struct slice text, const char *bytes) {
	size_t at = 0;
	while (at < text.len && !strchr(bytes, text.at[at])) {
		at++;
	}
	return at;
}

/* What follows "scheme://". */
static bool put_remote(struct writer *writer, struct slice scheme,
		struct slice rest) {
	char text[ADDRESS_LEN_MAX + 1];
	struct slice authority = { rest.at, find_any(rest, "/?#") };
	const char *last = memrchr(rest.at, '@', rest.len);
	struct slice user = { rest.at, 0 };
	if (last) {
		user.len = (size_t)(last - rest.at);
		if (user.len >= authority.len) {
			return false; /* a password with a '/', '?' or '#' in it? */
		}
		if (!put_user(writer, scheme, user)) {
			return false;
		}
		authority.at += user.len + 1;
		authority.len -= user.len + 1;
		rest.at += user.len + 1;
		rest.len -= user.len + 1;
	}
	struct slice place = { rest.at, find_any(rest, "?#") };
	if (!are_hosts(authority) || !decode(place, text) || strchr(text, '@') ||
			has_secret_setting(text)) {
		return false;
	}
	put(writer, place.at, place.len);
	put_tail(writer,
			(struct slice){ rest.at + place.len, rest.len - place.len });
	return true;
}

/* What follows "scheme:" where there is no authority. */
static bool put_local(struct writer *writer, struct slice scheme,
		struct slice rest) {
	char text[ADDRESS_LEN_MAX + 1];
	struct slice place = { rest.at, find_any(rest, "?#") };
	if (!is_one_of(local_schemes, COUNT(local_schemes), scheme) ||
			!decode(place, text) || has_secret_setting(text) ||
			strstr(text, "://")) {
		return false;
	}
	put(writer, place.at, place.len);
	put_tail(writer,
			(struct slice){ rest.at + place.len, rest.len - place.len });
	return true;
}

/* The length of a libpq value, its quotes included; SIZE_MAX if unclosed. */
static size_t conninfo_value_len(const char *at) {
	bool quoted = *at == '\'';
	size_t len = quoted;
	for (; at[len] != '\0'; len++) {
		if (at[len] == '\\' && at[len + 1] != '\0') {
			len++;
		} else if (quoted && at[len] == '\'') {
			return len + 1;
		} else if (!quoted && at[len] == ' ') {
			return len;
		}
	}
	return quoted ? SIZE_MAX : len;
}

static bool put_conninfo(struct writer *writer, const char *at) {
	char text[ADDRESS_LEN_MAX + 1];
	const char *gap = "";
	for (;;) {
		at += strspn(at, " ");
		if (*at == '\0') {
			return true;
		}
		struct slice name = { at, strcspn(at, " =") };
		memcpy(text, name.at, name.len);
		text[name.len] = '\0';
		bool known = is_one_of(conninfo_names, COUNT(conninfo_names), name);
		at += name.len;
		at += strspn(at, " ");
		if ((!known && !has_secret_word(text)) || *at != '=') {
			return false; /* a password with a blank in it? */
		}
		at++;
		at += strspn(at, " ");
		struct slice value = { at, conninfo_value_len(at) };
		if (value.len == SIZE_MAX) {
			return false;
		}
		at += value.len;
		bool shown = known && decode(value, text) && !strstr(text, "://") &&
					 !has_secret_setting(text);
		put_text(writer, gap);
		put(writer, name.at, name.len);
		put_text(writer, "=");
		put(writer, shown ? value.at : stars,
				shown ? value.len : sizeof stars - 1);
		gap = " ";
	}
}

/* The scheme at the start, its colon not included; empty if there is none. */
static struct slice find_scheme(const char *address) {
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
								  "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	static const char others[] = "abcdefghijklmnopqrstuvwxyz"
								 "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-";
	size_t len = strspn(address, letters) > 0 ? strspn(address, others) : 0;
	if (address[len] != ':' || len > SCHEME_LEN_MAX) {
		len = 0;
	}
	return (struct slice){ address, len };
}

static bool put_address(struct writer *writer, const char *address,
		struct slice scheme, bool remote) {
	size_t len = strnlen(address, ADDRESS_LEN_MAX + 1);
	if (len > ADDRESS_LEN_MAX || !postern__utf8_valid(address, len) ||
			postern__utf8_has_control(address, len)) {
		return false;
	}
	if (scheme.len == 0) {
		return put_conninfo(writer, address);
	}
	size_t start = scheme.len + (remote ? strlen("://") : strlen(":"));
	struct slice rest = { address + start, len - start };
	put(writer, address, start);
	if (remote) {
		return put_remote(writer, scheme, rest);
	}
	return is_one_of(conninfo_schemes, COUNT(conninfo_schemes), scheme)
				   ? put_conninfo(writer, rest.at)
				   : put_local(writer, scheme, rest);
}

void postern__redact(const char *address, char *out, size_t size) {
	assert(size > 0);
	struct writer writer = { .out = out, .size = size };
	out[0] = '\0';
	if (!address) {
		return;
	}
	struct slice scheme = find_scheme(address);
	bool remote = scheme.len > 0 &&
				  strncmp(address + scheme.len, "://", strlen("://")) == 0;
	if (put_address(&writer, address, scheme, remote)) {
		return;
	}
	writer.len = 0;
	writer.full = false;
	out[0] = '\0';
	if (scheme.len > 0) {
		put(&writer, scheme.at, scheme.len);
		put_text(&writer, remote ? "://" : ":");
	}
	put_text(&writer, stars);
}

static const char *url_end(const char *at) {
	while ((unsigned char)*at > ' ' && !strchr("'\"<>`", *at)) {
		at++;
	}
	return at;
}

static const char *find_last(const char *from, const char *to, char wanted) {
	const char *found = NULL;
	for (const char *at = from; at < to; at++) {
		found = *at == wanted ? at : found;
	}
	return found;
}

/* Whether the text is digits only, up to a delimiter or its end: a port. */
static bool is_port(const char *from, const char *to) {
	while (from < to && *from >= '0' && *from <= '9') {
		from++;
	}
	return from == to || *from == '/' || *from == '?' || *from == '#' ||
		   *from == ',';
}

/* Replace [from, to) with stars; returns the position after them. */
static char *hide(char *from, const char *to) {
	size_t len = (size_t)(to - from);
	size_t left = len < strlen(stars) ? len : strlen(stars);
	memset(from, '*', left);
	memmove(from + left, to, strlen(to) + 1);
	return from + left;
}

/*
 * The end of the password that begins at `from`: before the host's '@', or at
 * the end of the address. A password may contain blanks and quotes, so a later
 * '@' counts, too, up to the next address; after one that may be the host's
 * already, only if a blank follows the address, and up to the next quote.
 */
static const char *secret_end(const char *from, const char *end,
		const char *host) {
	const char *limit = strstr(end, "://");
	limit = limit ? limit : end + strlen(end);
	if (host && *end != ' ') {
		return host;
	}
	if (host) {
		const char *quote = end + strcspn(end, "'\"<>`");
		limit = quote < limit ? quote : limit;
	}
	const char *last = find_last(from, limit, '@');
	return last ? last : end;
}

static void hide_in_urls(char *text) {
	char *at = text;
	while ((at = strstr(at, "://"))) {
		at += strlen("://");
		const char *end = url_end(at);
		const char *host = find_last(at, end, '@');
		char *secret = memchr(at, ':', (size_t)((host ? host : end) - at));
		if (secret && (*at != '[' || host) &&
				(host || !is_port(secret + 1, end))) {
			at = hide(secret + 1, secret_end(secret + 1, end, host));
		}
	}
}

/* Whether the name of a setting, up to its '=', indicates a secret. */
static bool is_secret_name(const char *from, const char *to) {
	static const char *const words[] = { "pass", "pwd", "secret", "token" };
	for (; from < to; from++) {
		for (size_t i = 0; i < COUNT(words); i++) {
			size_t len = strlen(words[i]);
			if ((size_t)(to - from) >= len &&
					strncasecmp(from, words[i], len) == 0) {
				return true;
			}
		}
	}
	return false;
}

/* The end of a value, in a sentence that may have quoted the whole setting. */
static const char *setting_end(const char *at) {
	if (*at == '\'') {
		size_t len = conninfo_value_len(at);
		return len == SIZE_MAX ? at + strlen(at) : at + len;
	}
	const char *end = at;
	while (*end && *end != ' ' && *end != '&') {
		end += *end == '\\' && end[1] ? 2 : 1;
	}
	while (end > at && strchr("'\",.;:)", end[-1])) {
		end--;
	}
	return end;
}

static void hide_in_settings(char *text) {
	char *at = text;
	while ((at = strchr(at, '='))) {
		const char *name = at;
		while (name > text && !strchr(" ?&'\"=:/", name[-1])) {
			name--;
		}
		bool secret = is_secret_name(name, at);
		at++;
		if (secret) {
			at = hide(at, setting_end(at));
		}
	}
}

void postern__redact_within(char *text) {
	hide_in_urls(text);
	hide_in_settings(text);
}
