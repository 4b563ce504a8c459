/* SPDX-License-Identifier: MIT */
/*
 * Many seeds, each with one history.
 *
 *   test_sim                                  the cases, with TAP
 *   SIM_SEEDS=100000 test_sim                 … with that many seeds each
 *   test_sim --seed 7 --store sqlite          one seed, told in words, and
 *                                             made smaller if it fails
 *   test_sim --history FILE --seeds 100 --store memory
 *                                             for the checker
 *
 * Beside a server (tests/support/postgres.py) there are other cases, on that
 * one alone; a name of a store is then also "postgres".
 *
 * The seeds begin at SIM_FIRST (1). SIM_SWEEPS (1) is how many seeds have
 * every site struck. With SIM_BLIND set the simulation does not judge what it
 * sees: that is left to the checker.
 */

#include "tap.h"

#include "sim/shrink.h"
#include "sim/sweep.h"
#include "support/temp_dir.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define SEEDS_DEFAULT 300

static struct temp_dir directory;

static uint64_t read_number(const char *name, uint64_t fallback) {
	const char *text = getenv(name);
	return text && text[0] ? strtoull(text, NULL, 10) : fallback;
}

/* Tell a failure in a way that a person can begin with. */
static void explain(const struct sim_plan *plan, const char *mutant,
		const char *rule) {
	struct sim_plan *small = malloc(sizeof(*small));
	if (!small) {
		abort();
	}
	*small = *plan;
	struct sim_options options = {
		.mutant = mutant,
		.directory = directory.path,
	};
	unsigned runs = sim_shrink(small, &options, rule);
	(void)fprintf(stderr,
			"seed %llu, %zu operations, shrunk to %zu in %u runs:\n",
			(unsigned long long)plan->seed, plan->op_count, small->op_count,
			runs);
	char text[400];
	char again[SIM_RULE_LEN_MAX + 1];
	options.words = stderr;
	(void)sim_run_apart(small, &options, again, text, sizeof(text));
	(void)fprintf(stderr,
			"to see it again: test_sim --seed %llu --store %s%s%s\n",
			(unsigned long long)plan->seed, sim_store_name(plan->store),
			mutant ? " --mutant " : "", mutant ? mutant : "");
	free(small);
}

static void tell_counts(const char *store, uint64_t seeds,
		const struct sim_counts *sum) {
	(void)printf("# %s: %llu seeds, %llu operations, %llu messages sent, "
				 "%llu runs, %llu store errors, %llu crashes, %llu pauses, "
				 "%llu leases lost, %llu results refused, %llu aliases made\n",
			store, (unsigned long long)seeds, (unsigned long long)sum->ops,
			(unsigned long long)sum->messages, (unsigned long long)sum->runs,
			(unsigned long long)sum->errors, (unsigned long long)sum->crashes,
			(unsigned long long)sum->pauses, (unsigned long long)sum->takeovers,
			(unsigned long long)sum->fenced, (unsigned long long)sum->aliases);
}

/* What is being run, for those who find the process dead. */
static char last_words[160];

static void prepare_death(uint64_t seed, enum sim_store store) {
	(void)snprintf(last_words, sizeof(last_words),
			"died; to see it in words, and smaller: test_sim --seed %llu "
			"--store %s\n",
			(unsigned long long)seed, sim_store_name(store));
}

static void tell_death(int number) {
	size_t len = 0;
	while (last_words[len]) {
		len++;
	}
	(void)!write(STDERR_FILENO, last_words, len);
	(void)signal(number, SIG_DFL);
	(void)raise(number);
}

static bool run_seed(uint64_t seed, enum sim_store store,
		const struct sim_options *options) {
	struct sim_plan *plan = malloc(sizeof(*plan));
	if (!plan) {
		abort();
	}
	sim_plan_make(plan, seed, store);
	prepare_death(seed, store);
	const char *rule = NULL;
	char text[400];
	bool good = sim_run(plan, options, &rule, text, sizeof(text));
	if (!good) {
		FAIL("seed %llu on %s: %s: %s", (unsigned long long)seed,
				sim_store_name(store), rule, text);
		explain(plan, options->mutant, rule);
	}
	free(plan);
	return good;
}

static void run_seeds(enum sim_store store) {
	struct sim_counts sum = { 0 };
	struct sim_options options = { .directory = directory.path, .sum = &sum };
	uint64_t count = read_number("SIM_SEEDS", SEEDS_DEFAULT);
	uint64_t first = read_number("SIM_FIRST", 1);
	uint64_t seed = first;
	while (seed < first + count && run_seed(seed, store, &options)) {
		seed++;
	}
	tell_counts(sim_store_name(store), seed - first, &sum);
}

static void run_memory(void) {
	run_seeds(SIM_MEMORY);
}

static void run_sqlite(void) {
	run_seeds(SIM_SQLITE);
}

static void run_postgres(void) {
	run_seeds(SIM_POSTGRES);
}

static char *history_of(uint64_t seed, enum sim_store store) {
	char *text = NULL;
	size_t len = 0;
	FILE *file = open_memstream(&text, &len);
	if (!file) {
		abort();
	}
	struct sim_options options = { .directory = directory.path,
		.history = file,
		.dump = file,
		.words = file };
	CHECK(run_seed(seed, store, &options));
	(void)fclose(file);
	return text;
}

static void compare_histories(uint64_t seed, enum sim_store store) {
	char *first = history_of(seed, store);
	char *second = history_of(seed, store);
	CHECK(strcmp(first, second) == 0);
	free(first);
	free(second);
}

static void same_history(void) {
	for (uint64_t seed = 1; seed <= 20; seed++) {
		compare_histories(seed, seed % 2 ? SIM_MEMORY : SIM_SQLITE);
	}
}

static void same_history_postgres(void) {
	for (uint64_t seed = 1; seed <= 3; seed++) {
		compare_histories(seed, SIM_POSTGRES);
	}
}

/* A bug of the store is found soon, and its plan becomes short. `broken` is
   the rule that tells, NULL: any. */
static void find_mutant(const char *mutant, const char *broken,
		enum sim_store store, size_t most) {
	struct sim_options options = { .directory = directory.path,
		.mutant = mutant };
	struct sim_plan *plan = malloc(sizeof(*plan));
	if (!plan) {
		abort();
	}
	char rule[SIM_RULE_LEN_MAX + 1] = "";
	char text[400];
	bool deadly = strcmp(mutant, "survives") == 0;
	bool good = true;
	uint64_t seed = 0;
	while (good && seed < 5000) {
		sim_plan_make(plan, ++seed, store);
		/* Here most seeds are good, and going apart takes its time. */
		const char *found = "";
		good = deadly ? sim_run_apart(plan, &options, rule, text, sizeof(text))
					  : sim_run(plan, &options, &found, text, sizeof(text));
		if (!deadly) {
			(void)snprintf(rule, sizeof(rule), "%s", found);
		}
	}
	if (CHECK(!good)) {
		char found[SIM_RULE_LEN_MAX + 1];
		(void)snprintf(found, sizeof(found), "%s", broken ? broken : rule);
		CHECK_STR(rule, found);
		size_t before = plan->op_count;
		(void)sim_shrink(plan, &options, rule);
		(void)printf("# %s: seed %llu, %zu operations shrunk to %zu\n", mutant,
				(unsigned long long)seed, before, plan->op_count);
		CHECK(plan->op_count <= most);
		/* It is still the same failure. */
		CHECK(!sim_run_apart(plan, &options, rule, text, sizeof(text)));
		CHECK_STR(rule, found);
	}
	free(plan);
}

static void find_lost_message(void) {
	/* It is missed, or the number it made up is given to another. */
	find_mutant("lost-message", NULL, SIM_MEMORY, 24);
}

static void find_accepted_twice(void) {
	find_mutant("accepted-twice", "accepted-twice", SIM_MEMORY, 4);
}

static void find_fence_backwards(void) {
	find_mutant("fence-backwards", "fence-backwards", SIM_MEMORY, 8);
}

static void find_effects(void) {
	find_mutant("effect-count", "effect-count", SIM_SQLITE, 8);
}

static void find_death(void) {
	find_mutant("survives", "survives", SIM_MEMORY, 6);
}

static void find_stale_lock(void) {
	find_mutant("stale-lock", "stale-lock", SIM_MEMORY, 14);
}

static void find_pause_cached(void) {
	find_mutant("pause-cached", "not-claimed", SIM_MEMORY, 10);
}

static void find_stale_settle(void) {
	find_mutant("stale-settle", NULL, SIM_MEMORY, 14);
}

static void sweep_all(enum sim_blow blow, int code, bool halfway,
		struct sim_counts *sum) {
	unsigned sites = 0;
	/* What handlers say differs from seed to seed. */
	unsigned count = (unsigned)read_number("SIM_SWEEPS", 1);
	for (unsigned i = 0; i < 4 * count; i++) {
		struct sim_sweep sweep = {
			.seed = 1 + i / 4,
			.store = i % 2 ? SIM_SQLITE : SIM_MEMORY,
			.exclusive = i / 2 % 2,
			.halfway = halfway,
			.blow = blow,
			.code = code,
		};
		if (count == 1 && sweep.store == SIM_SQLITE && blow != SIM_BLOW_PAUSE) {
			continue; /* that is for those who have more time */
		}
		struct sim_swept swept = { 0 };
		if (!sim_sweep(&sweep, directory.path, &swept)) {
			FAIL("%s, %s", sim_store_name(sweep.store),
					sweep.exclusive ? "exclusive" : "parallel");
		}
		sites += swept.runs;
		sim_counts_add(sum, &swept.sum);
	}
	(void)printf("# struck at %u sites: %llu leases lost, %llu results and "
				 "%llu claims refused, %llu times two nodes believed they held "
				 "the lock\n",
			sites, (unsigned long long)sum->takeovers,
			(unsigned long long)sum->fenced,
			(unsigned long long)sum->late_claims,
			(unsigned long long)sum->rivals);
	CHECK(sites > 100);
}

static void sweep_pauses(void) {
	struct sim_counts sum = { 0 };
	sweep_all(SIM_BLOW_PAUSE, POSTERN_OK, false, &sum);
	/* It is about nothing unless all of these happen. */
	CHECK(sum.takeovers > 0);
	CHECK(sum.fenced > 0);
	CHECK(sum.late_claims > 0);
	CHECK(sum.rivals > 0);
}

static void sweep_overtaken(void) {
	struct sim_counts sum = { 0 };
	sweep_all(SIM_BLOW_PAUSE, POSTERN_OK, true, &sum);
	CHECK(sum.takeovers > 0);
	CHECK(sum.fenced > 0);
}

static void sweep_crashes(void) {
	struct sim_counts sum = { 0 };
	sweep_all(SIM_BLOW_CRASH, POSTERN_OK, false, &sum);
	CHECK(sum.takeovers > 0);
}

static void sweep_unavailable(void) {
	struct sim_counts sum = { 0 };
	sweep_all(SIM_BLOW_ERROR, POSTERN_E_UNAVAILABLE, false, &sum);
}

static void sweep_refused(void) {
	struct sim_counts sum = { 0 };
	sweep_all(SIM_BLOW_ERROR, POSTERN_E_NOMEM, false, &sum);
}

static const struct tap_case cases[] = {
	{ "no seed breaks a rule on memory", run_memory },
	{ "no seed breaks a rule on sqlite", run_sqlite },
	{ "one seed has one history", same_history },
	{ "a node paused anywhere while another takes over: one completion and "
	  "one effect each",
			sweep_pauses },
	{ "a node paused anywhere while another has leased its work is refused",
			sweep_overtaken },
	{ "a node killed anywhere loses nothing", sweep_crashes },
	{ "a store that is lost at any call, before or after, loses nothing",
			sweep_unavailable },
	{ "a call of the store that is refused anywhere loses nothing",
			sweep_refused },
	{ "a store that acknowledges what it did not keep is found",
			find_lost_message },
	{ "a store that accepts a duplicate is found", find_accepted_twice },
	{ "a store whose fence goes back is found", find_fence_backwards },
	{ "a store that keeps two effects of one run is found", find_effects },
	{ "a store that takes a late result is found", find_stale_settle },
	{ "a store that leases to a former owner of the lock is found",
			find_stale_lock },
	{ "a node that reads only at its start what is paused is found",
			find_pause_cached },
	{ "a process that dies is found too", find_death },
};

/* Where every step is a round trip, and the one that crashes, say, is the
   same in all stores: what only this one could do otherwise. */
static const struct tap_case cases_postgres[] = {
	{ "no seed breaks a rule on postgres", run_postgres },
	{ "one seed has one history on postgres", same_history_postgres },
};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

struct arguments {
	uint64_t seed;
	uint64_t seeds;
	enum sim_store store;
	const char *mutant;
	const char *history;
};

/* Seeds with their histories and dumps, one after the other in one file. */
static int write_histories(const struct arguments *arguments) {
	struct sim_counts sum = { 0 };
	FILE *file = fopen(arguments->history, "w");
	if (!file) {
		perror(arguments->history);
		return 2;
	}
	struct sim_options options = {
		.directory = directory.path,
		.history = file,
		.dump = file,
		.mutant = arguments->mutant,
		.sum = &sum,
	};
	bool good = true;
	for (uint64_t i = 0; good && i < arguments->seeds; i++) {
		good = run_seed(arguments->seed + i, arguments->store, &options);
	}
	tell_counts(sim_store_name(arguments->store), arguments->seeds, &sum);
	return fclose(file) == 0 && good ? 0 : 1;
}

static int tell_seed(const struct arguments *arguments) {
	struct sim_options options = {
		.directory = directory.path,
		.words = stdout,
		.mutant = arguments->mutant,
	};
	struct sim_plan *plan = malloc(sizeof(*plan));
	if (!plan) {
		abort();
	}
	sim_plan_make(plan, arguments->seed, arguments->store);
	char rule[SIM_RULE_LEN_MAX + 1];
	char text[400];
	bool good = sim_run_apart(plan, &options, rule, text, sizeof(text));
	(void)printf("seed %llu: %s %s\n", (unsigned long long)arguments->seed,
			good ? "no rule is broken" : rule, good ? "" : text);
	if (!good) {
		explain(plan, arguments->mutant, rule);
	}
	free(plan);
	return good ? 0 : 1;
}

static enum sim_store find_store(const char *name) {
	enum sim_store store = SIM_POSTGRES;
	while (store != SIM_MEMORY && strcmp(name, sim_store_name(store)) != 0) {
		store--;
	}
	return store;
}

static bool parse(int argc, char **argv, struct arguments *out) {
	bool any = false;
	for (int i = 1; i + 1 < argc; i++) {
		const char *value = argv[i + 1];
		if (strcmp(argv[i], "--seed") == 0) {
			out->seed = strtoull(value, NULL, 10);
		} else if (strcmp(argv[i], "--seeds") == 0) {
			out->seeds = strtoull(value, NULL, 10);
		} else if (strcmp(argv[i], "--store") == 0) {
			out->store = find_store(value);
		} else if (strcmp(argv[i], "--mutant") == 0) {
			out->mutant = value;
		} else if (strcmp(argv[i], "--history") == 0) {
			out->history = value;
		} else {
			continue;
		}
		any = true;
		i++;
	}
	return any;
}

int main(int argc, char **argv) {
	struct arguments arguments = { .seed = 1, .seeds = 1 };
	/* The files are thrown away: no disk needs to turn for them. */
	if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0) {
		(void)setenv("TMPDIR", "/dev/shm", 1);
	}
	(void)signal(SIGABRT, tell_death);
	(void)signal(SIGSEGV, tell_death);
	(void)signal(SIGTERM, tell_death); /* it took too long */
	temp_dir_create(&directory);
	int status;
	bool server = getenv("POSTERN_TEST_POSTGRES") != NULL;
	if (!parse(argc, argv, &arguments)) {
		status = server ? tap_main(argc, argv, cases_postgres,
								  COUNT(cases_postgres))
						: tap_main(argc, argv, cases, COUNT(cases));
	} else if (arguments.history) {
		status = write_histories(&arguments);
	} else {
		status = tell_seed(&arguments);
	}
	temp_dir_destroy(&directory);
	return status;
}
