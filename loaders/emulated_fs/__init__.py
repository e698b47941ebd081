"""An emulated parallel file system: a mount whose operations cost latency and bandwidth.

    model     what a request costs: latency, the client's link, the server's link
    faults    errors, hangs, short reads and writes, where they are asked for
    server    the file system, a process of its own: a folder passed through FUSE
    mount     `EmulatedStorage`: starts the server, and unmounts on any exit; its own log of what it
              served, to recount what others claim

Operations pass through to a folder. Reads are slowed down, writes, syncs and metadata where they
are given a cost; all are logged. The page cache is bypassed (direct_io), so that every read is a
request and Darshan and DFTracer see it slow, unless `page_cache` asks for what a file system of
the kernel does: reading ahead, keeping pages, serving page faults of mapped files.
"""
