/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_PUBLISH_H
#define POSTERN_STORE_PUBLISH_H

struct postern_error;
struct postern_message;

/* A message to stage, which was validated: id and type are not NULL. */
struct postern_staging {
	void *transaction;
	const char *schema;
	const char *channel;
	const struct postern_message *message;
	const char *headers; /* a JSON object; NULL: none */
};

/* Only where libpq was found: POSTERN_POSTGRES. */
int postern__pg_publish(const struct postern_staging *staging,
		struct postern_error *error);

#endif
