# SPDX-License-Identifier: GPL-2.0
# Reads "column, suite, case, outcome" lines; writes all cases with one outcome
# per column and the verdict to the files named by results and table; prints what
# a reader must see, a line per suite, and "total PASSED FAILED SKIPPED".

BEGIN {
	FS = "\t"
	n = split(columns, column, " ")
	split(baselines, list, " ")
	for (i in list)
		baseline[list[i]] = 1
}

{
	row = $2 FS $3
	if (!(row in suite_of)) {
		rows[++count] = row
		suite_of[row] = $2
		case_of[row] = $3
		if (!($2 in known)) {
			known[$2] = 1
			suites[++suite_count] = $2
		}
	}
	outcome[row, $1] = $4
	ran[$2, $1] = 1
}

# What the row's columns amount to. Checks in brackets are never excused.
function verdict(row,    i, o, some, skips, c, rust) {
	c = outcome[row, "c"]
	rust = outcome[row, "rust"]
	if (baseline[suite_of[row]] && case_of[row] !~ /^\[/ && c != "" && rust != "") {
		if (c == "fail" && rust == "fail")
			return "bed"
		if (c == "pass")
			return rust == "pass" ? "pass" : "fail"
		return rust
	}
	for (i = 1; i <= n; i++) {
		o = outcome[row, column[i]]
		# A case of a suite that ran in this column must be there.
		if (o == "" && ran[suite_of[row], column[i]] && case_of[row] !~ /^\[/)
			o = "fail"
		if (o == "fail")
			return "fail"
		if (o == "skip")
			skips = 1
		if (o != "")
			some = 1
	}
	return skips ? "skip" : some ? "pass" : "fail"
}

function line(row, v,    i, text) {
	text = sprintf("%-5s", v)
	for (i = 1; i <= n; i++)
		text = text sprintf(" %-5s", outcome[row, column[i]] == "" ? "-" : outcome[row, column[i]])
	return text " " suite_of[row] ": " case_of[row]
}

END {
	head = sprintf("%-5s", "")
	for (i = 1; i <= n; i++)
		head = head sprintf(" %-5s", column[i])
	print head " case" >table
	printf "" >results
	for (k = 1; k <= count; k++) {
		row = rows[k]
		v = verdict(row)
		print line(row, v) >table
		text = row
		for (i = 1; i <= n; i++)
			text = text FS outcome[row, column[i]]
		print text FS v >results
		sum[suite_of[row], v]++
		total[v]++
		if (v != "pass")
			notable[++notes] = line(row, v)
		for (i = 1; i <= n; i++)
			per[suite_of[row], column[i], outcome[row, column[i]]]++
	}
	if (notes) {
		print "not passed:"
		print head " case"
		for (k = 1; k <= notes; k++)
			print notable[k]
	}
	print "passed of each suite:"
	for (k = 1; k <= suite_count; k++) {
		s = suites[k]
		text = sprintf("  %-24s", s)
		for (i = 1; i <= n; i++)
			if (ran[s, column[i]])
				text = text sprintf(" %-5s %d/%d ", column[i], per[s, column[i], "pass"],
					per[s, column[i], "pass"] + per[s, column[i], "fail"] + per[s, column[i], "skip"])
		print text
	}
	if (total["bed"])
		print total["bed"] " fail over both modules: the bed's, counted as skipped"
	print "total " total["pass"] + 0 " " total["fail"] + 0 " " total["skip"] + total["bed"] + 0
}
