/* Samples from outside what the threads of other processes are doing, through /proc.
 *
 * A thread of the recorder runs vs_run until vs_stop. Again and again, at random distances of 0.5 to
 * 1.5 periods, it reads of each thread of the processes that it was told of (vs_add) the system
 * call in which that sleeps (/proc/PID/task/TID/syscall) and how long it has waited for a core
 * (schedstat), and writes a row of 16 bytes. Nothing happens in these processes. A fixed distance
 * would miss every interval of programs with a period of their own.
 *
 * The file is rows of 16 bytes, little-endian, appended whole; vanidl/readers/states/log.py reads
 * it, and says what each kind holds. A recorder that is killed leaves what was written until then.
 *
 * Linux only. The reader of another's calls needs the right to trace it: the parent of a process
 * has that, unless the system forbids it (Yama 2 and 3, hidepid, another user).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* What a thread is doing. These are numbers of the file: only add to them. */
enum kind {
    RUNNING, READ, WRITE, METADATA, SYNC, FAULT, LOCK, NETWORK, SLEEP, CHILD, PIPE, DEVICE, OTHER,
    GONE = 0xEF, /* no sample of it any more */
    TIME = 0xF0, THREAD, NAME, CPU, IO, LEFT_OUT, END = 0xFF
};
enum flag { LATE = 1, IDLE = 4 };

struct row {
    uint32_t at_us; /* since the last TIME */
    uint16_t thread;
    uint8_t kind;
    uint8_t flags;
    union {
        struct { uint32_t what, delay_us; };
        uint64_t value;
    };
};
_Static_assert(sizeof(struct row) == 16, "a row is 16 bytes");

#define MOST_THREADS 384 /* open at once: two descriptors each */
#define MOST_PROCESSES 256
#define MOST_ROWS 4096
#define MOST_NAMES 4096 /* files by their own name, later ones by that of their folder */
#define NAME_SLOTS (1 << 16)
#define PATH_NBYTES 512
#define REBASE_US 3000000000u
#define FLUSH_NS 500000000LL
#define LIST_NS 20000000LL /* between looks for new threads; less where processes are few */
#define MANY_PROCESSES 8
#define FULL_RATE_NS 300000000000LL
#define ACCOUNT_EVERY 16
#define IDLE_AFTER 32 /* samples in a row of one lock: then only each such sample is taken */
#define IDLE_EVERY 8
enum { LOST = 1, LOST_IDLE }; /* an idle thread may have ended some samples ago */

struct thread {
    int pid, tid, process;
    int calls, delays; /* descriptors */
    uint16_t number;
    uint32_t since; /* round of samples that it began after; 0: nothing says */
    int described;
    int alike; /* samples in a row on one lock */
    uint64_t last_what;
    unsigned turn;
};

struct process {
    int pid, parent;
    nlink_t links; /* of its folder of threads: two more than it has threads */
    int64_t listed_ns;
    uint32_t looked, looked_before; /* rounds until then; looks see the number of threads alone */
    int lost; /* a thread has ended since the list was made: the number may hide another one */
    int forbidden, io;
    uint64_t values[6];
};

struct sampler {
    int file;
    int64_t period_ns, base_period_ns;
    double share; /* of a core that sampling may take */
    atomic_int stop;
    pthread_mutex_t lock;
    int added[MOST_PROCESSES][2], added_count;
    struct process processes[MOST_PROCESSES];
    int process_count;
    struct thread threads[MOST_THREADS];
    int thread_count;
    uint32_t round; /* of samples, from 1 on */
    unsigned next_number;
    struct row rows[MOST_ROWS];
    int row_count;
    int64_t base_ns, flushed_ns;
    uint64_t random;
    uint64_t hashes[NAME_SLOTS];
    uint32_t numbers[NAME_SLOTS];
    uint32_t names;
    int left_out, broken;
};

static int64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* A piece of the file, all or nothing of it where the disk allows that. */
static void flush(struct sampler *s)
{
    const char *data = (const char *)s->rows;
    size_t left = (size_t)s->row_count * sizeof(struct row);
    while (left && !s->broken) {
        ssize_t done = write(s->file, data, left);
        if (done < 0 && errno != EINTR)
            s->broken = 1; /* a full disk: what is there stays, and no more comes */
        else if (done > 0)
            data += done, left -= (size_t)done;
    }
    s->row_count = 0;
}

static void add(struct sampler *s, struct row row)
{
    if (s->row_count == MOST_ROWS)
        flush(s);
    s->rows[s->row_count++] = row;
}

static uint32_t since_base(struct sampler *s, int64_t at_ns)
{
    if (!s->base_ns || at_ns < s->base_ns || (at_ns - s->base_ns) / 1000 > REBASE_US) {
        s->base_ns = at_ns;
        add(s, (struct row){.kind = TIME, .value = (uint64_t)at_ns});
    }
    return (uint32_t)((at_ns - s->base_ns) / 1000);
}

static void add_text(struct sampler *s, uint8_t flags, uint32_t number, const char *text, size_t length)
{
    struct row piece;
    add(s, (struct row){.at_us = (uint32_t)length, .kind = NAME, .flags = flags, .what = number});
    for (size_t at = 0; at < length; at += sizeof piece) {
        memset(&piece, ' ', sizeof piece);
        memcpy(&piece, text + at, length - at < sizeof piece ? length - at : sizeof piece);
        add(s, piece);
    }
}

/* The number of a path; of its folder where there are many; 0: none. */
static uint32_t number_of(struct sampler *s, const char *path, size_t length)
{
    if (s->names >= MOST_NAMES)
        while (length > 1 && path[length - 1] != '/')
            length--;
    uint64_t hash = 1469598103934665603ull;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)path[i]) * 1099511628211ull;
    hash |= 1;
    for (uint32_t k = 0, at = (uint32_t)(hash >> 20); k < 64; k++, at++) {
        uint32_t slot = at & (NAME_SLOTS - 1);
        if (s->hashes[slot] == hash)
            return s->numbers[slot];
        if (!s->hashes[slot]) {
            if (s->names >= NAME_SLOTS / 2)
                return 0;
            s->hashes[slot] = hash;
            s->numbers[slot] = ++s->names;
            add_text(s, 0, s->names, path, length);
            return s->names;
        }
    }
    return 0;
}

static size_t copy_from(int pid, uint64_t address, void *to, size_t nbytes)
{
    /* Up to the end of the page: the next one may not be there. */
    size_t room = 4096 - (size_t)(address & 4095);
    struct iovec here = {to, nbytes < room ? nbytes : room};
    struct iovec there = {(void *)(uintptr_t)address, here.iov_len};
    ssize_t got = address ? process_vm_readv(pid, &here, 1, &there, 1, 0) : -1;
    return got < 0 ? 0 : (size_t)got;
}

/* What a descriptor of a process is: READ stands for a file, whose number goes to *what. */
static int kind_of_descriptor(struct sampler *s, int pid, long number, uint32_t *what)
{
    char link[64], path[PATH_NBYTES];
    snprintf(link, sizeof link, "/proc/%d/fd/%ld", pid, number);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return OTHER;
    path[length] = 0;
    if (!strncmp(path, "socket:", 7))
        return NETWORK;
    if (!strncmp(path, "pipe:", 5))
        return PIPE;
    if (!strncmp(path, "/dev/nvidia", 11) || !strncmp(path, "/dev/kfd", 8) || !strncmp(path, "/dev/dri", 8))
        return DEVICE;
    if (!strncmp(path, "/dev/", 5) && strncmp(path, "/dev/shm/", 9))
        return OTHER;
    if (path[0] != '/' || !strncmp(path, "/proc/", 6) || !strncmp(path, "/sys/", 5) || !strncmp(path, "/memfd:", 7))
        return OTHER;
    *what = number_of(s, path, (size_t)length);
    return READ;
}

/* The file that a path in the memory of a process names. */
static uint32_t named(struct sampler *s, int pid, uint64_t address)
{
    char path[PATH_NBYTES];
    size_t got = copy_from(pid, address, path, sizeof path - 1), length;
    path[got] = 0;
    length = strlen(path);
    return path[0] == '/' ? number_of(s, path, length) : 0;
}

/* What several descriptors are that a thread waits for at once: a socket before a pipe. */
static int kind_of_many(struct sampler *s, int pid, const long *numbers, int count, int timed)
{
    int pipes = 0, devices = 0;
    uint32_t ignored;
    for (int i = 0; i < count; i++) {
        int kind = kind_of_descriptor(s, pid, numbers[i], &ignored);
        if (kind == NETWORK)
            return NETWORK;
        pipes += kind == PIPE;
        devices += kind == DEVICE;
    }
    return pipes ? PIPE : devices ? DEVICE : count || !timed ? OTHER : SLEEP;
}

static int kind_of_poll(struct sampler *s, int pid, uint64_t fds, uint64_t count, int timed)
{
    struct pollfd polled[16];
    long numbers[16];
    if (!count)
        return SLEEP;
    if (count > 16)
        count = 16;
    int got = (int)(copy_from(pid, fds, polled, count * sizeof *polled) / sizeof *polled), n = 0;
    for (int i = 0; i < got; i++)
        if (polled[i].fd >= 0)
            numbers[n++] = polled[i].fd;
    return kind_of_many(s, pid, numbers, n, timed);
}

static int kind_of_select(struct sampler *s, int pid, const uint64_t *argument)
{
    uint64_t words[2];
    long numbers[16];
    int n = 0;
    for (int set = 1; set <= 2; set++) {
        size_t got = copy_from(pid, argument[set], words, sizeof words);
        for (long bit = 0; bit < (long)got * 8 && bit < (long)argument[0] && n < 16; bit++)
            if (words[bit / 64] >> (bit % 64) & 1)
                numbers[n++] = bit;
    }
    return kind_of_many(s, pid, numbers, n, argument[4] != 0);
}

/* An event loop that waits: for its sockets, but not for the pair by which it wakes itself. */
static int kind_of_epoll(struct sampler *s, int pid, long number, int timed)
{
    char path[64], line[256];
    long numbers[16];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%ld", pid, number);
    FILE *file = fopen(path, "re");
    while (file && n < 16 && fgets(line, sizeof line, file))
        if (sscanf(line, "tfd: %ld", &numbers[n]) == 1)
            n++;
    if (file)
        fclose(file);
    /* asyncio watches the one end of a pair of its own: alone, it is a timer. */
    return n <= 1 && timed ? SLEEP : kind_of_many(s, pid, numbers, n, timed);
}

/* The kind of a system call in which a thread sleeps, and of which file it is. */
static int kind_of_call(struct sampler *s, int pid, long call, const uint64_t *a, uint32_t *what)
{
    int kind;
    switch (call) {
    case SYS_read: case SYS_pread64: case SYS_readv: case SYS_preadv:
#ifdef SYS_preadv2
    case SYS_preadv2:
#endif
    case SYS_readahead:
        return kind_of_descriptor(s, pid, (long)a[0], what);
    case SYS_sendfile: case SYS_copy_file_range: case SYS_splice:
        kind = kind_of_descriptor(s, pid, (long)(call == SYS_sendfile ? a[1] : a[0]), what);
        return kind;
    case SYS_write: case SYS_pwrite64: case SYS_writev: case SYS_pwritev:
#ifdef SYS_pwritev2
    case SYS_pwritev2:
#endif
        kind = kind_of_descriptor(s, pid, (long)a[0], what);
        return kind == READ ? WRITE : kind;
    case SYS_fsync: case SYS_fdatasync: case SYS_sync_file_range:
        kind = kind_of_descriptor(s, pid, (long)a[0], what);
        return kind == READ ? SYNC : kind;
    case SYS_sync: case SYS_syncfs: case SYS_msync:
        return SYNC;
    case SYS_fstat: case SYS_lseek: case SYS_getdents64: case SYS_close: case SYS_ftruncate:
    case SYS_fallocate: case SYS_fadvise64: case SYS_fchmod: case SYS_fchown: case SYS_fstatfs:
    case SYS_fgetxattr: case SYS_fsetxattr: case SYS_flistxattr:
        kind = kind_of_descriptor(s, pid, (long)a[0], what);
        return kind == READ ? METADATA : kind;
    case SYS_openat: case SYS_newfstatat: case SYS_statx: case SYS_faccessat: case SYS_mkdirat:
    case SYS_unlinkat: case SYS_readlinkat: case SYS_fchmodat: case SYS_fchownat: case SYS_utimensat:
    case SYS_linkat: case SYS_symlinkat: case SYS_renameat2:
#ifdef SYS_renameat
    case SYS_renameat:
#endif
#ifdef SYS_openat2
    case SYS_openat2:
#endif
#ifdef SYS_faccessat2
    case SYS_faccessat2:
#endif
        *what = named(s, pid, a[1]);
        return METADATA;
#ifdef SYS_open
    case SYS_open: case SYS_stat: case SYS_lstat: case SYS_access: case SYS_mkdir: case SYS_rmdir:
    case SYS_unlink: case SYS_rename: case SYS_readlink: case SYS_creat: case SYS_link:
    case SYS_symlink: case SYS_chmod: case SYS_chown: case SYS_lchown: case SYS_utime:
    case SYS_utimes:
#endif
    case SYS_truncate: case SYS_statfs: case SYS_getxattr: case SYS_lgetxattr: case SYS_setxattr:
    case SYS_listxattr: case SYS_llistxattr: case SYS_chdir:
        *what = named(s, pid, a[0]);
        return METADATA;
#ifdef SYS_getdents
    case SYS_getdents:
        return METADATA;
#endif
    case SYS_io_getevents:
#ifdef SYS_io_pgetevents
    case SYS_io_pgetevents:
#endif
        return READ; /* of files alone: nothing else can be asked for this way */
    case SYS_futex: case SYS_flock: case SYS_semtimedop: case SYS_semop:
#ifdef SYS_futex_waitv
    case SYS_futex_waitv:
#endif
        return LOCK;
    case SYS_fcntl:
        return LOCK; /* only the wait for a lock sleeps */
    case SYS_nanosleep: case SYS_clock_nanosleep: case SYS_rt_sigtimedwait: case SYS_rt_sigsuspend:
        return SLEEP;
#ifdef SYS_pause
    case SYS_pause:
        return SLEEP;
#endif
    case SYS_wait4: case SYS_waitid:
#ifdef SYS_vfork
    case SYS_vfork:
#endif
        return CHILD;
    case SYS_recvfrom: case SYS_recvmsg: case SYS_recvmmsg: case SYS_sendto: case SYS_sendmsg:
    case SYS_sendmmsg: case SYS_connect: case SYS_accept: case SYS_accept4: case SYS_shutdown:
        return NETWORK;
    case SYS_ppoll:
        return kind_of_poll(s, pid, a[0], a[1], a[2] != 0);
#ifdef SYS_poll
    case SYS_poll:
        return kind_of_poll(s, pid, a[0], a[1], (int)a[2] >= 0);
    case SYS_select:
        return kind_of_select(s, pid, a);
#endif
    case SYS_pselect6:
        return kind_of_select(s, pid, a);
    case SYS_epoll_pwait:
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
#endif
        return kind_of_epoll(s, pid, (long)a[0], (int)a[3] >= 0);
    case SYS_ioctl:
        kind = kind_of_descriptor(s, pid, (long)a[0], what);
        *what = 0;
        return kind == DEVICE ? DEVICE : OTHER;
    default:
        *what = (uint32_t)call;
        return OTHER;
    }
}

static void close_thread(struct sampler *s, int place)
{
    struct thread *t = &s->threads[place];
    add(s, (struct row){.at_us = since_base(s, now_ns(CLOCK_REALTIME)), .thread = t->number, .kind = GONE});
    struct process *p = &s->processes[t->process];
    if (p->lost < LOST_IDLE)
        p->lost = t->alike >= IDLE_AFTER ? LOST_IDLE : LOST;
    close(t->calls);
    if (t->delays >= 0)
        close(t->delays);
    s->threads[place] = s->threads[--s->thread_count];
}

static int open_thread(struct sampler *s, int process, int tid, uint32_t since)
{
    const struct process *p = &s->processes[process];
    char path[64];
    if (s->thread_count == MOST_THREADS || s->next_number > UINT16_MAX) {
        if (!s->left_out++)
            add(s, (struct row){.kind = LEFT_OUT});
        return 0;
    }
    struct thread t = {.pid = p->pid, .tid = tid, .process = process, .number = (uint16_t)s->next_number,
                       .since = since};
    snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", p->pid, tid);
    t.calls = open(path, O_RDONLY | O_CLOEXEC);
    if (t.calls < 0)
        return errno == EACCES || errno == EPERM ? -1 : 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", p->pid, tid);
    t.delays = open(path, O_RDONLY | O_CLOEXEC);
    s->next_number++;
    s->threads[s->thread_count++] = t;
    return 1;
}

/* Threads of a process that are new, where their number has changed, and now and then anyway. */
static void list_threads(struct sampler *s, int process, int64_t at_ns, int after)
{
    struct process *p = &s->processes[process];
    char path[64];
    struct stat found;
    if (!p->pid || p->forbidden)
        return;
    snprintf(path, sizeof path, "/proc/%d/task", p->pid);
    if (stat(path, &found)) { /* it has ended: its place is free */
        if (p->io >= 0)
            close(p->io);
        *p = (struct process){.io = -1};
        return;
    }
    /* New ones came after the last look, which saw the number of before; those that took the place
     * of one that was found to have ended, after the look before it. */
    uint32_t since = !p->lost ? p->looked : p->lost == LOST ? p->looked_before : 0;
    p->looked_before = p->looked;
    p->looked = s->round + after;
    int changed = found.st_nlink != p->links || p->lost;
    if (!changed && at_ns - p->listed_ns < 16 * LIST_NS)
        return;
    p->links = found.st_nlink;
    p->listed_ns = at_ns;
    p->lost = 0;
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        int tid = atoi(entry->d_name), known = tid <= 0;
        for (int i = 0; i < s->thread_count && !known; i++)
            known = s->threads[i].tid == tid && s->threads[i].pid == p->pid;
        if (!known && open_thread(s, process, tid, changed ? since : 0) < 0) {
            p->forbidden = 1;
            add(s, (struct row){.at_us = (uint32_t)p->pid, .kind = LEFT_OUT, .flags = 1});
            break;
        }
    }
    if (folder)
        closedir(folder);
}

/* Before the samples of a round, or after them. */
static void list_all(struct sampler *s, int64_t at_ns, int after)
{
    for (int i = s->process_count - 1; i >= 0; i--)
        list_threads(s, i, at_ns, after);
}

static void take_added(struct sampler *s)
{
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->added_count; i++) {
        int place = 0;
        while (place < s->process_count && s->processes[place].pid)
            place++;
        if (place == MOST_PROCESSES)
            break;
        if (place == s->process_count)
            s->process_count++;
        s->processes[place] = (struct process){.pid = s->added[i][0], .parent = s->added[i][1], .io = -2};
    }
    s->added_count = 0;
    pthread_mutex_unlock(&s->lock);
}

/* CPU of a thread in user and kernel mode, in ticks, as far as they are in its stat. */
static void account_cpu(struct sampler *s, struct thread *t, int64_t at_ns)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", t->pid, t->tid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    if (got <= 0)
        return;
    text[got] = 0;
    char *behind = strrchr(text, ')');
    unsigned long user, kernel;
    if (behind && sscanf(behind + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel) == 2)
        add(s, (struct row){.at_us = since_base(s, at_ns), .thread = t->number, .kind = CPU,
                            .what = (uint32_t)user, .delay_us = (uint32_t)kernel});
}

/* Bytes that a process has moved; only what has changed. `thread` is that of its first thread. */
static void account_io(struct sampler *s, struct process *p, uint16_t thread, int64_t at_ns)
{
    static const char *const names[] = {"rchar: ", "wchar: ", "syscr: ", "syscw: ", "read_bytes: ", "write_bytes: "};
    char path[64], text[512];
    if (p->io == -2 && p->pid) {
        snprintf(path, sizeof path, "/proc/%d/io", p->pid);
        p->io = open(path, O_RDONLY | O_CLOEXEC);
    }
    ssize_t got = p->io < 0 ? -1 : pread(p->io, text, sizeof text - 1, 0);
    if (got <= 0)
        return;
    text[got] = 0;
    for (unsigned i = 0; i < 6; i++) {
        char *found = strstr(text, names[i]);
        uint64_t value = found ? strtoull(found + strlen(names[i]), NULL, 10) : 0;
        if (!found || value == p->values[i])
            continue;
        p->values[i] = value;
        add(s, (struct row){.at_us = since_base(s, at_ns), .thread = thread, .kind = IO,
                            .flags = (uint8_t)i, .value = value});
    }
}

/* One sample of one thread; 0 where it is gone. */
/* Who a thread is, and in how many rounds of samples, at most, it was there without being known. */
static void describe(struct sampler *s, struct thread *t)
{
    uint32_t missed = t->since ? s->round - t->since : UINT8_MAX;
    uint8_t flags = missed > UINT8_MAX - 2 ? 0 : (uint8_t)(missed + 2);
    add(s, (struct row){.at_us = (uint32_t)t->pid, .thread = t->number, .kind = THREAD,
                        .flags = t->tid == t->pid ? 1 : flags, .what = (uint32_t)t->tid,
                        .delay_us = (uint32_t)s->processes[t->process].parent});
    t->described = 1;
}

static int sample(struct sampler *s, struct thread *t, int late)
{
    char text[256];
    ssize_t got = pread(t->calls, text, sizeof text - 1, 0);
    if (got <= 0)
        return 0;
    text[got] = 0;
    int64_t at_ns = now_ns(CLOCK_REALTIME);
    struct row row = {.at_us = since_base(s, at_ns), .thread = t->number, .flags = late ? LATE : 0};
    uint64_t same = 0;
    if (text[0] == 'r')
        row.kind = RUNNING;
    else if (text[0] == '-')
        row.kind = FAULT; /* sleeps outside of any call */
    else {
        uint64_t a[6] = {0};
        char *at;
        uint32_t what = 0;
        long call = strtol(text, &at, 10);
        for (int i = 0; i < 6; i++)
            a[i] = strtoull(at, &at, 16);
        row.kind = (uint8_t)kind_of_call(s, t->pid, call, a, &what);
        row.what = what;
        same = row.kind == LOCK || row.kind == SLEEP || row.kind == NETWORK ? a[0] | 1 : 0;
    }
    t->alike = same && same == t->last_what ? t->alike + 1 : 0;
    t->last_what = same;
    if (t->delays >= 0) {
        got = pread(t->delays, text, sizeof text - 1, 0);
        if (got > 0) {
            text[got] = 0;
            char *second = strchr(text, ' ');
            row.delay_us = second ? (uint32_t)(strtoull(second, NULL, 10) / 1000) : 0;
        }
    }
    if (t->tid != t->pid && t->alike >= IDLE_AFTER)
        row.flags |= IDLE;
    if (!t->described)
        describe(s, t);
    add(s, row);
    return 1;
}

static void look_around(struct sampler *s, int late)
{
    for (int i = s->thread_count - 1; i >= 0; i--) {
        struct thread *t = &s->threads[i];
        t->turn++;
        /* A thread that has long waited for one thing is idle: it is looked at now and then. */
        if (t->tid != t->pid && t->alike >= IDLE_AFTER && t->turn % IDLE_EVERY)
            continue;
        if (!sample(s, t, late)) {
            close_thread(s, i);
            continue;
        }
        if (t->turn % ACCOUNT_EVERY == 0 && t->alike < IDLE_AFTER)
            account_cpu(s, t, now_ns(CLOCK_REALTIME));
        if (t->tid == t->pid && t->turn % ACCOUNT_EVERY == 1)
            account_io(s, &s->processes[t->process], t->number, now_ns(CLOCK_REALTIME));
    }
}

/* The distance to the next samples. */
static int64_t next_distance(struct sampler *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->period_ns / 2 + (int64_t)(s->random % (uint64_t)s->period_ns);
}

/* The period for the next second: longer where samples took more than their share of a core, and
 * the longer the run, so that the file grows with the root of its length. */
static void set_period(struct sampler *s, int64_t spent_ns, int64_t passed_ns, int64_t age_ns)
{
    double wanted = (double)s->period_ns * (double)spent_ns / ((double)passed_ns * s->share);
    double least = (double)s->base_period_ns;
    if (age_ns > FULL_RATE_NS)
        least *= sqrt((double)age_ns / (double)FULL_RATE_NS);
    double most = 64.0 * least;
    s->period_ns = (int64_t)(wanted < least ? least : wanted > most ? most : wanted);
}

/* ------------------------------------------------------------------------------- for Python */

/* A sampler that writes to a new file; NULL where that cannot be made. */
EXPORT void *vs_open(const char *path, long period_us, double share)
{
    struct sampler *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (s->file < 0) {
        free(s);
        return NULL;
    }
    s->period_ns = s->base_period_ns = period_us * 1000;
    s->share = share;
    s->random = (uint64_t)now_ns(CLOCK_REALTIME) | 1;
    pthread_mutex_init(&s->lock, NULL);
    struct row magic;
    memcpy(&magic, "vanidl-states 1\n", sizeof magic);
    add(s, magic);
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    add_text(s, 1, (uint32_t)period_us, host, strlen(host));
    flush(s);
    if (s->broken) { /* a full disk: no file is better than an empty one */
        close(s->file);
        unlink(path);
        free(s);
        return NULL;
    }
    return s;
}

/* Samples the threads of one more process from now on. */
EXPORT void vs_add(void *sampler, int pid, int parent)
{
    struct sampler *s = sampler;
    pthread_mutex_lock(&s->lock);
    if (s->added_count < MOST_PROCESSES) {
        s->added[s->added_count][0] = pid;
        s->added[s->added_count++][1] = parent;
    }
    pthread_mutex_unlock(&s->lock);
}

/* Has the calling thread run soon after it wakes, on a machine whose cores are all busy: a sample
 * that comes late is none. It asks for short turns (Linux 6.12 and later), which takes no right, and
 * for a high priority, which may be refused. */
static void run_promptly(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } wanted = {.size = 48, .runtime_ns = 100000, .nice = -10};
    if (syscall(SYS_sched_setattr, 0, &wanted, 0)) {
        wanted.nice = 0;
        syscall(SYS_sched_setattr, 0, &wanted, 0);
    }
}

/* Samples until vs_stop, in the calling thread. */
EXPORT void vs_run(void *sampler)
{
    struct sampler *s = sampler;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    run_promptly();
    int64_t target = now_ns(CLOCK_MONOTONIC), listed = 0;
    int64_t begun = target, from = target, spent = now_ns(CLOCK_THREAD_CPUTIME_ID);
    while (!s->stop && !s->broken) {
        int64_t distance = next_distance(s), now;
        target += distance;
        struct timespec until = {target / 1000000000LL, target % 1000000000LL};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
            ;
        now = now_ns(CLOCK_MONOTONIC);
        int late = now - target > s->period_ns / 2;
        if (late)
            target = now;
        take_added(s);
        /* Looks for new threads on both sides of the samples: what began between them is sampled
         * with the others of its round, and what is not known began since. */
        s->round++;
        int due = now - listed >= LIST_NS / MANY_PROCESSES * s->process_count || now - listed >= LIST_NS;
        if (due) {
            listed = now;
            list_all(s, now, 0);
        }
        look_around(s, late);
        if (due) {
            int sampled = s->thread_count;
            list_all(s, now, 1);
            for (int i = s->thread_count - 1; i >= sampled; i--)
                if (!sample(s, &s->threads[i], late))
                    close_thread(s, i);
        }
        if (now - s->flushed_ns >= FLUSH_NS) {
            flush(s);
            s->flushed_ns = now;
        }
        if (now - from >= 1000000000LL) {
            int64_t used = now_ns(CLOCK_THREAD_CPUTIME_ID);
            set_period(s, used - spent, now - from, now - begun);
            from = now;
            spent = used;
        }
    }
}

EXPORT void vs_stop(void *sampler)
{
    ((struct sampler *)sampler)->stop = 1;
}

/* Writes the end, and lets go of everything; vs_run has returned. */
EXPORT void vs_close(void *sampler)
{
    struct sampler *s = sampler;
    add(s, (struct row){.kind = END, .value = (uint64_t)now_ns(CLOCK_REALTIME)});
    flush(s);
    for (int i = 0; i < s->thread_count; i++) {
        close(s->threads[i].calls);
        if (s->threads[i].delays >= 0)
            close(s->threads[i].delays);
    }
    for (int i = 0; i < s->process_count; i++)
        if (s->processes[i].io >= 0)
            close(s->processes[i].io);
    close(s->file);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
