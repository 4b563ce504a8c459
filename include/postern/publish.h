/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_PUBLISH_H
#define POSTERN_PUBLISH_H

/*
 * The outbox: a message that commits or vanishes with the data of its
 * transaction. A node accepts it a moment after the commit, under the id that
 * it was given here.
 */

#include <postern/error.h>
#include <postern/export.h>
#include <postern/handler.h>
#include <postern/message.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Room for an id and its zero byte. */
#define POSTERN_ID_SIZE (POSTERN_ID_LEN_MAX + 1)

/* Zero the struct, set `size` and the members. Borrowed for the call. */
struct postern_publication {
	size_t size;

	/*
	 * The open transaction. POSTERN_SQL_POSTGRES: a PGconn * to the database
	 * of the store, any connection. POSTERN_SQL_SQLITE: a sqlite3 * whose main
	 * database is the file of the store, opened with ?shared=yes. In a
	 * transactional handler: the `transaction` of its delivery, also on a
	 * file that is not shared; the message commits with the completion.
	 */
	enum postern_sql_dialect dialect;
	void *transaction;
	const char *schema; /* of the store on PostgreSQL; NULL: "postern" */

	const char *channel; /* by any name it ever had; enrolled by a node */
	/* Without an id, a random one is generated. `transport` and
	   `received_at_ms` are ignored. */
	const struct postern_message *message;
};

/*
 * Stage a message in the transaction.
 *
 * id_out  POSTERN_ID_SIZE bytes for the message's id, or NULL.
 *
 * Returns POSTERN_OK, or, and then the message is not staged:
 *   POSTERN_E_INVALID      the message breaks a limit, its body exceeds
 *                          max_message_size of the channel, no transaction is
 *                          open, or the file is not shared
 *   POSTERN_E_NOTFOUND     no node ever had the channel
 *   POSTERN_E_BUSY         SQLite: another connection writes; roll back and
 *                          try again
 *   POSTERN_E_UNSUPPORTED  the database has no store of this version
 *   POSTERN_E_UNAVAILABLE  the connection was lost, or the disk is full
 * On PostgreSQL the transaction has failed then, unless the message itself was
 * refused before it was sent; on SQLite the caller decides. An id that was
 * accepted before is no error: the message is a duplicate when it is accepted.
 */
POSTERN_EXPORT int
postern_publish(const struct postern_publication *publication, char *id_out,
		struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
