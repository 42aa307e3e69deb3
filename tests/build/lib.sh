# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# KTAP output for the tests of the build. Sourced; `finish` ends a test.

# shellcheck disable=SC2034 # for the test that sources this
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
count=0
failed=0

# result STATUS DESC: one test case; what went wrong is in $scratch/why.
result() {
	count=$((count + 1))
	if (($1 == 0)); then
		echo "ok $count $2"
	else
		failed=$((failed + 1))
		[[ ! -f $scratch/why ]] || sed 's/^/# /' "$scratch/why"
		echo "not ok $count $2"
	fi
	rm -f "$scratch/why"
}

# skip DESC WHY: a case that cannot run here.
skip() {
	count=$((count + 1))
	echo "ok $count $1 # SKIP $2"
}

finish() {
	echo "1..$count"
	exit $((failed > 0))
}

echo "KTAP version 1"
