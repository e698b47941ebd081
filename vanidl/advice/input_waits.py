"""Training waits: for input, for I/O that nothing hides, for other ranks."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from vanidl.advice import own_loaders
from vanidl.advice.facts import (
    ANY,
    BOUND_SHARE,
    ITS_OWN,
    MATTERS,
    MUCH_PICKLED,
    Claim,
    Facts,
    SampledShare,
)
from vanidl.advice.finding import Rule, RuleResult, Value
from vanidl.advice.frameworks import BACKGROUND, PREFETCH, join_phrases
from vanidl.breakdown.account import MEAN, WAIT
from vanidl.breakdown.causes import (
    DELIVERY,
    INPUT_CPU,
    METADATA,
    STORAGE,
    TOO_FEW_CORES,
    WORKERS,
    Cell,
)
from vanidl.breakdown.overlap import Overlap, RankOverlap
from vanidl.formatting.units import nbytes, number, percent, plural, seconds, times
from vanidl.model import states
from vanidl.model.trace import INFERENCE
from vanidl.wording.account import (
    BLOCKS,
    CHILD,
    LOCK,
    MOST_OF_WAITS,
    NETWORK,
    OPEN,
    SLEEP,
    describe_waits,
    find_main_cause,
    is_storage_known,
)
from vanidl.wording.cells import mark_cell

OBSERVED_SHARE = 0.05
HIDDEN_SHARE = 0.2
OTHERS_SHARE = 0.05
CROWD = 2.0
"""Threads in reads at once, on average: from two on each may wait for the others."""
UNEVEN = 1.5
"""Of the mean rank's input waits those of the longest: by chance ranks wait longest in turn."""
SAME_STEPS = 0.9
"""Of the steps of the rank with most those of each: fewer are those of a rank recorded in part."""
LIKELY = 0.2
"""Of the waits, without those for cores: what is so much of them for sure, and more than others by
the middle of what is known, is taken to limit."""
_METADATA = f"{STORAGE}.{METADATA}"


def _is_too_short_for_workers(facts: Facts, spent_s: float, share: float) -> bool:
    """Whether what workers hide of a step is about as much as they need to hand over its batch.

    Where batches are loaded in the training process; `share` of the step have to be left to gain.
    """
    step_s = facts.account.length_ns("step") / 1e9
    return not facts.has_workers and spent_s - facts.handing_over_s[1] < share * step_s


def _get_bounding_waits(facts: Facts, *, lasting: bool = True) -> Overlap | None:
    """The overlap of a run that is bound by its input; `lasting`: not by its first wait alone.

    What is opened once no worker and no faster storage spares the steps of a longer run.
    """
    account = facts.account
    share = facts.lasting_wait_share if lasting else facts.wait_share
    if not account.waits_known or account.steps_ns <= 0 or share < BOUND_SHARE:
        return None
    if _is_too_short_for_workers(facts, facts.wait_of_step_s, BOUND_SHARE):
        return None
    return account.overlap


def _find_limiting_cause(facts: Facts) -> str:
    """The code of what most of the waits are, or else what they are most likely; "" for neither.

    Time without a free core is no cause beside others: it lengthens each of them. Nor is a batch
    of few bytes on its way: it takes no longer than the threads that hand it over wait for cores.
    Where others took the cores, what is left beside both is looked at.
    """
    account, copying, cores = facts.account, facts.copying, facts.cores
    length_ns = account.length_ns(WAIT)
    codes = (STORAGE, INPUT_CPU, DELIVERY, TOO_FEW_CORES, *BLOCKS)
    cells = {code: account.cell(f"{MEAN}/{WAIT}/{code}") for code in codes}
    queued = {TOO_FEW_CORES} if facts.cores_were_taken else set()
    queued |= {DELIVERY} if cores is not None and not copying.is_much else set()

    # What most of the waits are, by the account; else what would gain most; else the likeliest.
    code = find_main_cause(account)
    if not code and facts.gains is not None and facts.gains.without(WORKERS).low_ns > length_ns / 2:
        code = WORKERS
    code = code or _select_likeliest_cause(cells, length_ns, {TOO_FEW_CORES})
    # Waits lengthened by cores that were taken: what is left beside them decides.
    if code in queued and facts.cores_were_taken:
        rest_ns = length_ns - sum(cells[each].low_ns for each in {TOO_FEW_CORES} | queued)
        is_worth = rest_ns >= BOUND_SHARE * account.steps_ns
        others = {TOO_FEW_CORES} | queued
        code = _select_likeliest_cause(cells, length_ns, others) if is_worth else TOO_FEW_CORES
    elif code in queued and cores is not None and cores.wanted >= ITS_OWN:
        code = TOO_FEW_CORES
    # Where the account leaves it open, samples of the fetching threads decide.
    if code in ("", OPEN):
        code = _find_sampled_cause(facts) or code
        if facts.cores_were_taken and not _can_explain_waits(facts, code):
            code = TOO_FEW_CORES
    # Cores that are short because batches are copied are those of handing over.
    by_copies = copying.is_much and copying.share >= MOST_OF_WAITS
    if code in (INPUT_CPU, TOO_FEW_CORES, "") and by_copies:
        return DELIVERY
    return code


def _can_explain_waits(facts: Facts, code: str) -> bool:
    """Whether a cause may be a fifth of the waits by what the run would gain without it."""
    gain_s = facts.bound(Claim(_resolve_cause(facts, code))) if code in _KINDS else None
    return gain_s is not None and gain_s[1] >= LIKELY * facts.account.length_ns(WAIT) / 1e9


def _resolve_cause(facts: Facts, code: str) -> str:
    """The cause that the account of time has for a code: it may not tell parts apart."""
    cell = facts.account.cell(f"{MEAN}/{WAIT}/{code}")
    return code if cell.high_ns else code.partition(".")[0]


_KINDS = {
    STORAGE: states.IN_FILES, INPUT_CPU: (states.RUNNING,), LOCK: (states.LOCK,),
    NETWORK: (states.NETWORK,), SLEEP: (states.SLEEP,), CHILD: (states.CHILD,),
}  # fmt: skip


def _find_sampled_cause(facts: Facts) -> str:
    """What threads that fetched were seen doing half of the time; "": not sampled, or mixed.

    Of one that could run the kernel counts how long it had no core: half of the time is too few,
    where the run itself asks for more than there are.
    """
    seen = facts.seen_fetching
    if seen is None:
        return ""
    asks = facts.cores is not None and facts.cores.wanted >= ITS_OWN
    if asks and seen.queued_share >= MOST_OF_WAITS:
        return TOO_FEW_CORES
    shares = {code: sum(map(seen.shares.get, kinds, [0.0] * len(kinds))) for code, kinds in
              _KINDS.items()}  # fmt: skip
    code = max(shares, key=lambda each: shares[each])
    return code if shares[code] >= MOST_OF_WAITS else ""


def _select_likeliest_cause(cells: Mapping[str, Cell], length_ns: float, but: Set[str]) -> str:
    """The cause that most of some time is for sure, and by the middle of what is known; "": none.

    What was for others for sure, `but`, is no part of that time.
    """
    left = {code: cell for code, cell in cells.items() if code not in but}
    rest_ns = length_ns - sum(cells[code].low_ns for code in but)
    # One that is longest by both measures, and long enough by the surer one.
    surest = max(left, key=lambda each: left[each].low_ns)
    likeliest = max(left, key=lambda each: left[each].middle_ns)
    return surest if surest == likeliest and left[surest].low_ns >= LIKELY * rest_ns > 0 else ""


def _collect_evidence(overlap: Overlap) -> dict[str, Value]:
    longest, mean = max(overlap.per_rank, key=lambda r: r.input_wait_s or 0.0), overlap.mean
    return {
        "input_wait_share": overlap.input_wait_share,
        "input_wait_s": mean.input_wait_s,
        "input_wait_io_s": mean.input_wait_io_s,
        "metadata_s": mean.input_wait_metadata_s,
        "metadata_at_most_s": mean.input_wait_metadata_at_most_s,
        "rest_at_least_s": mean.input_wait_rest_s,
        "lost_to_input_s": overlap.lost_to_input_s,
        "longest_wait": {"rank": longest.label, "seconds": longest.input_wait_s},
    }


def _make_title(facts: Facts, rest: str) -> str:
    share = facts.account.length_ns(WAIT) / facts.account.steps_ns
    if not find_main_cause(facts.account):
        rest = rest.replace("mostly", "most likely", 1)
    said = mark_cell(f"{MEAN}/{WAIT}/", percent(share))
    who = "Inference" if facts.trace.purpose == INFERENCE else "Training"
    return f"{who} waits for input {said} of the time, {rest}"


def _describe_waits(facts: Facts) -> str:
    waited = mark_cell(f"{MEAN}/{WAIT}/", seconds(facts.account.length_ns(WAIT) / 1e9))
    whole = not facts.lossy or is_storage_known(facts.account)
    return f"Input waits took {waited}; {describe_waits(facts.account, whole=whole)}"


def _is_decoding(facts: Facts) -> bool:
    """Whether waits are mostly decoding: sampled, or what a whole trace leaves."""
    code = _find_limiting_cause(facts)
    known = not facts.lossy or is_storage_known(facts.account)
    return code == INPUT_CPU or (code == OPEN and known)


def _find_bound_by_io(facts: Facts) -> RuleResult | None:
    overlap = _get_bounding_waits(facts)
    if overlap is None or _find_limiting_cause(facts) != STORAGE:
        return None
    evidence = _collect_evidence(overlap)
    # The scheduled loader gains only by bytes that were read again.
    plan = own_loaders.predict_scheduled(facts)
    hint = " The scheduled loader would not read the same bytes again." if plan else ""
    return RuleResult(
        _make_title(facts, "mostly for object storage" if facts.on_objects else "mostly for I/O"),
        f"{_describe_waits(facts)}.",
        f"Read ahead: {join_phrases(facts.frameworks, PREFETCH, 'a thread or process for it')}; "
        "then make the reads themselves cheaper, see the findings about requests and files."
        f"{facts.before_workers}{hint}",
        evidence | ({"predicted": plan} if plan else {}),
        replace(facts.reading(), surely_s=_bound_hidden_s(facts)),
    )


def _bound_hidden_s(facts: Facts) -> float:
    """What reading ahead hides of waits: by one reader what steps compute; by more, who knows."""
    computed_ns = facts.account.steps_ns - facts.account.length_ns(WAIT)
    return 0.0 if facts.has_workers else computed_ns / 1e9


def _find_bound_by_metadata(facts: Facts) -> RuleResult | None:
    """Opens, stats and the like make up most of the waits: there are too many of them."""
    overlap = _get_bounding_waits(facts)
    length_ns = facts.account.length_ns(WAIT)
    key = f"{MEAN}/{WAIT}/{_METADATA}"
    cell = facts.account.cell(key)
    # Threads asleep in such calls were in them, however long they then waited for a core.
    least_ns, seen = float(cell.low_ns), facts.seen_fetching
    if facts.cores_were_taken and seen is not None:
        asleep = SampledShare(seen.shares.get(states.METADATA, 0.0), seen.samples)
        least_ns = max(least_ns, min(asleep.least * length_ns, cell.high_ns))
    if overlap is None or least_ns < MOST_OF_WAITS * length_ns:
        return None
    spent_s = least_ns / 1e9
    # A number that is not the cell's has no link to it.
    key = key if least_ns == cell.low_ns else ""
    share = mark_cell(key, percent(least_ns / length_ns))
    return RuleResult(
        f"Training waits {share} of its input waits for metadata calls",
        "Opening, looking up and closing files took at least "
        f"{mark_cell(key, seconds(spent_s))} of "
        f"{mark_cell(f'{MEAN}/{WAIT}/', seconds(length_ns / 1e9))}.",
        "Look files up once and keep the list, keep files open, or pack samples into larger files.",
        {"metadata_s": spent_s},
        Claim(_METADATA),
    )


def _is_limit_certain(facts: Facts, cause: str) -> bool:
    """Whether a cause limits on cores of its own: where others took them, by what is sure of it."""
    if not facts.cores_were_taken or facts.cores is None:
        return True
    own_ns = facts.account.steps_ns - facts.cores.queued_s * 1e9
    length_ns = facts.account.length_ns(WAIT)
    least_ns, seen = float(facts.account.cell(f"{MEAN}/{WAIT}/{cause}").low_ns), facts.seen_fetching
    if cause == INPUT_CPU and seen is not None:
        # Threads that fetched could run so much of the time, and had no core in some of it.
        ran = SampledShare(seen.running, seen.samples).least - seen.queued_share
        least_ns = max(least_ns, ran * length_ns)
    return least_ns >= LIKELY * own_ns


def _find_bound_by_decoding(facts: Facts) -> RuleResult | None:
    overlap = _get_bounding_waits(facts)
    if overlap is None or not _is_decoding(facts) or not _is_limit_certain(facts, INPUT_CPU):
        return None
    # Decoding has to be more than handing over costs: what else is waited for may come once, such
    # as the first look into a cold file, and on cores that others took lengthens both.
    cell = facts.account.cell(f"{MEAN}/{WAIT}/{INPUT_CPU}")
    decoded_ns = cell.low_ns if facts.cores_were_taken else cell.middle_ns
    if cell.low_ns == 0 and not facts.cores_were_taken:  # nothing is known for sure
        decoded_ns = facts.account.length_ns(WAIT)
    if _is_too_short_for_workers(facts, decoded_ns / 1e9 / facts.steps_of_rank, BOUND_SHARE):
        return None
    evidence = _collect_evidence(overlap)
    predicted = own_loaders.predict_encoded(facts)
    return RuleResult(
        _make_title(facts, "and not for I/O"),
        f"{_describe_waits(facts)}.",
        "Decode in more workers or on the GPU (DALI); cheaper formats; the decoded loader reads "
        "encoded samples and decodes them on the device. Faster storage will not help."
        f"{facts.before_workers}",
        evidence | ({"predicted": predicted} if predicted else {}),
        Claim(INPUT_CPU),
    )


def _find_bound_by_unknown(facts: Facts) -> RuleResult | None:
    overlap = _get_bounding_waits(facts)
    if overlap is None:
        return None
    code = _find_limiting_cause(facts)
    # Every cause that has a rule of its own is theirs.
    known = (STORAGE, WORKERS, DELIVERY, TOO_FEW_CORES, *BLOCKS)
    if code in known or _is_decoding(facts):
        return None
    return RuleResult(
        _make_title(facts, "for I/O or decoding"),
        f"How much of the wait is I/O is not known: {_explain_unknown(facts, overlap.mean)}.",
        "Record a whole trace (vanidl record), then see which of the two it is. More workers or "
        f"more prefetch help with both.{facts.before_workers}",
        _collect_evidence(overlap),
        Claim(ANY),
    )


def _find_bound_by_worker_start(facts: Facts) -> RuleResult | None:
    # The first wait counts here: it is where workers start.
    overlap = _get_bounding_waits(facts, lasting=False)
    code = _find_limiting_cause(facts)
    if overlap is None or code != WORKERS:
        return None
    # Workers that start once import what the program itself does: that stays, whatever is done.
    gain = facts.gains.without(WORKERS) if facts.gains is not None else None
    own_s = 0.0 if facts.starts_workers_anew else facts.start_up_s
    is_slow = facts.starts_workers_anew or facts.pickled_nbytes >= MUCH_PICKLED
    if not is_slow and gain is not None and gain.high_ns / 1e9 <= own_s:
        return None
    # What to do depends on how workers start and on what they are handed.
    keep = "Keep the workers from epoch to epoch: DataLoader(persistent_workers=True). "
    pickled = facts.pickled_nbytes
    lists = "keep long lists of samples out of the data set object: they are pickled to each worker"
    if pickled >= MUCH_PICKLED:
        lists = (
            f"{nbytes(pickled)} were written to each worker: keep lists of samples out of the data "
            "set object, in an array that is mapped (np.load with mmap_mode) or a file"
        )
    advice = (
        f"{keep if facts.starts_workers_anew else ''}Start workers "
        f"before the training begins, import in them no more than they need, and {lists}; "
        "multiprocessing_context='forkserver' starts faster than 'spawn'."
    )
    epochs = facts.epochs if facts.starts_workers_anew else 0
    return RuleResult(
        _make_title(facts, "mostly for workers to start"),
        f"{_describe_waits(facts)}.",
        f"{advice} Faster storage or decoding will not help.",
        _collect_evidence(overlap)
        | {
            "starting_s": facts.account.cell(f"{MEAN}/{WAIT}/{WORKERS}").low_ns / 1e9,
            "delivery_s": facts.account.cell(f"{MEAN}/{WAIT}/{DELIVERY}").low_ns / 1e9,
            "pickled_bytes_a_worker": pickled,
        },
        Claim(
            WORKERS,
            stays=1 / epochs if epochs else 0.0,
            surely_s=None if gain is None else max(gain.low_ns / 1e9 - own_s, 0.0),
            keeps="the first epoch's start" if epochs else "what workers import",
        ),
    )


def _find_bound_by_delivery(facts: Facts) -> RuleResult | None:
    overlap = _get_bounding_waits(facts, lasting=False)
    if overlap is None or _find_limiting_cause(facts) != DELIVERY or not facts.hands_over_bytes:
        return None
    size = facts.trace.fetches.mean_nbytes
    return RuleResult(
        _make_title(facts, "mostly for batches on their way from the workers"),
        f"{_describe_waits(facts)}."
        + (f" A batch takes {nbytes(round(size))} in memory." if size else ""),
        "Hand over less: smaller types (uint8 instead of float32), only what the step uses, cast "
        "and enlarge on the device. pin_memory copies in the training process; without it that "
        "copy is gone. Faster storage or decoding will not help.",
        _collect_evidence(overlap)
        | {
            "delivery_s": facts.account.cell(f"{MEAN}/{WAIT}/{DELIVERY}").low_ns / 1e9,
            "batches_copied_s": facts.copying.sum_s,
        }
        | ({"batch_bytes": round(size)} if size else {}),
        Claim(
            _pick_longest(facts, DELIVERY, INPUT_CPU, TOO_FEW_CORES),
            keeps="the bytes that the step needs",
        ),
    )


def _pick_longest(facts: Facts, *causes: str) -> str:
    """Of some causes the one that the waits hold more of: bytes are copied on both ends."""
    return max(causes, key=lambda each: facts.account.cell(f"{MEAN}/{WAIT}/{each}").middle_ns)


_BLOCKED_BY = {
    LOCK: (
        "mostly for a lock",
        "See which lock: one that all workers share (a file opened once, a cache, a queue, a "
        "logger) has them work one at a time. Within a process the interpreter has one of its own.",
    ),
    NETWORK: (
        "mostly for the network",
        "Ask for many samples at once and ahead of time, keep connections open, or keep what was "
        "fetched on a local disk.",
    ),
    SLEEP: (
        "mostly asleep",
        "Find what sleeps in the fetch: a retry, a rate limit, a poll of a service, a sleep that "
        "was left in.",
    ),
    CHILD: (
        "mostly for child processes",
        "Start a process once and feed it, rather than one a sample; a library that does the same "
        "in the worker saves its start.",
    ),
}


def _find_bound_by_blocking(facts: Facts) -> RuleResult | None:
    overlap = _get_bounding_waits(facts)
    code = _find_limiting_cause(facts)
    if overlap is None or code not in BLOCKS:
        return None
    rest, advice = _BLOCKED_BY[code]
    return RuleResult(
        _make_title(facts, rest),
        f"{_describe_waits(facts)}.",
        f"{advice} Neither faster storage nor faster decoding will help.",
        _collect_evidence(overlap)
        | {"blocked_s": facts.account.cell(f"{MEAN}/{WAIT}/{code}").low_ns / 1e9},
        Claim(_resolve_cause(facts, code)),
    )


def _find_bound_by_cores(facts: Facts) -> RuleResult | None:
    overlap = _get_bounding_waits(facts)
    if overlap is None or facts.cores_were_taken or _find_limiting_cause(facts) != TOO_FEW_CORES:
        return None
    cell, use = facts.account.cell(f"{MEAN}/{WAIT}/{TOO_FEW_CORES}"), facts.cores
    queued_s, wanted = (use.queued_in_waits_s, use.wanted) if use is not None else (0.0, None)
    return RuleResult(
        _make_title(facts, "mostly for a free core"),
        f"{_describe_waits(facts)}.",
        "Give the job more cores, or start fewer workers and threads than it has: more workers "
        "only wait longer. OMP_NUM_THREADS=1 in workers keeps libraries from starting threads of "
        "their own.",
        _collect_evidence(overlap)
        | {"waiting_for_cores_s": max(cell.low_ns / 1e9, queued_s), "threads_at_work": wanted},
        Claim(_pick_longest(facts, TOO_FEW_CORES, DELIVERY)),
    )


def _find_crowded_storage(facts: Facts) -> RuleResult | None:
    """Several readers wait for the storage at once, and nobody recorded how long each read took.

    Whether each is answered late or the storage delivers no more samples of threads do not tell.
    """
    if facts.throughput is not None or facts.readers_at_once < CROWD:
        return None
    if _get_bounding_waits(facts) is None or _find_limiting_cause(facts) != STORAGE:
        return None
    many = number(facts.readers_at_once)
    return RuleResult(
        f"On average {many} readers wait for the storage at once",
        "How long single reads took was not recorded: the storage may be at its limit, where more "
        "readers only wait longer, or answer each of them late.",
        "Fewer bytes help in both cases: smaller types, compressed samples, only what is used; or "
        "data that stay in memory or on a local disk after the first read. A recording with the "
        "tracer tells whether more workers help.",
        {"reads_at_once": facts.readers_at_once},
        replace(facts.reading(keeps="what is still read"), surely_s=0.0),
    )


def _explain_unknown(facts: Facts, mean: RankOverlap) -> str:
    if mean.input_wait_io_s is None:
        return "no single operation was traced"
    if facts.objects_apart:
        return "object storage was used as well, a layer of its own: see --layer OBJECT"
    if facts.lossy:
        return "not all reads were recorded"
    return describe_waits(facts.account, whole=True)


def _find_io_without_overlap(facts: Facts) -> RuleResult | None:
    overlap = facts.account.overlap
    if overlap is None or overlap.hidden_fraction is None:
        return None
    mean = overlap.mean
    if mean.io_s is None or mean.exposed_s is None or mean.compute_s is None:
        return None
    # Only of I/O that was seen operation by operation is it known what ran beside it.
    observed = mean.io_s - (mean.unobserved_s or 0.0)
    if observed < OBSERVED_SHARE * mean.window_s or overlap.hidden_fraction >= HIDDEN_SHARE:
        return None
    if _is_too_short_for_workers(facts, mean.exposed_s / max(facts.steps_of_rank, 1), MATTERS):
        return None
    background = "".join(f"{BACKGROUND[name]}, or " for name in facts.frameworks)
    free = max(mean.compute_s - (mean.hidden_s or 0.0), 0.0)
    return RuleResult(
        f"{percent(1 - overlap.hidden_fraction)} of the I/O does not run under compute",
        f"{seconds(mean.exposed_s)} of {seconds(observed)} of I/O in the profiled steps is "
        f"exposed, beside {seconds(mean.compute_s)} of compute that could hide it.",
        f"Read in the background: {background}a loader with a thread that reads ahead, "
        f"as the scheduled one.{facts.before_workers}",
        {
            "hidden_fraction": overlap.hidden_fraction,
            "observed_io_s": observed,
            "exposed_s": mean.exposed_s,
            "compute_s": mean.compute_s,
            "processes_a_rank": len(facts.trace.processes) / max(len(facts.trace.ranks), 1),
        },
        # One reader hides what computing leaves room for; several shorten what is exposed as well.
        Claim(STORAGE, within_s=mean.exposed_s, surely_s=min(mean.exposed_s, free)),
    )


def _get_least_share_of_others(facts: Facts) -> float:
    """The share of a window that ranks have to wait for one of them; turns on cores delay any."""
    return OTHERS_SHARE * (2 if facts.cores_were_taken else 1)


def _find_waits_for_other_ranks(facts: Facts) -> RuleResult | None:
    overlap = facts.account.overlap
    if overlap is None or overlap.lost_to_input_s is None or overlap.mean.input_wait_s is None:
        return None
    least = _get_least_share_of_others(facts)
    # At most the time by which a rank's own input waits fall short of what all ranks lost.
    blamed = {}
    for row in overlap.per_rank:
        behind = overlap.lost_to_input_s - (row.input_wait_s or 0.0)
        time_s = min(row.communication_s or 0.0, behind)
        if time_s >= least * row.window_s > 0:
            blamed[row.label] = time_s
    if not blamed:
        return None
    slowest = max(overlap.per_rank, key=lambda r: r.input_wait_s or 0.0)
    return RuleResult(
        f"{plural(len(blamed), 'rank')} of {overlap.ranks_observed} "
        f"{'waits' if len(blamed) == 1 else 'wait'} in collectives for the input of other ranks",
        f"Up to {seconds(max(blamed.values()))} of a rank's communication is waiting for "
        f"slower ranks; {slowest.label} waited longest for input "
        f"({seconds(slowest.input_wait_s)}).",
        "Faster networks will not help: give every rank the same input rate (workers, bytes, "
        "local storage), and look first at the rank named.",
        {
            "ranks": sorted(blamed),
            "at_most_s": {label: blamed[label] for label in sorted(blamed)},
            "slowest": {"rank": slowest.label, "input_wait_s": slowest.input_wait_s},
            "lost_to_input_s": overlap.lost_to_input_s,
        },
        Claim(ANY, within_s=overlap.lost_to_input_s - overlap.mean.input_wait_s),
    )


def _find_uneven_waits(facts: Facts) -> RuleResult | None:
    """One rank waits for input where others have theirs, and collectives were not recorded."""
    overlap = facts.account.overlap
    if overlap is None or overlap.lost_to_input_s is None or overlap.mean.input_wait_s is None:
        return None
    lost_s, mean_s, ranks = overlap.lost_to_input_s, overlap.mean.input_wait_s, overlap.per_rank
    slowest = max(ranks, key=lambda r: r.input_wait_s or 0.0)
    # Where collectives were recorded, these tell who waited for whom.
    if len(ranks) < 2 or any(r.communication_s for r in ranks):
        return None
    # Of ranks that were recorded in part longer waits may be those of more steps.
    steps = facts.account.steps[facts.account.observed]
    if steps.min() < SAME_STEPS * steps.max():
        return None
    if (slowest.input_wait_s or 0.0) < UNEVEN * mean_s:
        return None
    least = _get_least_share_of_others(facts)
    if lost_s - mean_s < least * overlap.mean.window_s:
        return None
    return RuleResult(
        f"{slowest.label} waits {seconds(slowest.input_wait_s)} for input, "
        f"{times((slowest.input_wait_s or 0.0) / max(mean_s, 1e-9))} the mean of the ranks",
        f"What each step waits longest for is {seconds(lost_s)} in all, the mean rank "
        f"{seconds(mean_s)}: the others wait for that rank where they meet.",
        "Give every rank as much to read and to decode; look for a slower node, mount or path "
        "where the work is the same.",
        {
            "slowest": {"rank": slowest.label, "input_wait_s": slowest.input_wait_s},
            "lost_to_input_s": lost_s,
        },
        Claim(ANY, within_s=lost_s - mean_s),
    )


_SHARE_REASON = (
    "a tenth of the time is more than runs differ by chance, and DFAnalyzer's 20 % would pass over "
    "a loss that one option of the loader removes"
)
RULES = (
    Rule(
        "input_bound_io", "input wait / window; how much of it was I/O, metadata included",
        "10 % of the window, half of it in I/O", _SHARE_REASON, _find_bound_by_io,
    ),
    Rule(
        "input_bound_decoding", "the same, with most of the wait outside any I/O",
        "10 % of the window, less than half in I/O, all reads recorded", _SHARE_REASON,
        _find_bound_by_decoding,
    ),
    Rule(
        "input_bound", "the same, where it is not known how much of the wait is I/O",
        "10 % of the window", _SHARE_REASON, _find_bound_by_unknown,
    ),
    Rule(
        "input_bound_workers",
        "the same, with more of the wait for workers than for what they make of a batch",
        "10 % of the window, less than half in I/O, more than what decoding and collating took; "
        "of workers that start once longer than the program's own start, or 4 MiB for each",
        _SHARE_REASON, _find_bound_by_worker_start,
    ),
    Rule(
        "input_bound_blocked",
        "the same, with most of the wait on a lock, the network, a timer or a child process",
        "10 % of the window, at least half of it blocked so, by samples of what threads did",
        _SHARE_REASON, _find_bound_by_blocking,
    ),
    Rule(
        "input_bound_cores", "the same, with most of the wait for a free core",
        "10 % of the window, at least half of it", _SHARE_REASON, _find_bound_by_cores,
    ),
    Rule(
        "input_bound_delivery",
        "the same, with most of the wait after the worker had its batch",
        "10 % of the window, at least half of it delivery", _SHARE_REASON, _find_bound_by_delivery,
    ),
    Rule(
        "storage_crowded",
        "threads that are in reads of files at once while they fetch, by samples",
        "2 on average; 10 % of the window, most of it in I/O; single reads not recorded",
        "what two readers wait for more of them may not shorten", _find_crowded_storage,
    ),
    Rule(
        "waits_for_metadata", "metadata calls in input waits / input waits",
        "10 % of the window, at least half of them in opens, stats and the like",
        "a list of files that is kept, or fewer files, takes them away; reading ahead hides them",
        _find_bound_by_metadata,
    ),
    Rule(
        "io_not_overlapped", "observed I/O that did not run under compute",
        "I/O of 5 % of the window, less than a fifth hidden",
        "below a fifth the loader has no prefetch that works; less I/O than that is not worth one",
        _find_io_without_overlap,
    ),
    Rule(
        "waits_for_other_ranks",
        "communication of a rank, as far as other ranks waited longer for input",
        "5 % of a rank's window", "uneven steps and the collective itself cost a few per cent",
        _find_waits_for_other_ranks,
    ),
    Rule(
        "uneven_input", "input waits of the rank that waits longest / those of the mean rank",
        "1.5, and 5 % of the window, where no collectives were recorded",
        "ranks that meet in each step take as long as the one whose input comes last",
        _find_uneven_waits,
    ),
)  # fmt: skip
