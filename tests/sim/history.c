/* SPDX-License-Identifier: MIT */
/*
 * The history of a run: lines of JSON for the checker, which is another program
 * in another language, and a trace for people. No text in it needs escaping.
 */

#include "sim/sim.h"

#include <postern/sys/memory.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void sim_trace(struct sim *sim, const char *format, ...) {
	FILE *trace = sim->options.trace;
	if (!trace) {
		return;
	}
	va_list args;
	va_start(args, format);
	for (unsigned i = 1; i < sim->depth; i++) {
		(void)fputs("    ", trace);
	}
	(void)vfprintf(trace, format, args);
	(void)fputc('\n', trace);
	va_end(args);
}

/* Writes one line, with its number. */
__attribute__((format(printf, 2, 3))) static void write_line(struct sim *sim,
		const char *format, ...) {
	FILE *file = sim->options.history;
	if (!file) {
		return;
	}
	va_list args;
	va_start(args, format);
	(void)fprintf(file, "{\"t\":%llu,", (unsigned long long)sim->number++);
	(void)vfprintf(file, format, args);
	(void)fputs("}\n", file);
	va_end(args);
}

/* A handler that was renamed has an entry for each key, because deliveries are
   stored under either key. */
static void write_handler(const struct sim *sim, const struct sim_handler *cast,
		bool old, FILE *file) {
	bool transactional = cast->transactional && sim->plan->store != SIM_MEMORY;
	uint32_t lowest = cast->max_attempts;
	uint32_t highest = cast->max_attempts;
	if (sim->plan->replaces) {
		sim_cast_attempts((unsigned)(cast - sim_handlers), &lowest, &highest);
	}
	(void)fprintf(file, "%s\"%s\":{\"transactional\":%s,\"max_attempts\":%u",
			cast == sim_handlers ? "" : ",", old ? cast->old_key : cast->key,
			transactional ? "true" : "false", highest);
	if (lowest < highest) {
		(void)fprintf(file, ",\"fewest_attempts\":%u", lowest);
	}
	if (cast->in_process) {
		(void)fprintf(file, ",\"max_crashes\":%u", cast->max_crashes);
	}
	if (cast->timeout_ms > 0 || transactional) {
		(void)fputs(",\"timeouts\":true", file);
	}
	if (cast->retry_poisoned) {
		(void)fputs(",\"retry_poisoned\":true", file);
	}
	if (old) {
		(void)fprintf(file, ",\"renamed\":\"%s\"", cast->key);
	} else if (!cast->type && cast->since == 0 && !sim->plan->replaces) {
		(void)fprintf(file, ",\"channel\":\"%s\"",
				sim_channels[cast->channel].name);
	}
	(void)fputc('}', file);
}

void sim_history_config(struct sim *sim) {
	FILE *file = sim->options.history;
	if (!file) {
		return;
	}
	(void)fprintf(file,
			"{\"e\":\"config\",\"seed\":%llu,\"store\":\"%s\",\"handlers\":{",
			(unsigned long long)sim->plan->seed,
			sim_store_name(sim->plan->store));
	for (unsigned i = 0; i < SIM_HANDLER_COUNT; i++) {
		write_handler(sim, &sim_handlers[i], false, file);
		if (sim_handlers[i].old_key) {
			write_handler(sim, &sim_handlers[i], true, file);
		}
	}
	(void)fputs("},\"drops\":[", file);
	const char *comma = "";
	for (unsigned i = 0; i < SIM_CHANNEL_COUNT; i++) {
		if (sim_channels[i].unrouted == POSTERN_UNROUTED_DROP) {
			(void)fprintf(file, "%s\"%s\"", comma, sim_channels[i].name);
			comma = ",";
		}
	}
	bool kept = !sim->plan->retention;
	(void)fprintf(file,
			"],\"retention\":{\"payload_ms\":%lld,\"dedupe_ms\":%lld}%s}\n",
			kept ? 0 : (long long)SIM_PAYLOAD_MS,
			kept ? 0 : (long long)SIM_DEDUPE_MS,
			sim->plan->ignore_conflicts ? ",\"on_conflict\":\"ignore\"" : "");
}

/* The JSON members that identify a message. */
static const char *describe_message(const struct sim_parcel *parcel, char *out,
		size_t size) {
	const char *channel = sim_channels[parcel->channel].name;
	const char *source = parcel->message.source;
	(void)snprintf(out, size,
			"\"channel\":\"%s\",\"source\":\"%s\",\"id\":\"%s\","
			"\"body\":\"%s\"",
			channel, source ? source : channel, parcel->id, parcel->body);
	return out;
}

void sim_history_send(struct sim_node *node, const struct sim_parcel *parcel) {
	char text[200];
	node->sim->counts.messages++;
	write_line(node->sim, "\"e\":\"send\",\"node\":%u,%s", node->index,
			describe_message(parcel, text, sizeof(text)));
}

void sim_history_receipt(struct sim_node *node, const struct sim_parcel *parcel,
		int code, int64_t seq) {
	char text[200];
	const char *result = "failed";
	switch (code) {
	case POSTERN_OK: result = "accepted"; break;
	case POSTERN_E_DUPLICATE: result = "duplicate"; break;
	case POSTERN_E_CONFLICT: result = "conflict"; break;
	case POSTERN_E_INVALID: result = "rejected"; break;
	default: break;
	}
	sim_trace(node->sim, "  receipt for %s with body %u (%s, %s): %s, %lld",
			parcel->id, parcel->variant, sim_channels[parcel->channel].name,
			parcel->message.type, result, (long long)seq);
	write_line(node->sim,
			"\"e\":\"receipt\",\"node\":%u,%s,\"result\":\"%s\",\"seq\":%lld",
			node->index, describe_message(parcel, text, sizeof(text)), result,
			(long long)seq);
}

/* The time, if retention counts from it: not for a stale run. */
static const char *describe_time(struct sim *sim,
		const struct postern_delivery *run, unsigned stored, char *out,
		size_t size) {
	const struct sim_record *record = sim_oracle_find(&sim->oracle, run->seq);
	out[0] = '\0';
	if (record && record->deliveries[stored].fence == run->fence) {
		(void)snprintf(out, size, ",\"at\":%lld",
				(long long)fake_clock_now(&sim->clock));
	}
	return out;
}

void sim_history_run(struct sim_node *node, const struct postern_delivery *run,
		const struct postern_message *message, unsigned stored) {
	const char *key = node->sim->oracle.stored[stored].key;
	char at[40];
	sim_trace(node->sim,
			"  '%s' runs message %lld under fence %llu, attempt %u", key,
			(long long)run->seq, (unsigned long long)run->fence, run->attempt);
	write_line(node->sim,
			"\"e\":\"run\",\"node\":%u,\"seq\":%lld,\"channel\":\"%s\","
			"\"source\":\"%s\",\"id\":\"%s\",\"body\":\"%.*s\","
			"\"handler\":\"%s\",\"fence\":%llu,\"attempt\":%u%s",
			node->index, (long long)run->seq, run->channel, message->source,
			message->id, (int)message->body_len, (const char *)message->body,
			key, (unsigned long long)run->fence, run->attempt,
			describe_time(node->sim, run, stored, at, sizeof(at)));
}

static const char *outcome_name(enum postern_outcome_kind kind) {
	switch (kind) {
	case POSTERN_DONE: return "done";
	case POSTERN_RETRY:
	case POSTERN_RETRY_AFTER: return "retry";
	case POSTERN_SNOOZE: return "snooze";
	case POSTERN_POISON: return "poison";
	case POSTERN_DISCARD: return "discard";
	case POSTERN_HOLD: return "hold";
	default: return "?";
	}
}

void sim_history_ran(struct sim_node *node, const struct postern_delivery *run,
		unsigned stored, enum postern_outcome_kind kind) {
	const char *key = node->sim->oracle.stored[stored].key;
	char at[40];
	sim_trace(node->sim, "  outcome of '%s' for message %lld: %s", key,
			(long long)run->seq, outcome_name(kind));
	write_line(node->sim,
			"\"e\":\"ran\",\"node\":%u,\"seq\":%lld,\"handler\":\"%s\","
			"\"fence\":%llu,\"outcome\":\"%s\"%s",
			node->index, (long long)run->seq, key,
			(unsigned long long)run->fence, outcome_name(kind),
			describe_time(node->sim, run, stored, at, sizeof(at)));
}

static const char *settled_name(enum postern_settle_to to) {
	switch (to) {
	case POSTERN_SETTLE_DONE: return "done";
	case POSTERN_SETTLE_POISONED: return "poisoned";
	case POSTERN_SETTLE_DISCARDED: return "discarded";
	case POSTERN_SETTLE_PENDING: return "pending";
	case POSTERN_SETTLE_RETURNED: return "returned";
	default: return "?";
	}
}

static void write_settled(struct sim_node *node,
		const struct postern_event *event) {
	struct sim *sim = node->sim;
	struct sim_record *record = sim_oracle_find(&sim->oracle, event->seq);
	if (!record) {
		sim_oracle_broken(&sim->oracle, "phantom", "message %lld was settled",
				(long long)event->seq);
		return;
	}
	unsigned stored = sim_stored_event(&sim->oracle, record, event);
	struct sim_delivery *delivery = &record->deliveries[stored];
	const char *key = sim->oracle.stored[stored].key;
	if (event->kind == POSTERN_EVENT_FENCED) {
		sim->counts.fenced++;
		sim_trace(sim, "  the settlement of '%s' for message %lld is stale",
				key, (long long)event->seq);
		write_line(sim,
				"\"e\":\"fenced\",\"node\":%u,\"seq\":%lld,"
				"\"handler\":\"%s\",\"fence\":%llu",
				node->index, (long long)event->seq, key,
				(unsigned long long)event->fence);
		return;
	}
	enum postern_settle_to end = sim_delivery_settled(delivery, event->fence);
	delivery->settled[event->fence % SIM_SETTLED_KEPT].reported = true;
	if (event->state != sim_settled_state(end)) {
		sim_oracle_broken(&sim->oracle, "wrong-event",
				"an event reports message %lld of '%s' as %s",
				(long long)event->seq, key, postern_state_name(event->state));
	}
	const char *to = settled_name(end);
	sim_trace(sim, "  message %lld of '%s' is %s", (long long)event->seq, key,
			to);
	write_line(sim,
			"\"e\":\"settled\",\"node\":%u,\"seq\":%lld,\"handler\":\"%s\","
			"\"fence\":%llu,\"to\":\"%s\"",
			node->index, (long long)event->seq, key,
			(unsigned long long)event->fence, to);
}

void sim_history_event(struct sim_node *node,
		const struct postern_event *event) {
	if (event->state != POSTERN_STATE_ANY ||
			event->kind == POSTERN_EVENT_FENCED) {
		write_settled(node, event);
	} else if (event->kind == POSTERN_EVENT_LOCK_LOST) {
		sim_trace(node->sim, "  node %u detects that it lost the lock",
				node->index);
		write_line(node->sim, "\"e\":\"unlocked\",\"node\":%u,\"fence\":%llu",
				node->index, (unsigned long long)event->fence);
	}
}

void sim_history_locked(struct sim_node *node, uint64_t fence) {
	sim_trace(node->sim, "  node %u acquires the lock under fence %llu",
			node->index, (unsigned long long)fence);
	write_line(node->sim, "\"e\":\"locked\",\"node\":%u,\"fence\":%llu",
			node->index, (unsigned long long)fence);
}

void sim_history_node(struct sim_node *node, const char *what) {
	sim_trace(node->sim, "  node %u: %s (generation %u)", node->index, what,
			node->generation);
	if (strcmp(what, "stop") != 0) {
		write_line(node->sim, "\"e\":\"%s\",\"node\":%u", what, node->index);
	}
}

void sim_history_edit(struct sim *sim, const char *op, int64_t seq,
		const char *handler) {
	if (!handler) {
		sim_trace(sim, "  an operator requests: %s by filter", op);
		write_line(sim, "\"e\":\"edit\",\"op\":\"%s\"", op);
		return;
	}
	sim_trace(sim, "  an operator requests: %s '%s' of message %lld", op,
			handler, (long long)seq);
	write_line(sim,
			"\"e\":\"edit\",\"op\":\"%s\",\"seq\":%lld,\"handler\":\"%s\"", op,
			(long long)seq, handler);
}

void sim_history_clock(struct sim *sim, int64_t by) {
	write_line(sim, "\"e\":\"clock\",\"by\":%lld,\"at\":%lld", (long long)by,
			(long long)fake_clock_now(&sim->clock));
}

void sim_history_alias(struct sim *sim, const char *alias, const char *owner) {
	sim_trace(sim, "  '%s' is an alias of '%s' from now on", alias, owner);
	write_line(sim, "\"e\":\"alias\",\"handler\":\"%s\",\"of\":\"%s\"", alias,
			owner);
}

void sim_history_cleaned(struct sim *sim, uint64_t messages, uint64_t keys) {
	sim_trace(sim, "  %llu messages and %llu remembered ids are removed",
			(unsigned long long)messages, (unsigned long long)keys);
	write_line(sim, "\"e\":\"cleaned\",\"messages\":%llu,\"keys\":%llu",
			(unsigned long long)messages, (unsigned long long)keys);
}

static void dump_messages(struct sim *sim, FILE *file) {
	const struct sim_oracle *oracle = &sim->oracle;
	bool first = true;
	for (size_t i = 0; i < oracle->count; i++) {
		struct postern_memory *memory = postern_memory_create();
		struct postern_detail detail;
		int64_t seq = oracle->records[i].seq;
		if (memory && sim->store->ops->get(sim->store, seq, memory, &detail,
							  NULL) == POSTERN_OK) {
			(void)fprintf(file,
					"%s{\"seq\":%lld,\"channel\":\"%s\",\"source\":\"%s\","
					"\"id\":\"%s\",\"body\":\"%.*s\"}",
					first ? "" : ",", (long long)seq, detail.channel,
					detail.message->source, detail.message->id,
					(int)detail.message->body_len,
					(const char *)detail.message->body);
			first = false;
		}
		postern_memory_destroy(memory);
	}
}

static const char *stored_key(struct sim *sim, const struct postern_page *page,
		size_t index) {
	unsigned stored = sim_stored_row(&sim->oracle, page, index);
	return stored < SIM_STORED_MAX ? sim->oracle.stored[stored].key : "?";
}

static void dump_rows(struct sim *sim, const struct postern_page *page,
		bool parked, FILE *file) {
	bool first = true;
	for (size_t i = 0; i < page->count; i++) {
		const struct postern_row *row = &page->rows[i];
		if ((row->state == POSTERN_STATE_PARKED) != parked) {
			continue;
		}
		if (!first) {
			(void)fputc(',', file);
		}
		first = false;
		if (parked) {
			(void)fprintf(file, "%lld", (long long)row->seq);
			continue;
		}
		(void)fprintf(file,
				"{\"seq\":%lld,\"handler\":\"%s\",\"state\":\"%s\","
				"\"fence\":%llu,\"failures\":%u,\"starts\":%u,\"crashes\":%u}",
				(long long)row->seq,
				row->handler[0] ? stored_key(sim, page, i)
								: "", /* discarded while parked */
				postern_state_name(row->state), (unsigned long long)row->fence,
				row->failures, row->starts, row->crashes);
	}
}

void sim_dump_begin(struct sim *sim) {
	FILE *file = sim->options.dump;
	struct postern_memory *memory = postern_memory_create();
	if (!file || !memory) {
		postern_memory_destroy(memory);
		return;
	}
	(void)fputs("{\"e\":\"dump\",\"messages\":[", file);
	dump_messages(sim, file);
	struct postern_filter filter = { .size = sizeof(filter),
		.limit = POSTERN_LIST_LIMIT_MAX };
	struct postern_query query = { .filter = &filter };
	struct postern_page page = { 0 };
	(void)sim->store->ops->list(sim->store, &query, memory, &page, NULL);
	(void)fputs("],\"deliveries\":[", file);
	dump_rows(sim, &page, false, file);
	(void)fputs("],\"parked\":[", file);
	dump_rows(sim, &page, true, file);
	(void)fputs("],\"effects\":[", file);
	postern_memory_destroy(memory);
}

void sim_dump_effect(struct sim *sim, int64_t seq, const char *handler,
		uint64_t fence) {
	FILE *file = sim->options.dump;
	if (file) {
		(void)fprintf(file,
				"%s{\"seq\":%lld,\"handler\":\"%s\",\"fence\":%llu}",
				sim->effect_written ? "," : "", (long long)seq, handler,
				(unsigned long long)fence);
		sim->effect_written = true;
	}
}

void sim_dump_end(struct sim *sim) {
	if (sim->options.dump) {
		(void)fputs("],\"drained\":true}\n", sim->options.dump);
	}
}
