#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Installs into a directory of its own with `make install` and builds a
# program against that as a stranger would: with pkg-config, from outside the
# tree, once with the shared library and once with the static one.
set -eu
root=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
count=0
failed=0

# check NAME COMMAND...: runs the command; its output is shown if it fails.
check() {
	name=$1
	shift
	count=$((count + 1))
	if "$@" >"$place/log" 2>&1; then
		echo "ok $count - $name"
	else
		echo "not ok $count - $name"
		echo "failed: $name" >&2
		cat "$place/log" >&2
		failed=1
	fi
}

install_all() {
	make -C "$root" install DESTDIR="$place/image" PREFIX=/usr \
		BUILD_INSTALL="$place/build"
}

everything_is_there() {
	cd "$place/image/usr"
	for file in include/postern/version.h lib/libpostern.a \
		lib/libpostern.so lib/libpostern.so.0 lib/pkgconfig/postern.pc; do
		[ -e "$file" ] || { echo "missing: $file"; return 1; }
	done
}

nothing_names_the_build() {
	! grep -r -l -F -e "$place" -e "$root" "$place/image/usr/include" \
		"$place/image/usr/lib/pkgconfig"
}

cat >"$place/program.c" <<'END'
#include <postern/error.h>
#include <postern/version.h>
#include <stdio.h>
#include <string.h>

int main(void) {
	puts(postern_version());
	return strcmp(postern_version(), POSTERN_VERSION) != 0 ||
			strcmp(postern_error_text(POSTERN_OK), "") == 0;
}
END

# build shared|static: makes $place/shared or $place/static
build() {
	# The prefix in the file is where it would be without DESTDIR.
	config="pkg-config --define-variable=prefix=$place/image/usr"
	flags=
	[ "$1" = shared ] || flags=--static
	export PKG_CONFIG_PATH="$place/image/usr/lib/pkgconfig"
	# Flags are lists of words.
	# shellcheck disable=SC2046
	gcc -std=c17 -Wall -Wextra -Werror "$place/program.c" -o "$place/$1" \
		${flags:+-static} $($config $flags --cflags --libs postern)
}

runs_shared() {
	LD_LIBRARY_PATH="$place/image/usr/lib" "$place/shared"
}

static_needs_nothing() {
	! readelf -d "$place/static" | grep NEEDED
}

export LC_ALL=C
cd "$place"
check 'make install succeeds' install_all
check 'libraries, headers and postern.pc are installed' everything_is_there
check 'what is installed does not name the build' nothing_names_the_build
check 'a program builds against the shared library' build shared
check 'it runs with the shared library' runs_shared
check 'a program builds against the static library' build static
check 'it runs with nothing else' "$place/static"
check 'it is linked with nothing else' static_needs_nothing
echo "1..$count"
exit $failed
