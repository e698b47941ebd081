"""Fields of `vanidl compare --json` and of `ab.json`: name | unit | meaning."""

FIELDS = """
primary | | Name of the metric that answers the question
confidence | 1 | Level of the intervals
smallest_change_called | 1 | Changes below it are never called better or worse
conditions | | How the runs were made, by name
sides | | What is compared
letter | | A, B, ...
sides.name | | Name of the side
sides.runs | | Its runs
runs.path | | Path of the run
pair | | Number of the pair; null: not paired
runs.id | | Identifier of the job; null: nothing was read
runs.start | | Start of the job, ISO 8601 in UTC; null: nothing was read
wall_time_s | s | Wall time of the whole command, by vanidl ab; null: not timed
missing | | Why nothing could be read; null where it could
a | | Letter of the first side
b | | Letter of the second side
paired | | Whether runs were compared pair by pair
notices | | What limits the comparison, in sentences
metrics | | Each metric, by name
cells | | Each cell of the accounts of time by its key, as mean/step/storage
cells.a | s | At least and at most, mean over the runs of the first side; null: no account
cells.b | s | The same of the second side
comparisons | | Each side against the first
metrics.a | as unit | Value, or mean over runs, of the first side; null: not recorded
metrics.b | as unit | The same of the second side
metrics.ratio | 1 | b / a; null where one is missing or 0
metrics.low | 1 | Lower end of the interval of the ratio; null: no interval
metrics.high | 1 | Upper end of the interval of the ratio; null: no interval
metrics.verdict | | better, worse, more, less, no difference shown, or why there is none
note | | Why there is no verdict; null where there is one
better | | Which way is better: lower, higher, neither
cell | | The cell of the account that it is, as mean/input_wait/; null: none
unit | | Unit of the values
difference | | b - a with its interval, for metrics with zeros; else null
difference.value | as unit | b - a
difference.low | as unit | Lower end
difference.high | as unit | Upper end
p | 1 | Probability of such a change among repeats of the same thing; null: no interval
p_corrected | 1 | The same, corrected for the number of metrics (Holm)
values_a | as unit | Value of each run
values_b | as unit | Value of each run
cache_policy | | What was done with the page cache before each run
ab.a | | Command of the first side
ab.b | | Command of the second side
ab.runs | | Runs in the order in which they were made
side | | a, b or ceiling: a with batches from memory
folder | | Folder of the run, relative to that of ab.json
exit_status | | Exit status of the command
"""
