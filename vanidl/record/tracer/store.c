/* The file of a process: chunks for its threads, slots, counters and names; and how a process begins.
 *
 * The file is made as long as it may get, mapped whole, and its descriptor closed at once: whatever
 * the program does with descriptors, folders or limits afterwards does not reach it. It is sparse.
 * Before a page of it is used the kernel is asked to write to it: where no space is left that
 * fails with EFAULT, while a store by the program would end it by SIGBUS.
 *
 * That holds where the first write to a page settles where it goes: ext4, xfs, tmpfs. Who copies on
 * write (btrfs) or asks a server (Lustre, NFS) settles it anew each time the page was written back,
 * and where a quota is used up by then the next store ends the program by SIGBUS. There the "file" is
 * memory of the process, and calls whose errors are ours alone write it: a chunk when it is full, all
 * else every two seconds and at the end.
 */
#include "tracer.h"

#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef VT_TRACER_VERSION
#define VT_TRACER_VERSION ""
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum {
    DEFAULT_EVENTS = 2000000,
    THREAD_CHUNKS = 1024,  /* room for chunks that threads do not fill */
    LEAST_CHUNKS = 8,
    FIRST_COUNTERS = (VT_CHUNK_BYTES - VT_PAGE) / VT_COUNTER_BYTES,
    CHUNK_COUNTERS = VT_CHUNK_BYTES / VT_COUNTER_BYTES - 1,
    COUNTER_CHUNKS = 256,
    TOUCHED_COUNTERS = 2 * VT_PAGE / VT_COUNTER_BYTES, /* backed from the beginning */
    KEYS_WITHOUT_HEAP = 32,
    NUMBERS = 1 << 12, /* of names in one block */
    NUMBER_BLOCKS = 512,
    WRITE_EVERY_MS = 2000,
    NAME_BYTES = 1 << 24, /* of names that are needed again, where the file is written */
    BUSY = -1, /* generation while a child begins its file */
};

__thread struct vt_thread vt_me __attribute__((tls_model("initial-exec")));
struct vt_state vt;

static char folder[3072]; /* that files are made in */
static uint64_t event_limit = DEFAULT_EVENTS;
static pthread_key_t thread_key;
static bool has_thread_key;

static char file_path[sizeof folder + 64];
static bool never_mapped; /* asked for: for tests where every file system is safe */
static uint64_t safe_overlay; /* the first half of f_fsid of an overlay known to be safe, 0: of none */

static struct vt_header *header;
static struct { /* of the file of this process */
    size_t nbytes;
    _Atomic uint64_t slots_used; /* in chunks that are full */
    _Atomic uint64_t free_chunk; /* stack of chunks of threads that ended: count << 32 | chunk */
    _Atomic uint32_t counter_chunk[COUNTER_CHUNKS];
} space;

struct rest_of_chunk { /* of a thread that ended */
    _Atomic uint32_t below; /* next chunk of the stack */
    uint32_t used;          /* bytes of it */
    bool is_written;        /* whole, and its memory given back */
};
static struct rest_of_chunk *rests;
static uint64_t room_for_rests;

void *vt_memory(size_t nbytes) {
    long where = VT_SYS(SYS_mmap, NULL, nbytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return where < 0 && where > -4096 ? NULL : (void *)where;
}

/* ---- functions that are wrapped ---- */

void *vt_find(struct vt_next *next) {
    int error = errno;
    void *found = dlsym(RTLD_NEXT, next->name);
    next->function = found ? found : VT_NONE;
    errno = error;
    return next->function;
}

extern struct vt_next __start_vt_next[] HIDDEN, __stop_vt_next[] HIDDEN;

static void find_all(void) {
    for (struct vt_next *next = __start_vt_next; next < __stop_vt_next; next++)
        if (!next->function) vt_find(next);
    (void)dlerror(); /* what libc has not is no error of the program */
}

/* ---- beginning ---- */

static bool back_page(void *page) {
    if (vt.written) return true;
    if (vt.sealed) return false;
    /* The kernel writes the time there, or fails: no signal. */
    if (VT_SYS(SYS_clock_gettime, CLOCK_MONOTONIC, page)) return false;
    memset(page, 0, sizeof(struct timespec));
    return true;
}

static uint64_t realtime(uint64_t *monotonic, uint64_t *error) {
    uint64_t real = 0;
    *error = UINT64_MAX;
    for (int i = 0; i < 3; i++) {
        struct timespec now;
        uint64_t before = vt_now();
        clock_gettime(CLOCK_REALTIME, &now);
        uint64_t after = vt_now();
        if (after - before < *error) {
            *error = after - before;
            *monotonic = before + (after - before) / 2;
            real = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        }
    }
    return real;
}

static void put_decimal(char **text, uint64_t number) {
    char digits[20];
    int n = 0;
    do digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    while (n) *(*text)++ = digits[--n];
}

static void read_accounts(int64_t *rchar, int64_t *wchar, int64_t *read_bytes, int64_t *write_bytes) {
    char text[512];
    *rchar = *wchar = -1;
    if (read_bytes) *read_bytes = *write_bytes = -1;
    if (vt.sealed) return;
    int file = (int)VT_SYS(SYS_openat, AT_FDCWD, "/proc/self/io", O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return;
    long n = VT_SYS(SYS_read, file, text, sizeof text - 1);
    VT_SYS(SYS_close, file);
    text[n < 0 ? 0 : n] = 0;
    for (char *line = text; *line;) {
        char *colon = strchr(line, ':'), *end = strchr(line, '\n');
        if (!colon || !end) return;
        int64_t value = 0;
        for (char *c = colon + 2; *c >= '0' && *c <= '9'; c++) value = value * 10 + (*c - '0');
        size_t length = (size_t)(colon - line);
        if (length == 5) *(line[0] == 'r' ? rchar : wchar) = value;
        if (read_bytes && length == 10 && line[0] == 'r') *read_bytes = value;
        if (read_bytes && length == 11 && line[0] == 'w') *write_bytes = value;
        line = end + 1;
    }
}

/* Whether the count of /proc/self/io has that of each child that has ended: looks for one that nobody
 * has waited for, and leaves it as it is. */
static enum vt_children look_at_children(void) {
    struct sigaction of_children;
    siginfo_t child = {0};
    if (vt.sealed) return VT_CHILDREN_UNKNOWN;
    if (sigaction(SIGCHLD, NULL, &of_children)) return VT_CHILDREN_UNKNOWN;
    if (of_children.sa_handler == SIG_IGN || of_children.sa_flags & SA_NOCLDWAIT)
        return VT_CHILDREN_REMAIN;
    long failed = VT_SYS(SYS_waitid, P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT | __WALL, NULL);
    if (failed == -ECHILD) return VT_CHILDREN_WAITED;
    if (failed) return VT_CHILDREN_UNKNOWN;
    return child.si_pid ? VT_CHILDREN_REMAIN : VT_CHILDREN_WAITED;
}

/* Opens a file even where the program has used up its descriptors, if its hard limit allows. */
static int open_file(const char *path, int how) {
    int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | how;
    int file = (int)VT_SYS(SYS_openat, AT_FDCWD, path, flags, 0600);
    if (file != -EMFILE) return file;
    struct rlimit limit, more;
    if (VT_SYS(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit) || limit.rlim_cur >= limit.rlim_max)
        return file;
    more = (struct rlimit){limit.rlim_cur + 1, limit.rlim_max};
    VT_SYS(SYS_prlimit64, 0, RLIMIT_NOFILE, &more, NULL);
    file = (int)VT_SYS(SYS_openat, AT_FDCWD, path, flags, 0600);
    VT_SYS(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, NULL);
    return file;
}

/* Whether pages of a mapped file that could be written to once can be written to ever after. */
static bool has_safe_pages(int file) {
    struct statfs found;
    if (never_mapped || VT_SYS(SYS_fstatfs, file, &found)) return false;
    switch ((uint32_t)found.f_type) {
    case 0xEF53:     /* ext2, ext3, ext4 */
    case 0x58465342: /* xfs */
    case 0x01021994: /* tmpfs */
    case 0x858458f6: /* ramfs */
        return true;
    case 0x794c7630: /* overlay: pages are those of its upper layer, which only the recorder can look up */
        return safe_overlay && safe_overlay == (uint32_t)found.f_fsid.__val[0];
    }
    return false;
}

/* Writes a part of the file; false where that is not possible. */
static bool write_part(int file, const uint8_t *from, size_t nbytes) {
    uint64_t at = (uint64_t)(from - vt.base);
    struct rlimit limit; /* beyond it a write raises SIGXFSZ */
    if (!VT_SYS(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit) && limit.rlim_cur < at + nbytes)
        return false;
    while (nbytes) {
        long n = VT_SYS(SYS_pwrite64, file, from, nbytes, at);
        if (n == -EINTR) continue;
        if (n <= 0) return false;
        from += n, at += (uint64_t)n, nbytes -= (size_t)n;
    }
    return true;
}

static void stop(enum vt_reason reason);
static void count_slots(const uint8_t *chunk, const uint8_t *kept);

/* Of a chunk that cannot be written those calls are counted that the file does not hold yet. */
static void give_up(int file, const uint8_t *chunk) {
    stop(VT_NO_SPACE); /* from here on nobody takes slots */
    uint8_t *kept = vt_memory(VT_CHUNK_BYTES);
    if (kept && file >= 0) VT_SYS(SYS_pread64, file, kept, VT_CHUNK_BYTES, chunk - vt.base);
    count_slots(chunk, kept);
    if (kept) VT_SYS(SYS_munmap, kept, VT_CHUNK_BYTES);
    rests[(chunk - vt.base) / VT_CHUNK_BYTES].is_written = true;
}

/* Writes a chunk that nobody writes slots to any more, and gives its memory back. */
static void write_chunk(uint8_t *chunk) {
    int file = open_file(file_path, 0);
    if (file >= 0 && write_part(file, chunk, VT_CHUNK_BYTES)) {
        rests[(chunk - vt.base) / VT_CHUNK_BYTES].is_written = true;
        VT_SYS(SYS_madvise, chunk, VT_CHUNK_BYTES, MADV_DONTNEED);
    } else {
        give_up(file, chunk);
    }
    if (file >= 0) VT_SYS(SYS_close, file);
}

/* Writes all that is not yet: chunks, then counters, then the header that says how many there are. */
static bool write_all(void) {
    int file = open_file(file_path, 0);
    if (file < 0) {
        stop(VT_NO_SPACE);
        return false;
    }
    uint64_t room = 0; /* the recorder takes it away to have recording stopped */
    size_t place = offsetof(struct vt_header, room_chunks);
    if (VT_SYS(SYS_pread64, file, &room, sizeof room, place) == sizeof room && room < header->room_chunks &&
        header->written_every_ms)
        header->room_chunks = room;
    header->written_every_ms = WRITE_EVERY_MS;
    uint64_t chunks = __atomic_load_n(VT_AT(&header->chunks), __ATOMIC_ACQUIRE), made = space.nbytes;
    for (uint64_t i = 1; i < chunks && i < made / VT_CHUNK_BYTES; i++) {
        uint8_t *chunk = vt.base + i * VT_CHUNK_BYTES;
        if (!rests[i].is_written && !write_part(file, chunk, VT_CHUNK_BYTES)) give_up(file, chunk);
    }
    uint64_t counters = header->counters < FIRST_COUNTERS ? header->counters : FIRST_COUNTERS;
    bool done = write_part(file, vt.base + VT_PAGE, counters * VT_COUNTER_BYTES);
    done = done && write_part(file, vt.base, VT_PAGE);
    VT_SYS(SYS_close, file);
    if (!done) stop(VT_NO_SPACE);
    return done;
}

/* It is time to, unless another thread does it. */
__attribute__((noinline)) static void write_in_turn(uint64_t now) {
    uint64_t due = vt.write_at;
    if (vt.sealed || vt_me.busy || now < due ||
        !__atomic_compare_exchange_n(VT_AT(&vt.write_at), &due, now + WRITE_EVERY_MS * 1000000ull, false,
                                     __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    vt_me.busy = 1;
    write_all();
    vt_me.busy = 0;
}

/* Makes a new file for this process; false where there is no room for one. */
static bool make_file(uint64_t monotonic) {
    char *path = file_path, *end = path + strlen(folder);
    memcpy(path, folder, (size_t)(end - path));
    *end++ = '/';
    put_decimal(&end, (uint64_t)vt.pid);
    *end++ = '-';
    put_decimal(&end, monotonic);
    memcpy(end, ".calls", sizeof ".calls");

    struct rlimit limit;
    uint64_t most = UINT64_MAX; /* beyond it making a file long raises SIGXFSZ */
    if (!VT_SYS(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit)) most = limit.rlim_cur;
    uint64_t chunks = event_limit / (VT_SLOTS - 1) + 1 + THREAD_CHUNKS;
    while (chunks > LEAST_CHUNKS && chunks * VT_CHUNK_BYTES > most) chunks /= 2;
    if (chunks * VT_CHUNK_BYTES > most) return false;
    int file = open_file(path, O_CREAT | O_EXCL);
    if (file < 0) return false;
    vt.written = !has_safe_pages(file);
    vt.write_at = UINT64_MAX;
    long mapped = -1;
    for (; chunks >= LEAST_CHUNKS; chunks /= 2) { /* less where address space is limited */
        space.nbytes = chunks * VT_CHUNK_BYTES;
        if (VT_SYS(SYS_ftruncate, file, space.nbytes)) continue;
        int how = vt.written ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
        mapped = VT_SYS(SYS_mmap, NULL, space.nbytes, PROT_READ | PROT_WRITE, how, vt.written ? -1 : file, 0);
        if (mapped > 0 || mapped < -4095) break;
    }
    VT_SYS(SYS_close, file);
    bool made = mapped > 0 || mapped < -4095;
    for (int page = 0; made && page < 3; page++)
        made = back_page((uint8_t *)mapped + page * VT_PAGE);
    if (!made) {
        VT_SYS(SYS_unlinkat, AT_FDCWD, path, 0);
        return false;
    }
    vt.base = (uint8_t *)mapped;
    return true;
}

static bool begin(uint32_t how) {
    uint64_t monotonic, error, real = realtime(&monotonic, &error);
    vt.pid = (int32_t)VT_SYS(SYS_getpid);
    if (!make_file(monotonic)) return false;
    header = (struct vt_header *)vt.base;
    memset(&space.slots_used, 0, sizeof space - offsetof(__typeof__(space), slots_used));
    vt.full = false;
    struct utsname system;
    memcpy(header->magic, VT_MAGIC, sizeof header->magic);
    header->version = VT_VERSION;
    header->chunk_bytes = VT_CHUNK_BYTES;
    header->slot_bytes = VT_SLOT_BYTES;
    header->counter_bytes = VT_COUNTER_BYTES;
    header->pid = vt.pid;
    header->parent_pid = (int32_t)VT_SYS(SYS_getppid);
    header->user_id = (uint32_t)VT_SYS(SYS_getuid);
    header->how = how;
    header->start_monotonic_ns = monotonic;
    header->start_realtime_ns = real;
    header->anchor_error_ns = error;
    header->event_limit = event_limit;
    header->room_chunks = space.nbytes / VT_CHUNK_BYTES;
    header->rchar = header->wchar = header->read_bytes = header->write_bytes = -1;
    read_accounts(&header->rchar_start, &header->wchar_start, NULL, NULL);
    if (!VT_SYS(SYS_uname, &system)) strncpy(header->host, system.nodename, sizeof header->host - 1);
    VT_SYS(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", header->program, sizeof header->program - 1);
    strncpy(header->tracer, VT_TRACER_VERSION, sizeof header->tracer - 1);
    struct vt_counters *others = (struct vt_counters *)(vt.base + VT_PAGE);
    others[0].layer = 1; /* two records for what has none of its own */
    others[1].layer = 2;
    header->counters = 2;
    __atomic_store_n(VT_AT(&header->chunks), 1, __ATOMIC_RELEASE);
    if (vt.written) {
        memset(rests, 0, room_for_rests * sizeof *rests);
        if (!write_all()) {
            VT_SYS(SYS_unlinkat, AT_FDCWD, file_path, 0);
            return false;
        }
        vt.write_at = monotonic + WRITE_EVERY_MS * 1000000ull;
    }
    return true;
}

bool vt_begun(void) {
    uint32_t none = 0;
    int error = errno;
    if (!vt.on || vt.sealed ||
        !__atomic_compare_exchange_n(VT_AT(&vt.wiped->generation), &none, (uint32_t)BUSY, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return false;
    bool begun = begin(1);
    errno = error;
    if (!begun) {
        vt.on = false;
        return false;
    }
    __atomic_store_n(VT_AT(&vt.generation), vt.generation + 1, __ATOMIC_RELAXED);
    __atomic_store_n(VT_AT(&vt.wiped->generation), vt.generation, __ATOMIC_RELEASE);
    return true;
}

bool vt_is_vforked(void) {
    if ((int32_t)VT_SYS(SYS_getpid) != vt.pid && vt.wiped->generation == vt.generation) return true;
    vt_me.maybe_vforked = 0;
    return false;
}

static void hand_chunk_over(void *thread);

static uint64_t number_in(const char *text, uint64_t otherwise) {
    uint64_t number = 0;
    for (; text && *text >= '0' && *text <= '9' && number < UINT32_MAX; text++)
        number = number * 10 + (uint64_t)(*text - '0');
    return number ? number : otherwise;
}

__attribute__((constructor(101))) static void start(void) {
    int error = errno;
    find_all();
    const char *given = getenv("VANIDL_TRACER"), *otherwise = getenv("VANIDL_TRACER_OTHERWISE");
    /* A folder of the host that records is not there on others: these write to where all can. */
    if (given && otherwise && VT_SYS(SYS_faccessat, AT_FDCWD, given, W_OK)) given = otherwise;
    size_t length = given ? strlen(given) : 0;
    if (length && length < sizeof folder && given[0] == '/') {
        memcpy(folder, given, length + 1);
        event_limit = number_in(getenv("VANIDL_TRACER_EVENTS"), DEFAULT_EVENTS);
        never_mapped = number_in(getenv("VANIDL_TRACER_NEVER_MAPPED"), 0) != 0;
        safe_overlay = number_in(getenv("VANIDL_TRACER_SAFE_OVERLAY"), 0);
        vt.wiped = vt_memory(VT_PAGE);
        /* Before Linux 4.14 the wrappers of fork alone tell that a child is another process. */
        if (vt.wiped) VT_SYS(SYS_madvise, vt.wiped, VT_PAGE, MADV_WIPEONFORK);
        room_for_rests = event_limit / (VT_SLOTS - 1) + 1 + THREAD_CHUNKS;
        rests = vt_memory(room_for_rests * sizeof *rests);
        has_thread_key = !pthread_key_create(&thread_key, hand_chunk_over);
        if (has_thread_key && thread_key >= KEYS_WITHOUT_HEAP) has_thread_key = false;
        vt_changed_folder();
        vt_leave_out(getenv("VANIDL_RUN"));
        if (vt.wiped && rests && begin(0)) {
            vt.wiped->generation = vt.generation = 1;
            vt.on = true;
        }
    }
    errno = error;
}

void vt_ends(void) {
    int error = errno;
    if (vt_recording()) {
        uint64_t monotonic, width, real = realtime(&monotonic, &width);
        header->children = look_at_children();
        read_accounts(&header->rchar, &header->wchar, &header->read_bytes, &header->write_bytes);
        header->end_realtime_ns = real;
        __atomic_store_n(VT_AT(&header->end_monotonic_ns), monotonic, __ATOMIC_RELEASE);
        if (vt.written && !vt.sealed) write_all();
    }
    errno = error;
}

void vt_goes_on(void) {
    if (!vt_recording()) return;
    header->end_monotonic_ns = header->end_realtime_ns = 0;
    if (vt.written) vt.write_at = 0;
}

__attribute__((destructor(101))) static void finish(void) { vt_ends(); }

/* ---- chunks and slots ---- */

/* The last word, which holds the check, is written last. */
static inline void write_words(uint8_t *where, uint64_t words[5]) {
    words[4] |= (uint64_t)vt_check(words, (uint64_t)(where - vt.base)) << 48;
    memcpy(where, words, 4 * sizeof *words);
    __atomic_store_n((uint64_t *)(where + 4 * sizeof *words), words[4], __ATOMIC_RELEASE);
}

static void write_slot(uint8_t *where, struct vt_slot slot) {
    uint64_t words[5];
    slot.check = 0;
    memcpy(words, &slot, sizeof words);
    write_words(where, words);
}

static void stop(enum vt_reason reason) {
    if (__atomic_exchange_n(VT_AT(&vt.full), true, __ATOMIC_RELAXED)) return;
    header->missing_reason = reason;
    header->missing_since_ns = vt_now();
}

static void hand_chunk_over(void *thread) {
    struct vt_thread *me = thread;
    if (!me->chunk || me->generation != vt.generation) return;
    if (me->full && !vt.sealed) write_chunk(me->full);
    me->full = NULL;
    if (me->end - me->next < 8 * VT_SLOT_BYTES) {
        __atomic_fetch_add(VT_AT(&space.slots_used), VT_SLOTS - 1, __ATOMIC_RELAXED);
        me->chunk = me->next = me->ready = me->end = NULL;
        return;
    }
    uint32_t chunk = (uint32_t)((me->chunk - vt.base) / VT_CHUNK_BYTES);
    rests[chunk].used = (uint32_t)(me->next - me->chunk);
    me->chunk = me->next = me->ready = me->end = NULL;
    uint64_t top = space.free_chunk, changed;
    do {
        rests[chunk].below = (uint32_t)top;
        changed = ((top >> 32) + 1) << 32 | chunk;
    } while (!__atomic_compare_exchange_n(VT_AT(&space.free_chunk), &top, changed, false, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
}

/* A chunk for this thread, or for counters; NULL where there is none. */
static uint8_t *take_chunk(uint32_t *used, bool whole) {
    uint64_t top = space.free_chunk;
    while (!whole && (uint32_t)top) {
        uint32_t chunk = (uint32_t)top;
        uint64_t changed = ((top >> 32) + 1) << 32 | rests[chunk].below;
        if (__atomic_compare_exchange_n(VT_AT(&space.free_chunk), &top, changed, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_ACQUIRE)) {
            *used = rests[chunk].used;
            return vt.base + (uint64_t)chunk * VT_CHUNK_BYTES;
        }
    }
    uint64_t chunk = __atomic_load_n(VT_AT(&header->chunks), __ATOMIC_RELAXED);
    do
        if (chunk >= header->room_chunks || chunk >= room_for_rests) return NULL;
    while (!__atomic_compare_exchange_n(VT_AT(&header->chunks), &chunk, chunk + 1, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
    *used = 0;
    return vt.base + chunk * VT_CHUNK_BYTES;
}

static bool back_until(uint8_t *where) {
    struct vt_thread *me = &vt_me;
    if (vt.written) me->ready = me->chunk + VT_CHUNK_BYTES;
    while (me->ready < where) {
        size_t ahead = (size_t)(me->chunk + VT_CHUNK_BYTES - me->ready);
        if (space.slots_used && !vt.sealed && /* more is likely to come; from Linux 5.14 on */
            !VT_SYS(SYS_madvise, me->ready, ahead, MADV_POPULATE_WRITE)) {
            me->ready += ahead;
            continue;
        }
        if (!back_page(me->ready)) {
            stop(VT_NO_SPACE);
            return false;
        }
        me->ready += VT_PAGE;
    }
    return true;
}

static void start_chunk(uint8_t *chunk, uint32_t used) {
    struct vt_thread *me = &vt_me;
    if (me->generation != vt.generation || !me->id) me->id = (int32_t)VT_SYS(SYS_gettid);
    if (me->generation != vt.generation) me->full = NULL;
    me->generation = vt.generation;
    me->chunk = chunk;
    me->end = chunk + VT_SLOTS * VT_SLOT_BYTES;
    me->ready = chunk + (used + VT_PAGE - 1) / VT_PAGE * VT_PAGE;
    me->next = chunk + used;
}

/* Room for n slots in a row, by a new chunk or more pages of the one at hand. */
__attribute__((noinline)) static uint8_t *make_room(uint8_t *at, size_t n, bool of_name) {
    struct vt_thread *me = &vt_me;
    if (me->busy || (vt.sealed && (!me->chunk || me->generation != vt.generation))) return NULL;
    me->busy = 1;
    uint8_t *slots = NULL;
    size_t nbytes = n * VT_SLOT_BYTES;
    if (me->generation == vt.generation && me->chunk && at >= me->chunk && at + nbytes <= me->end) {
        if (back_until(at + nbytes)) slots = at;
    } else if (vt.sealed) {
        stop(VT_NO_SPACE);
    } else {
        if (me->generation == vt.generation && me->chunk) {
            __atomic_fetch_add(VT_AT(&space.slots_used), VT_SLOTS - 1, __ATOMIC_RELAXED);
            if (vt.written) { /* the one before: a call that a signal handler interrupted may still fill this */
                if (me->full) write_chunk(me->full);
                me->full = me->chunk;
            }
        }
        uint32_t used = 0;
        uint8_t *chunk = NULL;
        if (space.slots_used >= event_limit && !of_name) {
            stop(VT_LIMIT);
        } else {
            chunk = take_chunk(&used, false);
            if (chunk && used + nbytes + VT_SLOT_BYTES > VT_SLOTS * VT_SLOT_BYTES)
                chunk = take_chunk(&used, true); /* the rest of the other one is lost */
            if (!chunk) stop(VT_NO_SPACE);
        }
        if (chunk) {
            start_chunk(chunk, used);
            if (has_thread_key) pthread_setspecific(thread_key, me);
            uint8_t *first = __atomic_fetch_add(VT_AT(&me->next), nbytes + VT_SLOT_BYTES, __ATOMIC_RELAXED);
            if (back_until(first + nbytes + VT_SLOT_BYTES)) {
                struct vt_slot thread = {.result = me->id, .call = VT_THREAD};
                uint64_t error;
                thread.offset = (int64_t)realtime(&thread.start_ns, &error);
                thread.size = error > UINT32_MAX ? UINT32_MAX : (uint32_t)error;
                write_slot(first, thread);
                slots = first + VT_SLOT_BYTES;
            }
        } else {
            me->chunk = me->next = me->ready = me->end = NULL;
        }
    }
    me->busy = 0;
    return slots;
}

/* Adds to what signal handlers of this thread alone may change meanwhile: one instruction, without
 * the lock that other threads would need. Returns what was there before. */
static inline uint8_t *add_here(uint8_t **where, size_t n) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    size_t before = n;
    __asm__ volatile("xaddq %0, %1" : "+r"(before), "+m"(*where) : : "memory", "cc");
    return (uint8_t *)before;
#else
    return __atomic_fetch_add(where, n, __ATOMIC_RELAXED);
#endif
}

/* Signal handlers may come between any two of these lines, and take slots themselves. */
static inline uint8_t *take_slots(size_t n, bool of_name) {
    struct vt_thread *me = &vt_me;
    if (unlikely(!me->chunk || me->generation != vt.generation)) return make_room(NULL, n, of_name);
    uint8_t *at = add_here(&me->next, n * VT_SLOT_BYTES);
    if (likely(at >= me->chunk && at + n * VT_SLOT_BYTES <= me->ready)) return at;
    return make_room(at, n, of_name);
}

/* The program is about to forbid itself system calls: what this thread may need is made now. */
void vt_seal(void) {
    int error = errno;
    if (vt_me.maybe_vforked && vt_is_vforked()) return;
    if (vt_recording()) {
        uint8_t *slot = take_slots(1, false);
        if (slot) {
            write_slot(slot, (struct vt_slot){.start_ns = vt_now(), .call = VT_SEALED});
            back_until(vt_me.end);
        }
        if (vt.written) { /* it cannot be written any more */
            stop(VT_NO_SPACE);
            write_all();
        }
    }
    vt.sealed = true;
    errno = error;
}

/* ---- names: 64-bit hashes -> numbers, in tables that only ever grow ---- */

struct number {
    uint64_t hash;
    struct vt_name_slot *slots; /* where the name was written, by this process or one before a fork */
    _Atomic uint32_t generation; /* of the process that has written it */
    _Atomic uint32_t counters[2]; /* index + 1 of its counters, by layer */
};
static struct number *_Atomic numbers[NUMBER_BLOCKS];
static _Atomic uint32_t last_number;
#define TABLES 3
static const uint32_t table_size[TABLES] = {1u << 13, 1u << 17, 1u << 22};
static _Atomic uint32_t *_Atomic tables[TABLES];
static _Atomic uint32_t in_table[TABLES];

static struct number *number_at(uint32_t file) {
    struct number *block = numbers[file / NUMBERS];
    return block ? block + file % NUMBERS : NULL;
}

static uint64_t hash_of(const char *name, size_t length) {
    uint64_t hash = 0x9e3779b97f4a7c15u ^ length, word;
    for (; length >= 8; name += 8, length -= 8) {
        memcpy(&word, name, 8);
        hash = (hash ^ word) * 0xd6e8feb86659fd93u;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, name, length);
    hash = (hash ^ word) * 0xd6e8feb86659fd93u;
    hash ^= hash >> 29;
    hash *= 0xbf58476d1ce4e5b9u;
    return hash ^ hash >> 32;
}

static bool make_memory(void *_Atomic *where, size_t nbytes) {
    if (*where) return true;
    if (vt.sealed) return false;
    void *made = vt_memory(nbytes), *none = NULL;
    if (!made) return false;
    if (!__atomic_compare_exchange_n(VT_AT(where), &none, made, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        VT_SYS(SYS_munmap, made, nbytes);
    return true;
}

static uint32_t new_number(uint64_t hash) {
    uint32_t file = __atomic_add_fetch(VT_AT(&last_number), 1, __ATOMIC_RELAXED);
    if (file >= NUMBERS * NUMBER_BLOCKS ||
        !make_memory((void *_Atomic *)&numbers[file / NUMBERS], NUMBERS * sizeof(struct number)))
        return 0;
    number_at(file)->hash = hash;
    return file;
}

/* The number of a hash, a new one where it has none; 0 where there is no room. */
static uint32_t look_up(uint64_t hash) {
    uint32_t mine = 0;
    for (int t = 0; t < TABLES; t++) {
        if (!make_memory((void *_Atomic *)&tables[t], table_size[t] * sizeof(uint32_t))) return 0;
        bool is_full = in_table[t] > table_size[t] / 2;
        uint32_t mask = table_size[t] - 1;
        for (uint32_t at = (uint32_t)hash & mask;; at = (at + 1) & mask) {
            uint32_t found = __atomic_load_n(VT_AT(&tables[t][at]), __ATOMIC_ACQUIRE);
            if (!found && is_full) break; /* it would be in the next one */
            if (!found) {
                if (!mine && !(mine = new_number(hash))) return 0;
                if (__atomic_compare_exchange_n(VT_AT(&tables[t][at]), &found, mine, false, __ATOMIC_ACQ_REL,
                                                __ATOMIC_ACQUIRE)) {
                    __atomic_fetch_add(VT_AT(&in_table[t]), 1, __ATOMIC_RELAXED);
                    return mine;
                }
            }
            if (number_at(found)->hash == hash) return found;
        }
    }
    return 0;
}

static void *_Atomic name_memory;
static _Atomic uint64_t name_memory_used;

/* Slots of a name where they stay once their chunk is written; NULL where there is no room. */
static uint8_t *copy_name(const uint8_t *slots, size_t nbytes) {
    if (!make_memory(&name_memory, NAME_BYTES)) return NULL;
    uint64_t at = __atomic_fetch_add(VT_AT(&name_memory_used), nbytes + VT_SLOT_BYTES, __ATOMIC_RELAXED);
    if (at + nbytes + VT_SLOT_BYTES > NAME_BYTES) return NULL;
    return memcpy((uint8_t *)name_memory + at, slots, nbytes); /* an empty slot behind it ends it */
}

static bool write_name(struct number *number, uint32_t file, const char *name, size_t length) {
    size_t n = (length + 31) / 32;
    if (!n || n >= VT_SLOTS / 2) return false;
    uint8_t *slots = take_slots(n, true);
    if (!slots) {
        __atomic_fetch_add(VT_AT(&header->names_missing), 1, __ATOMIC_RELAXED);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        union {
            struct vt_name_slot name;
            struct vt_slot slot;
        } part = {.name = {.file = file, .call = i ? VT_NAME_MORE : VT_NAME}};
        size_t rest = length - 32 * i;
        part.name.length = rest < 32 ? (uint8_t)rest : 32;
        memcpy(part.name.text, name + 32 * i, part.name.length);
        write_slot(slots + i * VT_SLOT_BYTES, part.slot);
    }
    number->slots = (struct vt_name_slot *)(vt.written ? copy_name(slots, n * VT_SLOT_BYTES) : slots);
    return true;
}

static bool claim_name(struct number *number) {
    uint32_t before = number->generation;
    return before != vt.generation &&
           __atomic_compare_exchange_n(VT_AT(&number->generation), &before, vt.generation, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

uint32_t vt_number(const char *name, size_t length) {
    uint32_t file = look_up(hash_of(name, length));
    struct number *number = file ? number_at(file) : NULL;
    if (number && claim_name(number)) {
        number->counters[0] = number->counters[1] = 0;
        number->slots = NULL;
        if (!write_name(number, file, name, length)) number->slots = NULL;
    }
    return file;
}

size_t vt_name(uint32_t file, char *buffer, size_t room) {
    struct number *number = file && file != VT_LEFT_OUT ? number_at(file) : NULL;
    size_t length = 0;
    if (!number || !number->slots) return 0;
    for (struct vt_name_slot *slot = number->slots;; slot++) {
        if (length + slot->length >= room) return 0;
        memcpy(buffer + length, slot->text, slot->length);
        length += slot->length;
        if (slot->length < 32 || slot[1].call != VT_NAME_MORE || slot[1].file != file) break;
    }
    buffer[length] = 0;
    return length;
}

__attribute__((noinline)) static void repeat_name(struct number *number, uint32_t file) {
    char name[4096];
    size_t length = vt_name(file, name, sizeof name);
    number->counters[0] = number->counters[1] = 0;
    number->slots = NULL;
    if (length) write_name(number, file, name, length);
}

void vt_keep_name(uint32_t file) {
    struct number *number = file && file != VT_LEFT_OUT ? number_at(file) : NULL;
    if (number && claim_name(number)) repeat_name(number, file);
}

/* ---- counters: what has no slot of its own ---- */

static struct vt_counters *counters_at(uint32_t index) {
    if (index < FIRST_COUNTERS) return (struct vt_counters *)(vt.base + VT_PAGE) + index;
    uint32_t chunk = space.counter_chunk[(index - FIRST_COUNTERS) / CHUNK_COUNTERS];
    return (struct vt_counters *)(vt.base + (uint64_t)chunk * VT_CHUNK_BYTES) + 1 +
           (index - FIRST_COUNTERS) % CHUNK_COUNTERS;
}

/* Makes sure that the record of an index is there and can be written to. */
static bool back_counters(uint32_t index) {
    if (index < TOUCHED_COUNTERS) return true;
    if (index >= FIRST_COUNTERS) {
        uint32_t place = (index - FIRST_COUNTERS) / CHUNK_COUNTERS, used, none = 0;
        if (place >= COUNTER_CHUNKS) return false;
        if (!space.counter_chunk[place]) {
            uint8_t *chunk = take_chunk(&used, true);
            if (!chunk || !back_page(chunk)) return false;
            write_slot(chunk, (struct vt_slot){.start_ns = vt_now(), .call = VT_COUNTERS});
            uint32_t mine = (uint32_t)((chunk - vt.base) / VT_CHUNK_BYTES);
            __atomic_compare_exchange_n(VT_AT(&space.counter_chunk[place]), &none, mine, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
        }
    }
    struct vt_counters *record = counters_at(index);
    uint8_t *page = (uint8_t *)((uintptr_t)record & ~(uintptr_t)(VT_PAGE - 1));
    /* The kernel writes 16 bytes into it and they become 0 again: only before anything is there. */
    return (uint8_t *)record - page >= VT_COUNTER_BYTES || back_page(page);
}

static struct vt_counters *counters_of(uint32_t file, int layer) {
    struct vt_counters *others = (struct vt_counters *)(vt.base + VT_PAGE) + layer;
    struct number *number = file && file != VT_LEFT_OUT ? number_at(file) : NULL;
    if (!number || !number->slots || number->generation != vt.generation) return others;
    uint32_t index = __atomic_load_n(VT_AT(&number->counters[layer]), __ATOMIC_ACQUIRE);
    if (index == UINT32_MAX) return others;
    if (index) return counters_at(index - 1);
    uint32_t none = 0;
    if (!__atomic_compare_exchange_n(VT_AT(&number->counters[layer]), &none, UINT32_MAX, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return others; /* another thread is making it */
    index = (uint32_t)__atomic_fetch_add(VT_AT(&header->counters), 1, __ATOMIC_RELAXED);
    if (!back_counters(index)) return others;
    struct vt_counters *record = counters_at(index);
    record->file = file;
    __atomic_store_n(&record->layer, (uint8_t)(layer + 1), __ATOMIC_RELEASE);
    __atomic_store_n(VT_AT(&number->counters[layer]), index + 1, __ATOMIC_RELEASE);
    return record;
}

static void raise_to(uint64_t *where, uint64_t value) {
    uint64_t before = __atomic_load_n(VT_AT(where), __ATOMIC_RELAXED);
    while (before < value && !__atomic_compare_exchange_n(VT_AT(where), &before, value, false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}

#define ADD(where, value) __atomic_fetch_add(VT_AT(&(where)), (value), __ATOMIC_RELAXED)

__attribute__((noinline)) static void count(const struct vt_event *call, uint64_t end) {
    static const uint64_t borders[] = VT_SIZE_BORDERS;
    int class = call->call >> 4;
    if (!class) return;
    int layer = class == 3 || class == 4 || class == 7;
    struct vt_counters *to = counters_of(call->file, layer);
    uint64_t duration = end - call->start, bytes = call->result > 0 ? (uint64_t)call->result : 0;
    int size = 0;
    while (size < 9 && bytes > borders[size]) size++;
    uint64_t none = 0, up_to = call->offset >= 0 && bytes ? (uint64_t)call->offset + bytes : 0;
    __atomic_compare_exchange_n(VT_AT(&to->first_ns), &none, call->start, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    raise_to(&to->last_ns, end);
    if (call->result < 0) ADD(to->failed, 1);
    if (class == 1 || class == 3) {
        ADD(to->reads, 1);
        ADD(to->bytes_read, bytes);
        ADD(to->read_ns, duration);
        ADD(to->read_sizes[size], 1);
        raise_to(&to->read_end, up_to);
    } else if (class == 2 || class == 4) {
        ADD(to->writes, 1);
        ADD(to->bytes_written, bytes);
        ADD(to->write_ns, duration);
        ADD(to->write_sizes[size], 1);
        raise_to(&to->write_end, up_to);
    } else if (class == 8) {
        ADD(to->syncs, 1);
        ADD(to->sync_ns, duration);
    } else {
        uint64_t *which = &to->others;
        if (class == 9) which = &to->maps;
        if (call->call == VT_OPEN || call->call == VT_FOPEN) which = &to->opens;
        if (call->call == VT_CLOSE || call->call == VT_FCLOSE) which = &to->closes;
        if (call->call == VT_LSEEK || call->call == VT_FSEEK) which = &to->seeks;
        if (call->call == VT_STAT || call->call == VT_FSTAT) which = &to->stats;
        ADD(*which, 1);
        ADD(to->metadata_ns, duration);
    }
    ADD(header->missing_calls, 1);
}

/* Counts the calls of a chunk as those that have no slot, but what is kept already. */
static void count_slots(const uint8_t *chunk, const uint8_t *kept) {
    for (int i = 0; i < VT_SLOTS; i++) {
        struct vt_slot slot, before = {0};
        memcpy(&slot, chunk + i * VT_SLOT_BYTES, sizeof slot);
        if (kept) memcpy(&before, kept + i * VT_SLOT_BYTES, sizeof before);
        if (slot.call == VT_COUNTERS) return; /* no slots follow it */
        if (before.call) continue;
        uint64_t duration = slot.duration_ns | (uint64_t)slot.duration_high << 32;
        count(&(struct vt_event){slot.call, slot.file, slot.start_ns, slot.offset, slot.size, slot.result},
              slot.start_ns + duration);
    }
}

void vt_put_in(uint64_t start, int64_t offset, int64_t result, uint64_t size, uint64_t file_and_call) {
    uint64_t end = vt_now(), duration = end - start;
    uint8_t *where = likely(!vt.full) ? take_slots(1, false) : NULL;
    if (unlikely(!where)) {
        count(&(struct vt_event){(uint8_t)(file_and_call >> 32), (uint32_t)file_and_call, start, offset, size,
                                 result},
              end);
        if (unlikely(end >= vt.write_at)) write_in_turn(end);
        return;
    }
    if (unlikely(duration >> 40)) duration = ((uint64_t)1 << 40) - 1;
    if (size > UINT32_MAX) size = UINT32_MAX;
    uint64_t words[5] = { /* struct vt_slot: by its fields it would be put together in memory */
        start, (uint64_t)offset, (uint64_t)result, size | duration << 32,
        file_and_call | duration >> 32 << 40,
    };
    write_words(where, words);
    if (unlikely(end >= vt.write_at)) write_in_turn(end);
}

void vt_moved_elsewhere(bool read, uint64_t nbytes) {
    if (!vt.on || !vt_recording()) return;
    ADD(*(read ? &header->other_read_bytes : &header->other_written_bytes), nbytes);
}
