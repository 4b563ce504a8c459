#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every C file is formatted by clang-format; `make format` does that. The
# second case shows that the first can fail.
set -eu
root=$1
cd "$root"
failed=0

if tools/c-files | xargs clang-format --dry-run --Werror; then
	echo 'ok 1 - every C file is formatted'
else
	echo 'not ok 1 - every C file is formatted'
	echo 'run: make format' >&2
	failed=1
fi

if echo 'int  a;' | clang-format --dry-run --Werror \
	--assume-filename="$root/src/a.c" 2>/dev/null; then
	echo 'not ok 2 - a file that is not formatted is found'
	failed=1
else
	echo 'ok 2 - a file that is not formatted is found'
fi
echo '1..2'
exit $failed
