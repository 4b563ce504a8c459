#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Installs into a private directory with `make install` and builds a program
# against that as a user would: with pkg-config, from outside the tree, once
# with the shared library and once as a static program. The latter is without
# PostgreSQL: Debian has no static versions of all libraries that libpq needs.
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

install_static() {
	meson setup "$place/build-static" "$root" --prefix=/usr --libdir=lib \
		-Dpostgres=disabled -Dserver=disabled -Dtests=false &&
		DESTDIR="$place/static-image" meson install -C "$place/build-static"
}

everything_is_there() {
	for file in include/postern/version.h lib/libpostern.a \
		lib/libpostern.so lib/libpostern.so.0 lib/pkgconfig/postern.pc \
		lib/systemd/system/postern.service \
		lib/systemd/system/postern.socket \
		share/postern/clients/python/postern.py \
		share/postern/clients/node/postern.mjs \
		share/postern/clients/receiver/postgres.sql; do
		[ -e "$place/image/usr/$file" ] ||
			{ echo "missing: $file"; return 1; }
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

# build SOURCE shared|static: makes $place/shared or $place/static
build() {
	# The prefix in postern.pc does not include DESTDIR.
	image=$place/image
	flags=
	if [ "$2" = static ]; then
		image=$place/static-image
		flags=--static
	fi
	config="env PKG_CONFIG_PATH=$image/usr/lib/pkgconfig pkg-config"
	config="$config --define-variable=prefix=$image/usr"
	# Flags must be split into words. shellcheck disable=SC2046
	gcc -std=c17 -Wall -Wextra -Werror "$1" -o "$place/$2" \
		${flags:+-static} $($config $flags --cflags --libs postern)
}

# The program prints the installed version.
prints_version() {
	[ "$("$place/$1")" = "$(pkg-config --modversion postern)" ]
}

needs_nothing() {
	[ -x "$place/$1" ] && ! readelf -d "$place/$1" | grep NEEDED
}

# The example works on a new store.
example_works() {
	build "$root/examples/embed.c" "$1" &&
		"$root/examples/check.py" "$place/$1" "$root/examples/embed.c"
}

export LC_ALL=C
# What is made here runs for a moment; how it is optimized is tested elsewhere.
export CFLAGS='-O0 -g0 -U_FORTIFY_SOURCE'
export PKG_CONFIG_PATH="$place/image/usr/lib/pkgconfig"
export LD_LIBRARY_PATH="$place/image/usr/lib"
check 'make install succeeds' install_all
check 'make install succeeds without PostgreSQL' install_static
check 'libraries, headers and postern.pc are installed' everything_is_there
check 'no installed file names the build directory' nothing_names_the_build
for kind in shared static; do
	check "a program builds: $kind" build "$place/program.c" $kind
	check "the program prints the version: $kind" prints_version $kind
done
check 'the static program needs no library' needs_nothing static
for kind in shared static; do
	check "the example works: $kind" example_works $kind
done
echo "1..$count"
exit $failed
