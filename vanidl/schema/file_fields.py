"""Fields of `vanidl check --json`, of a survey's rows and of `run.json`: name | unit | meaning."""

FIELDS = """
check.files | count | Files that were checked
states | count | Files in each state
check.left_out | count | Files in each state that are not listed
checked | | One entry per file
checked.kind | | What the file is; null: nothing tells
state | | whole, cut, damaged, empty, foreign, unreadable, ...: vanidl check says what each means
checked.read | | Whether at least a part of it could be read
version | | Version of its format; null: the file says none
checked.missing | | A sentence for each thing that is not there
checked.layers | | By layer: how much of it was traced
survey.job | | Identifier of the job
survey.start | | Start of the job, ISO 8601 in UTC
survey.ranks | count | Ranks
survey.processes | count | Processes
survey.source | | trace: from single operations; counters: from totals
storage_bytes_read | bytes | Bytes read through POSIX, STDIO, DFS and DAOS
storage_bytes_written | bytes | Bytes written through POSIX, STDIO, DFS and DAOS
io_share | 1 | Mean busy time over ranks / run time
io_per_rank_mean_s | s | Mean busy time over ranks
io_any_rank_s | s | Time in which any rank was in I/O
bandwidth_bytes_per_s | bytes/s | Bytes / io_any_rank_s
size_median | bytes | Median transfer
size_max | bytes | Largest transfer
read_ops | count | Reads of which the place is known
read_consecutive | count | Beginning where the one before ended
read_forward | count | Beginning beyond the end of the one before
read_backward | count | Beginning before the end of the one before
survey.warnings | | Codes of the warnings, separated by spaces
survey.findings | count | Findings
finding_codes | | Code of each finding, most severe first
finding_gains_s | s | Most that a change can save, per rank, by finding; null: nothing bounds it
user | | Name in the name of the log, else uid and a number
nodes | count | Hosts of the ranks; null: that of one is not recorded
input_s | s | Time in reads of the dataset, by counters, summed over processes, hidden or not
input_rank_hours | h | The same in hours, no more than ranks x run time
input_node_hours | h | input_rank_hours x nodes / ranks
input_file_systems | | Types of the file systems that the dataset was read from, most time first
input_file_system_s | s | Share of each of them in input_s
logs | count | Logs of the job
survey.workload | | Workload of a storage benchmark; null: the job is none
survey.utilization_percent | % | Its accelerator utilization
survey.largest_wait | | What most of the rest of its time was
largest_wait_percent | % | How much of the time that was
rules_not_kept | | Rules of the benchmark that the result does not keep
first_log | | Path of the first, relative to the folder that was surveyed
problem | | Why there is no more than this; null where the job was read
run.id | | Identifier of the run
run.command | | The command and its arguments
run.folder | | Folder in which it ran
tracer_version | | Version of the tracer
settings | | Environment variables that the tracer was given
start_ns | ns | Start, since 1970 in UTC
end_ns | ns | End, since 1970 in UTC
run.ranks | count | Ranks; null: not known
run.mounts | | Mount points and their types, the longest first
run.processes | | Processes that the recorder saw
pid | | Number of the process
parent_pid | | Number of its parent
processes.command | | Its command line
first_seen_ns | ns | When it was first seen, since 1970 in UTC
last_seen_ns | ns | When it was last seen, since 1970 in UTC
running | | Whether it ran on when the command had ended
processes.state | | recorded, unfinished, missing
run.losses | | What was not recorded, in sentences
run.ceiling | | Whether batches came from memory (vanidl ceiling): no training
"""
