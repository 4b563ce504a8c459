/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SCRIPTED_SOURCE_H
#define POSTERN_TESTS_SCRIPTED_SOURCE_H

/*
 * A broker in memory and a source that reads it, written as a source for a real
 * broker would be: one thread owns the connection, completions reach it by a
 * queue, and what is in flight is bounded by a prefetch count.
 *
 * The broker acknowledges one of two ways: message by message, with tags that
 * are valid for one connection (RabbitMQ), or by the offset up to which all
 * messages are done (Kafka, Redis Streams). The script says when it cuts the
 * connection, repeats or reorders.
 */

#include <stdbool.h>
#include <stddef.h>

struct postern_source;

void scripted_open_tags(void);
void scripted_open_offsets(void);
void scripted_close(void);
struct postern_source *scripted_create(void);
void scripted_put(const char *id);
void scripted_put_bad(void);
size_t scripted_acknowledged(bool exists);
void scripted_disconnect(void);
void scripted_shuffle(void);

#endif
