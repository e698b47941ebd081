/* What the parts of the tracer know of each other.
 *
 *   store.c   the file of the process: chunks, slots, counters, names; forks
 *   files.c   which file a descriptor or a path is
 *   posix.c   calls on descriptors and names
 *   stdio.c   calls on streams
 *
 * The program must not notice any of it. So nothing here allocates from the heap, takes a lock, keeps
 * a descriptor or prints; errno is put back; the program's memory is looked at only after the kernel
 * has accepted it; and after a vfork the child touches nothing, as its memory is its parent's.
 */
#ifndef VANIDL_TRACER_H
#define VANIDL_TRACER_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "format.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
/* The address of an _Atomic object as the builtins of both gcc and clang take it. */
#define VT_AT(address) ((__typeof__(1 ? *(address) : *(address)) *)(address))
#define HIDDEN __attribute__((visibility("hidden")))

/* ---- system calls of our own: never through libc, whose functions are wrapped, too ---- */

#if defined(__x86_64__)
static inline long vt_system(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static inline long vt_system(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#else
#error "x86-64 and arm64 alone"
#endif

#define VT_PICK(_0, _1, _2, _3, _4, _5, _6, name, ...) name
#define VT_SYS0(n) vt_system(n, 0, 0, 0, 0, 0, 0)
#define VT_SYS1(n, a) vt_system(n, (long)(a), 0, 0, 0, 0, 0)
#define VT_SYS2(n, a, b) vt_system(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define VT_SYS3(n, a, b, c) vt_system(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define VT_SYS4(n, a, b, c, d) vt_system(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define VT_SYS5(n, a, b, c, d, e)                                                                    \
    vt_system(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define VT_SYS6(n, a, b, c, d, e, f)                                                                 \
    vt_system(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
/* Result or -errno. */
#define VT_SYS(...)                                                                                  \
    VT_PICK(__VA_ARGS__, VT_SYS6, VT_SYS5, VT_SYS4, VT_SYS3, VT_SYS2, VT_SYS1, VT_SYS0)(__VA_ARGS__)

/* ---- the functions that are wrapped ---- */

struct vt_next {
    const char *name;
    void *function; /* the next one of that name, VT_NONE where libc has none; NULL: not looked for */
};
#define VT_NONE ((void *)-1)
HIDDEN void *vt_find(struct vt_next *next);

/* WRAP(type, name, parameters) { body } defines what the program calls as `name`. In the body
 * NEXT(name)(...) is the function that it would have called, CALL(name, SYS_x, ...) the same, or the
 * system call where libc does not know that function yet. */
#define WRAP(type, name_, ...)                                                                       \
    __attribute__((visibility("default"))) type vt_##name_(__VA_ARGS__) __asm__(#name_);             \
    static struct vt_next vt_next_##name_                                                            \
        __attribute__((section("vt_next"), used, aligned(8))) = {#name_, NULL};                      \
    type vt_##name_(__VA_ARGS__)
#define VT_FUNCTION(name)                                                                            \
    (likely(vt_next_##name.function != NULL) ? vt_next_##name.function : vt_find(&vt_next_##name))
#define NEXT(name) ((__typeof__(&vt_##name))VT_FUNCTION(name))
#define CALL(name, number, ...)                                                                      \
    (likely(VT_FUNCTION(name) != VT_NONE)                                                            \
         ? NEXT(name)(__VA_ARGS__)                                                                   \
         : (__typeof__(NEXT(name)(__VA_ARGS__)))vt_returned(VT_SYS(number, __VA_ARGS__)))

/* What a system call returned, as libc returns it. */
static inline long vt_returned(long result) {
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

/* ---- store.c ---- */

struct vt_thread { /* of a thread, in static storage of its own */
    uint32_t generation;
    uint32_t busy;          /* inside a part that a signal handler must not enter again */
    uint32_t maybe_vforked; /* this memory may be seen by the child of a vfork, too */
    int32_t id;
    uint8_t *chunk, *next, *ready, *end; /* its chunk; next slot; up to where pages are there */
    uint8_t *full;                       /* the chunk before, where it is still to be written */
    void *directory;                     /* whose entries were last read... */
    uint32_t directory_file;
    uint64_t entries;                    /* ...and how many of them since its last slot */
};
extern HIDDEN __thread struct vt_thread vt_me __attribute__((tls_model("initial-exec")));

struct vt_wiped { /* a page that is all zero in a forked child */
    _Atomic uint32_t generation;
};

struct vt_state {
    bool on;     /* this program is recorded */
    bool sealed; /* it has forbidden itself system calls: we make none any more */
    struct vt_wiped *wiped;
    uint32_t generation; /* of this process: 1 more than that of the one that forked it */
    int32_t pid;
    _Atomic uint32_t forks, spawns; /* after which positions of descriptors may be moved by others */
    _Atomic uint32_t full;          /* calls are no longer recorded one by one */
    uint8_t *base;                  /* the mapped file, or what it is written from */
    bool written;                   /* the file is not mapped but written (store.c) */
    _Atomic uint64_t write_at;      /* when next; never where it is mapped */
};
extern HIDDEN struct vt_state vt;

static inline uint64_t vt_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* in the vDSO: no system call */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* When a call begins that may be recorded. */
static inline uint64_t vt_start(void) { return vt.on ? vt_now() : 0; }

/* Whether this is the child of a vfork, which shares our memory. */
HIDDEN bool vt_is_vforked(void);
/* Whether calls of this thread are recorded now; begins a file where this process was forked. */
HIDDEN bool vt_begun(void);
static inline bool vt_recording(void) {
    if (!vt.on || unlikely(vt_me.maybe_vforked && vt_is_vforked())) return false;
    return likely(vt.wiped->generation == vt.generation) || vt_begun();
}

struct vt_event {
    uint8_t call;
    uint32_t file;
    uint64_t start;
    int64_t offset;
    uint64_t size;
    int64_t result; /* or -errno */
};
/* A call that ends now; `file_and_call` is file | call << 32. In registers: put together in memory and
 * read from there it took longer. */
HIDDEN void vt_put_in(uint64_t start, int64_t offset, int64_t result, uint64_t size, uint64_t file_and_call);
static inline void vt_put(const struct vt_event *call) {
    vt_put_in(call->start, call->offset, call->result, call->size, call->file | (uint64_t)call->call << 32);
}
/* Number of a file name; 0 where there is no room for it. The name is written down once. */
HIDDEN uint32_t vt_number(const char *name, size_t length);
/* Writes the name of a number down once more if this process has not yet: it was forked. */
HIDDEN void vt_keep_name(uint32_t file);
/* The name of a number into a buffer; its length, 0 where it does not fit or is not known. */
HIDDEN size_t vt_name(uint32_t file, char *buffer, size_t room);
HIDDEN void vt_moved_elsewhere(bool read, uint64_t nbytes);
/* The process ends, or becomes another program (which may fail: `again`). */
HIDDEN void vt_ends(void);
HIDDEN void vt_goes_on(void);
HIDDEN void vt_seal(void);
HIDDEN void *vt_memory(size_t nbytes);

/* ---- files.c ---- */

enum { VT_APPEND = 1, VT_CLOEXEC = 2, VT_SHARED = 4 };
#define VT_UNKNOWN (-1)
#define VT_LEFT_OUT UINT32_MAX /* in the place of a file's number */

struct vt_file { /* what open(2) made: descriptors that are copies of each other share it */
    _Atomic uint32_t users;
    _Atomic uint32_t file;
    uint32_t generation;
    uint32_t forks, spawns; /* when its position was known to be ours alone */
    uint32_t flags;
    _Atomic int64_t position; /* VT_UNKNOWN: ask */
    uint32_t index;
    _Atomic uint32_t next_free;
};

struct vt_descriptor {
    _Atomic uint32_t index;          /* of its vt_file; 0: not looked at, 1: nothing that is recorded */
    _Atomic int64_t stream_position; /* of the stream on it; VT_UNKNOWN: none was used yet */
};

/* The file of a descriptor, NULL where it is nothing that is recorded. errno may change. */
HIDDEN struct vt_file *vt_file_of(int descriptor);
/* The number of a path as the program gave it; VT_LEFT_OUT where it is not recorded. */
HIDDEN uint32_t vt_path(int folder, const char *path);
HIDDEN void vt_opened(int descriptor, uint32_t file, int flags);
/* Before a descriptor is closed: its vt_file, of which the caller says `vt_let_go` later. */
HIDDEN struct vt_file *vt_take(int descriptor);
HIDDEN void vt_let_go(struct vt_file *file);
HIDDEN void vt_copied(int from, int to);
HIDDEN struct vt_descriptor *vt_descriptor(int descriptor);
HIDDEN int vt_next_used(int descriptor, int last);
/* Where r bytes that were moved at the file's position began, the position moves on. */
HIDDEN int64_t vt_advance(struct vt_file *file, int descriptor, int64_t moved, bool writing);
HIDDEN void vt_changed_folder(void);
HIDDEN void vt_leave_out(const char *folder);

#endif
