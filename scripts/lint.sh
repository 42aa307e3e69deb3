#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# lint.sh KDIR [OUT]: all static checks of the source, with the tools and the
# prepared kernel tree KDIR of the toolchain root. OUT (default: a scratch folder)
# gets build output, one log a check, and the rustdoc pages in OUT/doc.
# Every check runs; the exit status says whether all passed.
# LINT="NAME..." runs only those.
set -uo pipefail
export LC_ALL=C.UTF-8

kdir=$(realpath "${1:?usage: lint.sh KDIR [OUT]}") || exit 2
top=$(cd "$(dirname "$0")/.." && pwd)
scratch=
[[ -n ${2:-} ]] || scratch=$(mktemp -d)
trap '[[ -z $scratch ]] || rm -rf "$scratch"' EXIT
mkdir -p "${2:-$scratch}"
out=$(realpath "${2:-$scratch}")
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$out/cargo}
cd "$top" || exit 2
failed=()

# check NAME COMMAND...: one line, and the end of the log where it fails. Status 77
# says that the check cannot run here.
check() {
	local name=$1 log=$out/$1.log start=$SECONDS status=0 word
	shift
	[[ -z ${LINT:-} || " $LINT " == *" $name "* ]] || return 0
	"$@" >"$log" 2>&1 || status=$?
	case $status in
	0) word=ok ;;
	77) word=skipped ;;
	*) word=FAILED failed+=("$name") ;;
	esac
	printf '%-8s%-12s %3ds\n' $word "$name" $((SECONDS - start))
	[[ $word == ok ]] || tail -n 40 "$log" | sed 's/^/        /'
	[[ $word != FAILED || -n $scratch ]] || echo "        full log: $log"
}

# sources FIND-EXPRESSION...: files of the repository, without what builds leave.
sources() {
	find . \( -name .git -o -name target -o -name '*.mod.c' -o -name '.*.cmd' -o -name '*generated*' -o -name 'layout_check.*' \) -prune \
		-o -type f \( "$@" \) -print | sort
}

# nonempty FILES: a check without anything to check is a mistake in this script.
nonempty() {
	[[ -n $1 ]] && return
	echo "nothing found to check"
	return 1
}

rustfmt_kernel() {
	local files
	files=$(find rust -name '*.rs' ! -name '*generated*' ! -name 'layout_check.rs')
	nonempty "$files" || return
	# shellcheck disable=SC2086 # one argument a file
	rustfmt --check --color never --edition 2021 --config-path "$kdir/.rustfmt.toml" $files
}

cargo_fmt() {
	cargo fmt --all --check -- --color never
}

cargo_clippy() {
	cargo clippy --locked --workspace --all-targets -- -D warnings
}

cargo_doc() {
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items
}

# kernel ARG...: builds the module apart from any other build.
kernel() {
	local cc release
	cc=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\{0,1\}\([^ "]*\) .*/\1/p' "$kdir/include/config/auto.conf")
	release=$(<"$kdir/include/config/kernel.release")
	rm -rf "$out/module"
	mkdir "$out/module"
	make -C "$kdir" M="$top" MO="$out/module" CC="${CC:-$cc}" KERNELRELEASE="$release" "$@" modules
}

# without_warning COMMAND...: a warning is a failure too.
without_warning() {
	local text status=0
	text=$("$@" 2>&1) || status=1
	echo "$text"
	[[ -n $text ]] || status=1
	! grep -qiE '(^|[^a-z-])(warning|error)\b' <<<"$text" || status=1
	return $status
}

# clippy and rustdoc see the crate with exactly the flags of the kernel build.
kernel_build() {
	LINT_DOC=$out/doc without_warning kernel CLIPPY=1 W=1 RUSTC_OR_CLIPPY="$top/scripts/lint-rustc.sh" || return
	[[ -f $out/doc/vhost_vsock_rs_main/index.html ]]
}

# The kernel says itself whether the sparse that is there can be used.
sparse() {
	if [[ $("$kdir/scripts/checker-valid.sh" sparse 2>/dev/null) != 1 ]]; then
		echo "no sparse that this kernel can use"
		return 77
	fi
	without_warning kernel C=2
}

shell() {
	local files
	files=$({ sources -name '*.sh'; sources ! -name '*.*' -exec grep -qE '^#!.*\b(ba|da)?sh\b|^# shellcheck shell=' {} \;; } | sort -u)
	nonempty "$files" || return
	# SC2317 takes functions that are called by way of others to be unreachable.
	# shellcheck disable=SC2086 # one argument a file
	shellcheck --color=never -x -P SCRIPTDIR -e SC2317 $files
}

checkpatch() {
	local file files status=0 ignore
	files=$(find rust -name '*.[ch]' ! -name '*.mod.c' ! -name 'layout_check.c')
	nonempty "$files" || return
	for file in $files; do
		# The shape of TRACE_EVENT breaks these two rules everywhere in the kernel.
		ignore=
		! grep -q trace/define_trace.h "$file" || ignore=--ignore=OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT
		perl "$kdir/scripts/checkpatch.pl" --no-tree --strict --no-summary --terse ${ignore:+"$ignore"} -f "$file" || status=1
	done
	return $status
}

# The rule that the layers stand on: these two say no "unsafe" but in comments.
no_unsafe() {
	local files
	files=$(find rust/driver rust/logic -name '*.rs' && ls rust/driver.rs 2>/dev/null)
	nonempty "$files" || return
	# shellcheck disable=SC2086 # one argument a file
	! sed -s 's,//.*,,' $files | grep -nE '\bunsafe\b' || { grep -nE '\bunsafe\b' $files; return 1; }
}

# The list of packages is data, and part of a key: see scripts/bed/root.
spdx() {
	local lost
	lost=$(sources \( -name '*.rs' -o -name '*.[chS]' -o -name '*.sh' -o -name '*.py' -o -name '*.rst' -o -name '*.toml' -o -name '*.conf' \
		-o -name 'Makefile*' -o -name 'Kbuild*' -o -path './scripts/*' -o -path './tests/*' -o -path './.ci/*' \) ! -name Cargo.lock ! -path ./scripts/bed/packages |
		while read -r file; do
			head -n 3 "$file" | grep -q 'SPDX-License-Identifier: GPL-2.0' || echo "$file"
		done)
	[[ -z $lost ]] || { printf 'no SPDX line: %s\n' "$lost"; return 1; }
}

python() {
	local file
	sources -name '*.py' | while read -r file; do
		python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$file" || return 1
	done
}

for name in ${LINT:-}; do
	grep -q "^check $name " scripts/lint.sh || { echo "lint: there is no check $name (there are: $(sed -n 's/^check \([a-z-]*\) .*/\1/p' scripts/lint.sh | xargs))" >&2; exit 2; }
done
check spdx spdx
check unsafe no_unsafe
check shellcheck shell
check python python
check checkpatch checkpatch
check rustfmt rustfmt_kernel
check cargo-fmt cargo_fmt
check kernel kernel_build
check sparse sparse
check clippy cargo_clippy
check cargo-doc cargo_doc

if ((${#failed[@]})); then
	echo "lint: failed: ${failed[*]}"
	exit 1
fi
echo "lint: clean"
