# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Sourced: what the suites say about themselves in their first lines.

# suite_says NAME WORD DEFAULT: the value of "# WORD: value" in a suite.
suite_says() {
	local file=$VV_TOP/tests/suites/$1.sh value
	[[ -f $file ]] || die "no suite $1 (there are: $(suite_names | xargs))"
	value=$(sed -n "1,15s/^# $2: *//p" "$file")
	echo "${value:-$3}"
}

suite_seconds() {
	suite_says "$1" Seconds 120
}

# suite_names: all suites, in the order they are run in.
suite_names() {
	local file
	for file in "$VV_TOP"/tests/suites/*.sh; do
		case $(basename "$file" .sh) in
		lib | l2 | kernel-tests | demo | faults) ;;
		*) basename "$file" .sh ;;
		esac
	done
}
