"""An emulated parallel file system: a mount whose reads cost latency and bandwidth.

    model     what a request costs: latency, the client's link, the server's link
    requests  the mount's own log of reads, to recount what loaders claim
    faults    errors, hangs, short reads and writes, where they are asked for
    server    the file system, a process of its own
    mount     `EmulatedStorage`: starts the server, and unmounts on any exit

Reads and writes pass through to a folder. Reads are slowed down and logged; the page cache is
bypassed (direct_io), so that every read is a request and Darshan and DFTracer see it slow.
"""
