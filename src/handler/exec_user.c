/* SPDX-License-Identifier: MIT */
/*
 * The user that runs a program. Everything is looked up when the handler is
 * created: between fork and exec nothing may read the files or ask the services
 * that know users.
 */

#include <errno.h>
#include <grp.h>
#include <postern/error.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fail.h"
#include "handler/kinds.h"
#include "handler/process.h"

/* As many as Linux supports are never used. */
#define GROUP_COUNT_MAX 1024
#define ENTRY_SIZE ((size_t)64 * 1024)

static int add_groups(const struct passwd *entry, struct postern__arena *arena,
		struct postern__process_user *user, struct postern_error *error) {
	gid_t groups[GROUP_COUNT_MAX];
	int count = GROUP_COUNT_MAX;
	if (getgrouplist(entry->pw_name, entry->pw_gid, groups, &count) < 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"user: '%.60s' has more than %d groups", entry->pw_name,
				GROUP_COUNT_MAX);
	}
	user->group_count = (size_t)count;
	user->groups = postern__arena_copy(arena, groups,
			user->group_count * sizeof *groups);
	return user->groups
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

int postern__exec_user_find(const char *name, struct postern__arena *arena,
		const struct postern__process_user **out, const char **home_out,
		struct postern_error *error) {
	struct passwd entry;
	struct passwd *found = NULL;
	char *room = postern__arena_alloc(arena, ENTRY_SIZE);
	struct postern__process_user *user =
			postern__arena_array(arena, 1, sizeof *user);
	if (!room || !user) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	int number = getpwnam_r(name, &entry, room, ENTRY_SIZE, &found);
	if (!found) {
		return postern__fail(error, POSTERN_E_INVALID,
				"user: there is no user '%.60s'%s%s", name, number ? ": " : "",
				number ? strerror(number) : "");
	}
	*home_out = entry.pw_dir;
	*out = NULL;
	if (entry.pw_uid == geteuid()) {
		return POSTERN_OK;
	}
	if (geteuid() != 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"user: only a server that runs as root can run a program as "
				"'%.60s'",
				name);
	}
	user->uid = entry.pw_uid;
	user->gid = entry.pw_gid;
	int r = add_groups(&entry, arena, user, error);
	if (r == POSTERN_OK) {
		*out = user;
	}
	return r;
}
