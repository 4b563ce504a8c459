/* SPDX-License-Identifier: MIT */
/*
 * Many seeds, each with one history.
 *
 *   test_sim                                  the cases, with TAP
 *   SIM_SEEDS=100000 test_sim                 … with that many seeds each
 *   test_sim --seed 7 --store sqlite          one seed, with a trace, and
 *                                             shrunk if it fails
 *   test_sim --history FILE --seeds 100 --store memory
 *                                             for the checker
 *
 * With a server (tests/support/postgres.py) there are other cases, on
 * PostgreSQL alone; the name of a store is then also "postgres".
 *
 * The seeds start at SIM_FIRST (1). SIM_SWEEPS (1) is the number of seeds
 * that have a fault at every site. With SIM_BLIND set the simulation reports
 * no broken rules: that is left to the checker.
 */

#include "tap.h"

#include "sim/shrink.h"
#include "sim/sweep.h"
#include "support/temp_dir.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define SEEDS_DEFAULT 250

static struct temp_dir directory;

static uint64_t read_number(const char *name, uint64_t fallback) {
	const char *text = getenv(name);
	return text && text[0] ? strtoull(text, NULL, 10) : fallback;
}

/* Print a failure with the smallest plan that shows it. */
static void print_shrunk(const struct sim_plan *plan, const char *mutant,
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
	options.trace = stderr;
	(void)sim_run_in_child(small, &options, again, text, sizeof(text));
	(void)fprintf(stderr, "to repeat: test_sim --seed %llu --store %s%s%s\n",
			(unsigned long long)plan->seed, sim_store_name(plan->store),
			mutant ? " --mutant " : "", mutant ? mutant : "");
	free(small);
}

static void print_counts(const char *store, uint64_t seeds,
		const struct sim_counts *sum) {
	(void)printf("# %s: %llu seeds, %llu operations, %llu messages sent, "
				 "%llu runs, %llu store errors, %llu crashes, %llu pauses, "
				 "%llu leases lost, %llu results refused, %llu aliases made, "
				 "%llu messages for closed channels, "
				 "%llu generations replaced, %llu of them by a busy node, "
				 "%llu starts in %llu calm times\n",
			store, (unsigned long long)seeds, (unsigned long long)sum->ops,
			(unsigned long long)sum->messages, (unsigned long long)sum->runs,
			(unsigned long long)sum->errors, (unsigned long long)sum->crashes,
			(unsigned long long)sum->pauses,
			(unsigned long long)sum->recoveries,
			(unsigned long long)sum->fenced, (unsigned long long)sum->aliases,
			(unsigned long long)sum->refused, (unsigned long long)sum->replaced,
			(unsigned long long)sum->replaced_busy,
			(unsigned long long)sum->calm_starts,
			(unsigned long long)sum->calms);
}

/* The seed of the current run, printed if the process dies. */
static char death_report[160];

static void set_death_report(uint64_t seed, enum sim_store store) {
	(void)snprintf(death_report, sizeof(death_report),
			"died; for a trace of the shrunk plan: test_sim --seed %llu "
			"--store %s\n",
			(unsigned long long)seed, sim_store_name(store));
}

static void print_death_report(int number) {
	size_t len = 0;
	while (death_report[len]) {
		len++;
	}
	(void)!write(STDERR_FILENO, death_report, len);
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
	set_death_report(seed, store);
	const char *rule = NULL;
	char text[400];
	bool good = sim_run(plan, options, &rule, text, sizeof(text));
	if (!good) {
		FAIL("seed %llu on %s: %s: %s", (unsigned long long)seed,
				sim_store_name(store), rule, text);
		print_shrunk(plan, options->mutant, rule);
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
	print_counts(sim_store_name(store), seed - first, &sum);
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
		.trace = file };
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

/* A bug of the store is found within some seeds, and its plan becomes short.
   `broken` is the rule that it breaks, NULL: any. */
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
		/* Most seeds break no rule, and a child process takes longer. */
		const char *found = "";
		good = deadly ? sim_run_in_child(plan, &options, rule, text,
								sizeof(text))
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
		/* The shrunk plan breaks the same rule. */
		CHECK(!sim_run_in_child(plan, &options, rule, text, sizeof(text)));
		CHECK_STR(rule, found);
	}
	free(plan);
}

static void find_lost_message(void) {
	/* The message is missing, or its invented number is used for another. */
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
	/* In a calm time, or at the end. */
	find_mutant("pause-cached", NULL, SIM_MEMORY, 10);
}

static void find_stale_settle(void) {
	find_mutant("stale-settle", NULL, SIM_MEMORY, 30);
}

static void sweep_all(enum sim_fault fault, int code, bool halfway,
		struct sim_counts *sum) {
	unsigned sites = 0;
	/* The outcomes of handlers differ from seed to seed. */
	unsigned count = (unsigned)read_number("SIM_SWEEPS", 1);
	for (unsigned i = 0; i < 4 * count; i++) {
		struct sim_sweep sweep = {
			.seed = 1 + i / 4,
			.store = i % 2 ? SIM_SQLITE : SIM_MEMORY,
			.exclusive = i / 2 % 2,
			.halfway = halfway,
			.fault = fault,
			.code = code,
		};
		if (count == 1 && sweep.store == SIM_SQLITE &&
				fault != SIM_FAULT_PAUSE) {
			continue; /* only with SIM_SWEEPS above 1 */
		}
		struct sim_sweep_result result = { 0 };
		if (!sim_sweep(&sweep, directory.path, &result)) {
			FAIL("%s, %s", sim_store_name(sweep.store),
					sweep.exclusive ? "exclusive" : "parallel");
		}
		sites += result.runs;
		sim_counts_add(sum, &result.sum);
	}
	(void)printf("# faults at %u sites: %llu leases lost, %llu results and "
				 "%llu claims refused, %llu times two nodes believed they held "
				 "the lock\n",
			sites, (unsigned long long)sum->recoveries,
			(unsigned long long)sum->fenced,
			(unsigned long long)sum->late_claims,
			(unsigned long long)sum->double_owners);
	CHECK(sites > 100);
}

static void sweep_pauses(void) {
	struct sim_counts sum = { 0 };
	sweep_all(SIM_FAULT_PAUSE, POSTERN_OK, false, &sum);
	/* The case tests nothing unless all of these happen. */
	CHECK(sum.recoveries > 0);
	CHECK(sum.fenced > 0);
	CHECK(sum.late_claims > 0);
	CHECK(sum.double_owners > 0);
}

static void sweep_overtaken(void) {
	struct sim_counts sum = { 0 };
	sweep_all(SIM_FAULT_PAUSE, POSTERN_OK, true, &sum);
	CHECK(sum.recoveries > 0);
	CHECK(sum.fenced > 0);
}

static void sweep_crashes(void) {
	struct sim_counts sum = { 0 };
	sweep_all(SIM_FAULT_CRASH, POSTERN_OK, false, &sum);
	CHECK(sum.recoveries > 0);
}

static void sweep_unavailable(void) {
	struct sim_counts sum = { 0 };
	sweep_all(SIM_FAULT_ERROR, POSTERN_E_UNAVAILABLE, false, &sum);
}

static void sweep_refused(void) {
	struct sim_counts sum = { 0 };
	sweep_all(SIM_FAULT_ERROR, POSTERN_E_NOMEM, false, &sum);
}

static const struct tap_case cases[] = {
	{ "no seed breaks a rule on memory", run_memory },
	{ "no seed breaks a rule on sqlite", run_sqlite },
	{ "one seed has one history", same_history },
	{ "a node paused anywhere while another recovers: one completion and "
	  "one effect each",
			sweep_pauses },
	{ "a node paused anywhere is refused if another has leased its deliveries",
			sweep_overtaken },
	{ "a node killed anywhere loses nothing", sweep_crashes },
	{ "a store unavailable before or after any call loses nothing",
			sweep_unavailable },
	{ "a store call that is refused anywhere loses nothing", sweep_refused },
	{ "a store that acknowledges a message without storing it is detected",
			find_lost_message },
	{ "a store that accepts a duplicate as new is detected",
			find_accepted_twice },
	{ "a store whose fence goes back is detected", find_fence_backwards },
	{ "a store that keeps two effects of one run is detected", find_effects },
	{ "a store that accepts a stale settlement is detected",
			find_stale_settle },
	{ "a store that leases to a former owner of the lock is detected",
			find_stale_lock },
	{ "a node that reads pauses only at its start is detected",
			find_pause_cached },
	{ "a process that dies is detected", find_death },
};

/* Only what can differ in PostgreSQL, because each step is a round trip: the
   other cases would be the same in every store. */
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

/* Write the histories and dumps of several seeds into one file. */
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
	print_counts(sim_store_name(arguments->store), arguments->seeds, &sum);
	return fclose(file) == 0 && good ? 0 : 1;
}

static int run_one_seed(const struct arguments *arguments) {
	struct sim_options options = {
		.directory = directory.path,
		.trace = stdout,
		.mutant = arguments->mutant,
	};
	struct sim_plan *plan = malloc(sizeof(*plan));
	if (!plan) {
		abort();
	}
	sim_plan_make(plan, arguments->seed, arguments->store);
	char rule[SIM_RULE_LEN_MAX + 1];
	char text[400];
	bool good = sim_run_in_child(plan, &options, rule, text, sizeof(text));
	(void)printf("seed %llu: %s %s\n", (unsigned long long)arguments->seed,
			good ? "no rule is broken" : rule, good ? "" : text);
	if (!good) {
		print_shrunk(plan, arguments->mutant, rule);
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

static bool parse_arguments(int argc, char **argv, struct arguments *out) {
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
	/* The files are temporary: they need not be on a disk. */
	if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0) {
		(void)setenv("TMPDIR", "/dev/shm", 1);
	}
	(void)signal(SIGABRT, print_death_report);
	(void)signal(SIGSEGV, print_death_report);
	(void)signal(SIGTERM, print_death_report); /* the test timed out */
	temp_dir_create(&directory);
	int status;
	bool server = getenv("POSTERN_TEST_POSTGRES") != NULL;
	if (!parse_arguments(argc, argv, &arguments)) {
		status = server ? tap_main(argc, argv, cases_postgres,
								  COUNT(cases_postgres))
						: tap_main(argc, argv, cases, COUNT(cases));
	} else if (arguments.history) {
		status = write_histories(&arguments);
	} else {
		status = run_one_seed(&arguments);
	}
	temp_dir_destroy(&directory);
	return status;
}
