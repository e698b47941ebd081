"""A trace for the public: paths, hosts, users and commands replaced, numbers untouched.

It is replaced before anything is computed, so that no result can hold a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from vanidl.analyses.dataset import make_natural_key
from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.model.lines import FunctionLines, SampledPart
from vanidl.model.run_facts import FileFacts, UserData
from vanidl.model.selection import Selection, chosen_files
from vanidl.model.states import SampledThread, States
from vanidl.model.trace import Files, LogState, Process, Profile, Trace
from vanidl.model.warnings import NAMES_COMMANDS, Notice

_NAMED_FIRST = re.compile(r"(.+?): (?:expected|this folder)", re.DOTALL)
"""How messages about a file that cannot be used begin."""

_OF_ARRAY = re.compile(r"stored (?:chunk of|array) |column chunk of ")
"""How an opened file's blocks name the array that they belong to."""

_Value = TypeVar("_Value")


def anonymous(trace: Trace, names: Pseudonyms) -> Trace:
    """The trace with pseudonyms, which the same `names` give the same things in other traces.

    Numbers, kinds of files, endings, and the depth and order of paths stay.
    """
    # Hosts first, and sorted: numbers do not depend on who is named where.
    for host in sorted({p.host for p in trace.processes}):
        names.host(host)
    # Files before anything that may name one.
    files = _rename_files(trace.files, names)
    processes = tuple(_rename_process(p, names) for p in trace.processes)
    job = trace.job
    return replace(
        trace,
        job=replace(job, id=names.job(job.id), command=names.command(job.command), user_id=None),
        processes=processes,
        files=files,
        spans=replace(trace.spans, names=tuple(map(names.text, trace.spans.names))),
        profiles=tuple(_rename_profile(p, names) for p in trace.profiles),
        logs=tuple(_rename_log(log, names) for log in trace.logs),
        warnings=tuple(_rename_notice(w, names) for w in trace.warnings),
        user_data=_rename_user_data(trace.user_data, names),
        benchmarks=tuple(
            replace(b, folder=names.folder(b.folder), workload=names.text(b.workload))
            for b in trace.benchmarks
        ),
        ending=None if trace.ending is None else replace(trace.ending, last_error=""),
        ceiling=None if trace.ceiling is None else replace(trace.ceiling, remarks=()),
        checkpoint_calls=tuple(
            replace(c, path=names.path(c.path) if c.path else "", former=())
            for c in trace.checkpoint_calls
        ),
        memory=tuple(replace(m, host=names.host(m.host)) for m in trace.memory),
        lines=tuple(_rename_part(part, names) for part in trace.lines),
        fetches=replace(trace.fetches, names=tuple(map(names.text, trace.fetches.names))),
        states=States(tuple(_rename_thread(thread, names) for thread in trace.states.threads)),
    )


def anonymous_selection(trace: Trace, selection: Selection) -> Selection:
    """The same files of the trace, told by number instead of by patterns of their names."""
    if not selection.include and not selection.exclude:
        return selection
    return replace(selection, include=(), exclude=(), codes=chosen_files(trace, selection))


def _rename_files(files: Files, names: Pseudonyms) -> Files:
    keys = [make_natural_key(path) for path in files.path]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    place = [0] * len(keys)
    # In natural order, so that numbers of pseudonyms keep the order of the names.
    for i, code in enumerate(order):
        place[code] = i
        names.path(files.path[code], files.kind[code])
    return Files(
        tuple(names.path(path) for path in files.path),
        files.kind,
        tuple(names.folder(mount) if mount else "" for mount in files.mount),
        tuple(map(names.file_system, files.file_system)),
        tuple(place),
        files.data_kind,
    )


def _rename_part(part: SampledPart, names: Pseudonyms) -> SampledPart:
    """Sampled lines by their numbers alone: functions and texts are the program's own."""

    def key(function: FunctionLines) -> tuple[str, str, int]:
        return names.path(function.file, "code"), "", function.first

    # Parents are named by keys, which have to change as those of the functions do.
    of = {function.key: key(function) for function in part.functions}
    return replace(
        part,
        functions=tuple(
            replace(
                function,
                file=of[function.key][0],
                name="",
                parent=None if function.parent is None else of.get(function.parent),
                lines=tuple(replace(line, text="") for line in function.lines),
            )
            for function in part.functions
        ),
    )


def _rename_thread(thread: SampledThread, names: Pseudonyms) -> SampledThread:
    """A sampled thread, without the names of files that it was seen at."""
    samples = replace(thread.samples, file=np.full_like(thread.samples.file, -1))
    return replace(thread, host=names.host(thread.host), samples=samples, paths=())


def _rename_process(process: Process, names: Pseudonyms) -> Process:
    return replace(
        process,
        host=names.host(process.host),
        log=names.path(process.log, "log"),
        command=names.command(process.command),
    )


def _rename_profile(profile: Profile, names: Pseudonyms) -> Profile:
    evidence = (replace(e, reason=names.text(e.reason)) for e in profile.clock_evidence)
    return replace(
        profile,
        path=names.path(profile.path, "log"),
        devices=tuple(map(names.device, profile.devices)),
        clock_evidence=tuple(evidence),
    )


def _rename_log(log: LogState, names: Pseudonyms) -> LogState:
    return replace(
        log,
        path=names.path(log.path, "log"),
        version=names.version(log.version),
        losses=tuple(map(names.text, log.losses)),
    )


def _rename_notice(notice: Notice, names: Pseudonyms) -> Notice:
    message = notice.message
    if notice.code in NAMES_COMMANDS:
        message = re.sub(r" \(.*\)", "", message, flags=re.DOTALL)
    named = _NAMED_FIRST.match(message)
    if named:  # maybe a file that is nowhere else in the trace
        message = f"{names.path(named[1], 'log')}{message[named.end(1) :]}"
    return replace(notice, message=names.text(message))


def _rename_user_data(data: UserData, names: Pseudonyms) -> UserData:
    facts = {path: _rename_facts(found, names) for path, found in data.facts.items()}
    on_disk = None if data.on_disk is None else tuple(names.path(p) for p in data.on_disk)
    return replace(
        data,
        sizes=_rename_paths(data.sizes, names),
        facts=_rename_paths(facts, names),
        on_disk=on_disk,
    )


def _rename_paths(values: Mapping[str, _Value], names: Pseudonyms) -> dict[str, _Value]:
    return {names.path(path): value for path, value in values.items()}


def _rename_facts(facts: FileFacts, names: Pseudonyms) -> FileFacts:
    """The facts with numbers for the names that the file gives its arrays."""
    given = {array.name: f"array {i + 1}" for i, array in enumerate(facts.arrays)}
    return replace(
        facts,
        path=names.path(facts.path),
        arrays=tuple(
            replace(
                array,
                name=given[array.name],
                dtype=names.text(array.dtype),
                filters=tuple(map(names.text, array.filters)),
            )
            for array in facts.arrays
        ),
        blocks=tuple(replace(b, what=_rename_block(b.what, given, names)) for b in facts.blocks),
    )


def _rename_block(what: str, given: Mapping[str, str], names: Pseudonyms) -> str:
    """What a block is, with the number of its array where it names one."""
    named = _OF_ARRAY.match(what)
    if named is None:
        return names.text(what)
    # The array's name may be followed by a bracket, as may be part of the name.
    whole = what[named.end() :]
    before, joint, after = whole.rpartition(" (")
    for array, rest in ((whole, ""), (before, f"{joint}{after}")):
        if array in given:
            return f"{named[0]}{given[array]}{names.text(rest)}"
    return f"{named[0]}{names.text(whole)}"
