"""One axis of time: how each profile's clock is put on that of the logs, and how surely.

An offset is what is added to a profile's times. Each kind of evidence gives the offsets that
it leaves open; `align` intersects them, in the order of EVIDENCE. `late_logs` does the same for
the logs of workers, whose starts may be late.
"""
