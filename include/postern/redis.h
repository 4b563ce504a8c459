/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_REDIS_H
#define POSTERN_REDIS_H

/*
 * Markers in Redis, in a library of its own: link with libpostern-redis
 * (pkg-config postern-redis) and register it before a guard is opened:
 *
 *   postern_redis_register(&error);
 *   postern_guard_open("redis://cache:6379/0?ttl=7d", NULL, &guard, &error);
 *
 * A function that is guarded so is not transactional, and what Redis forgets
 * was never done: docs/redis.md has what is promised and which settings of the
 * server it needs. postern_guard_check() reads them.
 *
 *   redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE][?NAME=VALUE&…]
 *   rediss://…      with TLS; the server's certificate must be valid for HOST
 *   redis:///?socket=PATH
 *
 *   key_prefix   begins every key: letters, digits and "._:-"; "postern:"
 *   ttl          how long it is remembered what was done; "7d"
 *   ca_file      rediss: the certificates that are trusted; the system's
 *   connections  1 to 64 at the same time; 2
 */

#include <postern/error.h>
#include <postern/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Register redis:// and rediss:// for the rest of the process. Calling it again
   changes nothing. */
POSTERN_EXPORT int postern_redis_register(struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
