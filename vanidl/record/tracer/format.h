/* What the tracer writes: one file a process (a program that is started by exec, and a child that
 * is forked, is a process of its own), named PID-START.calls, START being `start_monotonic_ns` in
 * decimal. The recorder may compress a file when the run is over: PID-START.calls.gz, one gzip
 * member of the same bytes, up to the last chunk that was used, but that `version` is
 * VT_VERSION_BY_BYTES and that each chunk lies by the bytes of its slots: byte j of slot i at
 * chunk + 1638 * j + i, then the 16 unused bytes. Bytes of one meaning side by side compress to two
 * thirds. All numbers are little-endian.
 *
 *   offset 0       struct vt_header
 *   offset 4096    records of struct vt_counters, up to 65536
 *   offset 65536   chunks of 65536 bytes, `chunks` of them were handed out (see the header)
 *
 * A file is sparse: it is made as long as it may get, and pages that nothing was written to take
 * no space. What lies behind the last chunk that was handed out means nothing.
 *
 * A chunk belongs to one thread at a time, which writes slots of 40 bytes one after the other:
 * slot i lies at chunk + 40 * i, 1638 of them, then 16 unused bytes. Slots lie in the order in
 * which calls returned. A thread that ends hands its chunk over, so the thread of a slot is that of
 * the last VT_THREAD slot before it in its chunk; the first slot of a chunk always says VT_THREAD,
 * or VT_COUNTERS, and that chunk holds no further slots but records of struct vt_counters, one
 * every 256 bytes, from 256 bytes after its beginning.
 *
 * A slot that was never written is 40 zero bytes. A slot whose check is wrong is damaged, or was
 * being written when the process was killed: at most one a thread, the last (one more for each
 * signal handler that was running).
 */
#ifndef VANIDL_TRACER_FORMAT_H
#define VANIDL_TRACER_FORMAT_H

#include <stdint.h>

#define VT_MAGIC "VANIDLTR" /* 8 bytes, no NUL */
#define VT_VERSION 1
#define VT_VERSION_BY_BYTES 2
#define VT_PAGE 4096
#define VT_CHUNK_BYTES 65536
#define VT_SLOT_BYTES 40
#define VT_SLOTS (VT_CHUNK_BYTES / VT_SLOT_BYTES)
#define VT_COUNTER_BYTES 256

/* One call. Calls of a kind mean the same in whichever variant they were made (64 bits, _chk,
 * _unlocked). Times are of CLOCK_MONOTONIC.
 *
 * `result`: bytes that were moved, for VT_MMAP the length that was mapped, for VT_OPEN the
 *   descriptor, for VT_LSEEK and VT_FSEEK the new position, for VT_READDIR the number of entries,
 *   else 0. Negative: the call failed, -errno.
 * `offset`: where in the file the first byte lies, -1 where nobody knows. For VT_RENAME and VT_LINK
 *   the number of the new name. Of stdio it is the position of the stream, as ftell says it, not
 *   that of the descriptor below.
 * `size`: what was asked for, in bytes, at most 2^32 - 1; for VT_OPEN and VT_FOPEN the flags of
 *   open(2).
 * `file`: the number of a file name, of a VT_NAME slot of the same process; 0 where no name is
 *   known. A number stands for the same name in a forked child, which repeats the names that it uses.
 * `duration_ns` and `duration_high` are one number of 40 bits: 1,099 s are the most.
 */
struct vt_slot {
    uint64_t start_ns;
    int64_t offset;
    int64_t result;
    uint32_t size;
    uint32_t duration_ns; /* its lower 32 bits */
    uint32_t file;
    uint8_t call; /* enum vt_call */
    uint8_t duration_high;
    uint16_t check; /* vt_check: written last */
};

/* Part of a name: absolute, without "." and "//", as bytes. VT_NAME begins one, VT_NAME_MORE
 * slots of the same chunk follow it with the rest, all of them with the number of the file. */
struct vt_name_slot {
    char text[32];
    uint32_t file;
    uint8_t call;
    uint8_t length; /* bytes of `text` that are used; 32 where more slots may follow */
    uint16_t check;
};

/* call >> 4 is its class. */
enum vt_call {
    VT_EMPTY = 0,

    /* 0: no calls */
    VT_NAME = 1,      /* vt_name_slot */
    VT_NAME_MORE = 2, /* vt_name_slot */
    VT_THREAD = 3,    /* from here on: thread `result` (gettid); start_ns and offset are one instant
                         of CLOCK_MONOTONIC and CLOCK_REALTIME, size how far apart they may lie (ns) */
    VT_COUNTERS = 4,  /* first slot of a chunk of counters */
    VT_FORK = 5,      /* this process forked (or called vfork, clone): result is the child */
    VT_SPAWN = 6,     /* posix_spawn: result is the child */
    VT_EXEC = 7,      /* this process is about to become another program */
    VT_SEALED = 8,    /* it forbids itself system calls (seccomp): slots may end soon, counters go on */

    /* 1: reads of a descriptor */
    VT_READ = 16,
    VT_PREAD = 17,
    VT_READV = 18,
    VT_PREADV = 19,
    VT_SENDFILE_IN = 20, /* the file that sendfile read */
    VT_COPY_IN = 21,     /* copy_file_range */
    VT_SPLICE_IN = 22,

    /* 2: writes to a descriptor */
    VT_WRITE = 32,
    VT_PWRITE = 33,
    VT_WRITEV = 34,
    VT_PWRITEV = 35,
    VT_SENDFILE_OUT = 36,
    VT_COPY_OUT = 37,
    VT_SPLICE_OUT = 38,

    /* 3: reads of a stdio stream: bytes that the caller got */
    VT_FREAD = 48,
    VT_FGETS = 49, /* getline and getdelim, too */
    VT_FGETC = 50,
    VT_FSCANF = 51,

    /* 4: writes to a stdio stream: bytes that the caller gave */
    VT_FWRITE = 64,
    VT_FPUTS = 65,
    VT_FPUTC = 66,
    VT_FPRINTF = 67,

    /* 5, 6: calls on descriptors and names that move no data */
    VT_OPEN = 80,
    VT_CLOSE = 81,
    VT_DUP = 82, /* result is the new descriptor */
    VT_LSEEK = 83,
    VT_STAT = 84,   /* by name, with or without following links; statx */
    VT_FSTAT = 85,  /* of a descriptor */
    VT_ACCESS = 86,
    VT_UNLINK = 87, /* rmdir, too */
    VT_RENAME = 88,
    VT_MKDIR = 89,
    VT_TRUNCATE = 90,
    VT_FALLOCATE = 91,
    VT_FADVISE = 92,
    VT_OPENDIR = 93,
    VT_READDIR = 94, /* entries since the last such slot: those that came at once take no time here */
    VT_LINK = 95,    /* symlink, too: file is what is linked to */
    VT_READLINK = 96,
    VT_CHANGE = 97, /* of mode, owner or times */

    /* 7: calls on stdio streams that move no data for the caller */
    VT_FOPEN = 112, /* fdopen and freopen, too */
    VT_FCLOSE = 113,
    VT_FSEEK = 114,
    VT_FFLUSH = 115,

    /* 8: waiting for storage */
    VT_FSYNC = 128,
    VT_FDATASYNC = 129,
    VT_SYNC_RANGE = 130,
    VT_MSYNC = 131,

    /* 9: files in memory. What is read of a mapping is in no slot: it is page faults. */
    VT_MMAP = 144,
    VT_MUNMAP = 145,
};

/* What is no longer written call by call: totals of one file, calls that have a slot not included.
 * Times are sums over calls. One record a file and layer; `file` 0 holds all files that have none
 * of their own. Updated in place, without a check. */
struct vt_counters {
    uint32_t file;
    uint8_t layer; /* 1: descriptors, 2: stdio; 0: this record is not used */
    uint8_t unused[3];
    uint64_t first_ns, last_ns; /* start of the first call, end of the last one */
    uint64_t reads, writes, opens, closes, seeks, stats, others, syncs, maps;
    uint64_t failed; /* of all these */
    uint64_t bytes_read, bytes_written;
    uint64_t read_ns, write_ns, metadata_ns, sync_ns; /* metadata: opens to others, maps */
    uint64_t read_end, write_end;                     /* the last byte that was touched, plus 1 */
    uint32_t read_sizes[10], write_sizes[10];         /* calls by bytes moved: see vt_size_class */
    uint8_t rest[8];
};

/* Upper borders of the first nine classes of `read_sizes`, as in Darshan: a call of exactly 100
 * bytes is in the first. */
#define VT_SIZE_BORDERS                                                                              \
    { 100, 1024, 10240, 102400, 1048576, 4194304, 10485760, 104857600, 1073741824 }

/* Linux adds what a child read to the count of the parent that waits for it (wait_task_zombie). */
enum vt_children {
    VT_CHILDREN_UNKNOWN = 0,
    VT_CHILDREN_WAITED = 1,  /* at the end every child that had ended was waited for, or none was there */
    VT_CHILDREN_REMAIN = 2,  /* some were not, or nobody need wait for them (SIGCHLD is ignored) */
};

enum vt_reason {
    VT_NOTHING_MISSING = 0,
    VT_LIMIT = 1,   /* as many calls as were allowed are recorded one by one */
    VT_NO_SPACE = 2 /* the file system, a quota or the file's own room is full */
};

struct vt_header {
    char magic[8];
    uint32_t version;
    uint32_t chunk_bytes, slot_bytes, counter_bytes; /* as above: others are another version */
    int32_t pid, parent_pid;
    uint32_t user_id;
    uint32_t how;                /* how it began: 0 exec, 1 fork */
    uint64_t start_monotonic_ns; /* when recording began, and the same instant... */
    uint64_t start_realtime_ns;  /* ...of the system's clock, since 1970... */
    uint64_t anchor_error_ns;    /* ...to so many ns */
    uint64_t end_monotonic_ns;   /* 0: the process was killed, or goes on */
    uint64_t end_realtime_ns;
    uint64_t event_limit;
    uint64_t room_chunks; /* the file has no room for more */
    uint64_t chunks;      /* handed out so far, the first one counted as 1: chunk i lies at 65536 * i */
    uint64_t counters;    /* records at offset 4096 that may be in use */
    uint64_t missing_since_ns; /* from here on some calls are in counters alone; 0: none is */
    uint64_t missing_calls;
    uint32_t missing_reason; /* enum vt_reason */
    uint32_t names_missing;  /* file names that were not written */
    uint64_t other_read_bytes, other_written_bytes; /* moved by the same calls, but through pipes,
                                terminals, sockets and files that are left out */
    int64_t rchar, wchar, read_bytes, write_bytes;  /* /proc/self/io at the end; -1: not known */
    int64_t rchar_start, wchar_start;               /* and at the start; -1: not known */
    char host[64];  /* NUL-terminated, as the rest */
    char program[256]; /* /proc/self/exe; arguments are in no file */
    char tracer[32];   /* version of the library */
    uint32_t children; /* enum vt_children; 0 in files of older libraries */
    uint32_t written_every_ms; /* 0: what a process that is killed has done is there. Else what it did
                                  for so long before its end may be missing, and since its last call */
};

/* The check of a slot that lies `position` bytes after the beginning of its file: the upper 16 bits
 * of a sum, modulo 2^64, of its five 64-bit words (the check itself taken as 0) times odd numbers. */
static inline uint16_t vt_check(const uint64_t word[5], uint64_t position) {
    uint64_t sum = 0x9e3779b97f4a7c15u * (position + 1);
    sum += word[0] * 0xbf58476d1ce4e5b9u;
    sum += word[1] * 0x94d049bb133111ebu;
    sum += word[2] * 0xd6e8feb86659fd93u;
    sum += word[3] * 0xa0761d6478bd642fu;
    sum += (word[4] & 0x0000ffffffffffffu) * 0xe7037ed1a0b428dbu;
    return (uint16_t)(sum >> 48);
}

_Static_assert(sizeof(struct vt_slot) == VT_SLOT_BYTES, "a slot has 40 bytes");
_Static_assert(sizeof(struct vt_name_slot) == VT_SLOT_BYTES, "a slot has 40 bytes");
_Static_assert(sizeof(struct vt_counters) == VT_COUNTER_BYTES, "a record of counters has 256 bytes");
_Static_assert(sizeof(struct vt_header) <= VT_PAGE, "the header has a page");

#endif
