"""The kinds of files of a result of DLIO."""

OUTPUT, TIMES = "dlio_output", "dlio_times"
