# SPDX-License-Identifier: GPL-2.0
# Reads one suite's KTAP; prints "case<TAB>pass|fail|skip" and, in brackets, what
# is wrong with the suite as a whole. status is its exit status.

/^1\.\.[0-9]+/ { plan = substr($1, 4) + 0; planned = 1; skipped_all = /# *SKIP/ }

/^(not )?ok [0-9]+/ {
	count++
	outcome = /^ok/ ? "pass" : "fail"
	name = $0
	sub(/^(not )?ok [0-9]+ *(- *)?/, "", name)
	if (match(name, /# *SKIP/)) {
		if (outcome == "pass")
			outcome = "skip"
		name = substr(name, 1, RSTART - 1)
	}
	sub(/ *# .*$/, "", name)
	sub(/[ \t\r]+$/, "", name)
	gsub(/\t/, " ", name)
	if (outcome == "fail")
		failed++
	# The same name twice in a suite would hide one of the two.
	if (seen[name]++)
		name = name " (" seen[name] ")"
	print name "\t" outcome
}

/^Bail out!/ { print "[" $0 "]\tfail" }

END {
	if (!planned)
		print "[a plan was printed]\tfail"
	else if (plan != count)
		print "[all " plan " planned cases were run: " count + 0 "]\tfail"
	if (status == 124 || status == 137)
		print "[it ended in its time]\tfail"
	else if (status != "" && status != 0 && !failed)
		print "[exit status 0: " status "]\tfail"
	else if (status != "" && status == 0 && failed)
		print "[exit status tells of the failure]\tfail"
}
