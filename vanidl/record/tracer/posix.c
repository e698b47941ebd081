/* Calls on descriptors and names. */
#include "tracer.h"

#include <dirent.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef __GLIBC__ /* musl may have these as macros; programs may have them as symbols */
#undef pread64
#undef preadv64
#undef preadv64v2
#undef pwrite64
#undef pwritev64
#undef pwritev64v2
#undef sendfile64
#undef open64
#undef openat64
#undef creat64
#undef mkstemp64
#undef mkostemp64
#undef mkstemps64
#undef mkostemps64
#undef lseek64
#undef ftruncate64
#undef fallocate64
#undef posix_fallocate64
#undef posix_fadvise64
#undef fstat64
#undef stat64
#undef lstat64
#undef fstatat64
#undef truncate64
#undef readdir64
#undef mmap64
#undef fcntl64
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_statx
#define SYS_statx 332
#endif
#ifndef PR_SET_SECCOMP
#define PR_SET_SECCOMP 22
#endif
#define SECCOMP_MODE_STRICT 1

#define AT_POSITION (-2) /* offset: where the descriptor stands */

/* ---- reads and writes ---- */

/* Puts down a call that has just returned, errno as it left it; returns what it returned. */
static inline ssize_t moved(uint8_t call, struct vt_file *file, uint32_t number, int descriptor,
                            uint64_t start, ssize_t result, size_t size, int64_t offset) {
    int error = errno;
    bool writing = call >> 4 == 2;
    if (offset == AT_POSITION)
        offset = result < 0 ? file->position : vt_advance(file, descriptor, result, writing);
    vt_put(&(struct vt_event){call, number, start, offset, size, result < 0 ? -error : result});
    errno = error;
    return result;
}

static ssize_t moved_elsewhere(bool read, ssize_t result) {
    if (result > 0) vt_moved_elsewhere(read, (uint64_t)result);
    return result;
}

static size_t sum_of(const struct iovec *parts, int n, ssize_t result) {
    size_t sum = 0;
    for (int i = 0; result >= 0 && i < n; i++) sum += parts[i].iov_len;
    return sum;
}

/* The body of a wrapper that moves bytes: `call_` is the call itself. */
#define MOVE(kind, descriptor, size, offset, call_)                                                  \
    int error = errno;                                                                               \
    struct vt_file *file = vt_file_of(descriptor);                                                   \
    errno = error;                                                                                   \
    if (!file) return moved_elsewhere((kind) >> 4 == 1, call_);                                      \
    uint32_t number = file->file;                                                                    \
    uint64_t start = vt_start();                                                                       \
    ssize_t result = call_;                                                                          \
    return moved(kind, file, number, descriptor, start, result, size, offset)

WRAP(ssize_t, read, int fd, void *to, size_t n) {
    MOVE(VT_READ, fd, n, AT_POSITION, CALL(read, SYS_read, fd, to, n));
}
WRAP(ssize_t, __read_chk, int fd, void *to, size_t n, size_t room) {
    MOVE(VT_READ, fd, n, AT_POSITION, NEXT(__read_chk)(fd, to, n, room));
}
WRAP(ssize_t, pread, int fd, void *to, size_t n, off_t at) {
    MOVE(VT_PREAD, fd, n, at, CALL(pread, SYS_pread64, fd, to, n, at));
}
WRAP(ssize_t, pread64, int fd, void *to, size_t n, off_t at) {
    MOVE(VT_PREAD, fd, n, at, CALL(pread64, SYS_pread64, fd, to, n, at));
}
WRAP(ssize_t, __pread_chk, int fd, void *to, size_t n, off_t at, size_t room) {
    MOVE(VT_PREAD, fd, n, at, NEXT(__pread_chk)(fd, to, n, at, room));
}
WRAP(ssize_t, __pread64_chk, int fd, void *to, size_t n, off_t at, size_t room) {
    MOVE(VT_PREAD, fd, n, at, NEXT(__pread64_chk)(fd, to, n, at, room));
}
WRAP(ssize_t, readv, int fd, const struct iovec *to, int n) {
    MOVE(VT_READV, fd, sum_of(to, n, result), AT_POSITION, CALL(readv, SYS_readv, fd, to, n));
}
WRAP(ssize_t, preadv, int fd, const struct iovec *to, int n, off_t at) {
    MOVE(VT_PREADV, fd, sum_of(to, n, result), at, NEXT(preadv)(fd, to, n, at));
}
WRAP(ssize_t, preadv64, int fd, const struct iovec *to, int n, off_t at) {
    MOVE(VT_PREADV, fd, sum_of(to, n, result), at, NEXT(preadv64)(fd, to, n, at));
}
/* Newer than some libc; the system call takes an offset in two halves. */
#define CALL_V2(name, number, parts)                                                                 \
    (VT_FUNCTION(name) != VT_NONE                                                                    \
         ? NEXT(name)(fd, parts, n, at, flags)                                                       \
         : vt_returned(VT_SYS(number, fd, parts, n, at, 0, flags)))
WRAP(ssize_t, preadv2, int fd, const struct iovec *to, int n, off_t at, int flags) {
    MOVE(VT_PREADV, fd, sum_of(to, n, result), at == -1 ? AT_POSITION : at,
         CALL_V2(preadv2, SYS_preadv2, to));
}
WRAP(ssize_t, preadv64v2, int fd, const struct iovec *to, int n, off_t at, int flags) {
    MOVE(VT_PREADV, fd, sum_of(to, n, result), at == -1 ? AT_POSITION : at,
         CALL_V2(preadv64v2, SYS_preadv2, to));
}
WRAP(ssize_t, write, int fd, const void *from, size_t n) {
    MOVE(VT_WRITE, fd, n, AT_POSITION, CALL(write, SYS_write, fd, from, n));
}
WRAP(ssize_t, pwrite, int fd, const void *from, size_t n, off_t at) {
    MOVE(VT_PWRITE, fd, n, at, CALL(pwrite, SYS_pwrite64, fd, from, n, at));
}
WRAP(ssize_t, pwrite64, int fd, const void *from, size_t n, off_t at) {
    MOVE(VT_PWRITE, fd, n, at, CALL(pwrite64, SYS_pwrite64, fd, from, n, at));
}
WRAP(ssize_t, writev, int fd, const struct iovec *from, int n) {
    MOVE(VT_WRITEV, fd, sum_of(from, n, result), AT_POSITION, CALL(writev, SYS_writev, fd, from, n));
}
WRAP(ssize_t, pwritev, int fd, const struct iovec *from, int n, off_t at) {
    MOVE(VT_PWRITEV, fd, sum_of(from, n, result), at, NEXT(pwritev)(fd, from, n, at));
}
WRAP(ssize_t, pwritev64, int fd, const struct iovec *from, int n, off_t at) {
    MOVE(VT_PWRITEV, fd, sum_of(from, n, result), at,
         NEXT(pwritev64)(fd, from, n, at));
}
WRAP(ssize_t, pwritev2, int fd, const struct iovec *from, int n, off_t at, int flags) {
    MOVE(VT_PWRITEV, fd, sum_of(from, n, result), at == -1 ? AT_POSITION : at,
         CALL_V2(pwritev2, SYS_pwritev2, from));
}
WRAP(ssize_t, pwritev64v2, int fd, const struct iovec *from, int n, off_t at, int flags) {
    MOVE(VT_PWRITEV, fd, sum_of(from, n, result), at == -1 ? AT_POSITION : at,
         CALL_V2(pwritev64v2, SYS_pwritev2, from));
}

/* libc writes for these without a call that passes here. */
WRAP(int, vdprintf, int fd, const char *format, va_list values) {
    MOVE(VT_WRITE, fd, result < 0 ? 0 : (size_t)result, AT_POSITION,
         NEXT(vdprintf)(fd, format, values));
}
WRAP(int, __vdprintf_chk, int fd, int flag, const char *format, va_list values) {
    MOVE(VT_WRITE, fd, result < 0 ? 0 : (size_t)result, AT_POSITION,
         NEXT(__vdprintf_chk)(fd, flag, format, values));
}
WRAP(int, dprintf, int fd, const char *format, ...) {
    va_list values;
    va_start(values, format);
    int result = vt_vdprintf(fd, format, values);
    va_end(values);
    return result;
}
WRAP(int, __dprintf_chk, int fd, int flag, const char *format, ...) {
    va_list values;
    va_start(values, format);
    int result = vt___vdprintf_chk(fd, flag, format, values);
    va_end(values);
    return result;
}

/* Between two descriptors: a slot for each that is a file. An offset that the caller keeps was moved
 * on by the call, and is only looked at when that has succeeded. */
static ssize_t passed(uint8_t in, uint8_t out, int from, const off_t *from_at, int to,
                      const off_t *to_at, size_t n, ssize_t (*call)(void *), void *arguments) {
    int error = errno;
    struct vt_file *source = vt_file_of(from), *target = vt_file_of(to);
    uint64_t start = source || target ? vt_start() : 0;
    errno = error;
    ssize_t result = call(arguments);
    if (source)
        moved(in, source, source->file, from, start, result, n,
              !from_at || result < 0 ? AT_POSITION : *from_at - result);
    else
        moved_elsewhere(true, result);
    if (target)
        moved(out, target, target->file, to, start, result, n,
              !to_at || result < 0 ? AT_POSITION : *to_at - result);
    else
        moved_elsewhere(false, result);
    return result;
}

struct between {
    int from, to;
    off_t *from_at, *to_at;
    size_t n;
    unsigned flags;
};

#define SENDFILE(name)                                                                               \
    static ssize_t call_##name(void *with);                                                          \
    WRAP(ssize_t, name, int to, int from, off_t *at, size_t n) {                                     \
        struct between b = {from, to, at, NULL, n, 0};                                               \
        return passed(VT_SENDFILE_IN, VT_SENDFILE_OUT, from, at, to, NULL, n, call_##name, &b);      \
    }                                                                                                \
    static ssize_t call_##name(void *with) {                                                         \
        struct between *b = with;                                                                    \
        return CALL(name, SYS_sendfile, b->to, b->from, b->from_at, b->n);                           \
    }
SENDFILE(sendfile)
SENDFILE(sendfile64)

static ssize_t call_copy(void *with);
WRAP(ssize_t, copy_file_range, int from, off_t *from_at, int to, off_t *to_at, size_t n,
     unsigned flags) {
    struct between b = {from, to, from_at, to_at, n, flags};
    return passed(VT_COPY_IN, VT_COPY_OUT, from, from_at, to, to_at, n, call_copy, &b);
}
static ssize_t call_copy(void *with) {
    struct between *b = with;
    return CALL(copy_file_range, SYS_copy_file_range, b->from, b->from_at, b->to, b->to_at, b->n,
                b->flags);
}

static ssize_t call_splice(void *with);
WRAP(ssize_t, splice, int from, off_t *from_at, int to, off_t *to_at, size_t n, unsigned flags) {
    struct between b = {from, to, from_at, to_at, n, flags};
    return passed(VT_SPLICE_IN, VT_SPLICE_OUT, from, from_at, to, to_at, n, call_splice, &b);
}
static ssize_t call_splice(void *with) {
    struct between *b = with;
    return CALL(splice, SYS_splice, b->from, b->from_at, b->to, b->to_at, b->n, b->flags);
}

/* ---- opening and closing ---- */

static int opened(int folder, const char *path, int flags, uint64_t start, int result) {
    int error = errno;
    if ((result >= 0 || error != EFAULT) && vt_recording()) {
        uint32_t number = vt_path(folder, path);
        if (result >= 0) vt_opened(result, number, flags);
        if (number != VT_LEFT_OUT && (result < 0 || vt_file_of(result)))
            vt_put(&(struct vt_event){VT_OPEN, number, start, -1, (unsigned)flags,
                                     result < 0 ? -error : result});
    }
    errno = error;
    return result;
}

static unsigned mode_of(int flags, va_list more) {
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, unsigned) : 0;
}

#define OPEN(name)                                                                                   \
    WRAP(int, name, const char *path, int flags, ...) {                                              \
        va_list more;                                                                                \
        va_start(more, flags);                                                                       \
        unsigned mode = mode_of(flags, more);                                                        \
        va_end(more);                                                                                \
        uint64_t start = vt_start();                                                                   \
        int result = likely(VT_FUNCTION(name) != VT_NONE)                                            \
                         ? NEXT(name)(path, flags, mode)                                             \
                         : (int)vt_returned(VT_SYS(SYS_openat, AT_FDCWD, path, flags, mode));        \
        return opened(AT_FDCWD, path, flags, start, result);                                         \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                 \
    WRAP(int, name, int folder, const char *path, int flags, ...) {                                  \
        va_list more;                                                                                \
        va_start(more, flags);                                                                       \
        unsigned mode = mode_of(flags, more);                                                        \
        va_end(more);                                                                                \
        uint64_t start = vt_start();                                                                   \
        int result = CALL(name, SYS_openat, folder, path, flags, mode);                              \
        return opened(folder, path, flags, start, result);                                           \
    }
OPENAT(openat)
OPENAT(openat64)

#define OPEN_2(name)                                                                                 \
    WRAP(int, name, const char *path, int flags) {                                                   \
        uint64_t start = vt_start();                                                                   \
        return opened(AT_FDCWD, path, flags, start, NEXT(name)(path, flags));                        \
    }
OPEN_2(__open_2)
OPEN_2(__open64_2)

#define OPENAT_2(name)                                                                               \
    WRAP(int, name, int folder, const char *path, int flags) {                                       \
        uint64_t start = vt_start();                                                                   \
        return opened(folder, path, flags, start, NEXT(name)(folder, path, flags));                  \
    }
OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)

#define CREAT(name)                                                                                  \
    WRAP(int, name, const char *path, mode_t mode) {                                                 \
        uint64_t start = vt_start();                                                                   \
        int result = NEXT(name)(path, mode);                                                         \
        return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, start, result);                  \
    }
CREAT(creat)
CREAT(creat64)

/* The name is known when the file is there. */
#define MKSTEMP(name, flags, parameters, ...)                                                        \
    WRAP(int, name, UNPACK parameters) {                                                             \
        uint64_t start = vt_start();                                                                   \
        int result = NEXT(name)(__VA_ARGS__);                                                        \
        return opened(AT_FDCWD, result < 0 ? NULL : path, (flags) | O_RDWR | O_CREAT | O_EXCL, start, \
                      result);                                                                       \
    }
#define UNPACK(...) __VA_ARGS__
MKSTEMP(mkstemp, 0, (char *path), path)
MKSTEMP(mkstemp64, 0, (char *path), path)
MKSTEMP(mkostemp, flags, (char *path, int flags), path, flags)
MKSTEMP(mkostemp64, flags, (char *path, int flags), path, flags)
MKSTEMP(mkstemps, 0, (char *path, int end), path, end)
MKSTEMP(mkstemps64, 0, (char *path, int end), path, end)
MKSTEMP(mkostemps, flags, (char *path, int end, int flags), path, end, flags)
MKSTEMP(mkostemps64, flags, (char *path, int end, int flags), path, end, flags)

WRAP(int, close, int fd) {
    int error = errno;
    struct vt_file *file = vt_take(fd); /* before another thread may get the same number */
    errno = error;
    if (!file) return CALL(close, SYS_close, fd);
    uint32_t number = file->file;
    uint64_t start = vt_start();
    int result = CALL(close, SYS_close, fd);
    error = errno;
    vt_put(&(struct vt_event){VT_CLOSE, number, start, -1, 0, result < 0 ? -error : 0});
    vt_let_go(file);
    errno = error;
    return result;
}

/* Those between two numbers were closed at once: all within the time that took. */
static void closed_all(int from, int last, uint64_t start) {
    for (int fd = from; (fd = vt_next_used(fd, last)) >= 0; fd++) {
        struct vt_file *file = vt_take(fd);
        if (!file) continue;
        vt_put(&(struct vt_event){VT_CLOSE, file->file, start, -1, 0, 0});
        vt_let_go(file);
    }
}

WRAP(int, close_range, unsigned first, unsigned last, int flags) {
    uint64_t start = vt_start();
    int result = CALL(close_range, SYS_close_range, first, last, flags);
    int error = errno;
    if (!result && !(flags & CLOSE_RANGE_CLOEXEC) && first <= INT32_MAX && vt_recording())
        closed_all((int)first, last > INT32_MAX ? INT32_MAX : (int)last, start);
    errno = error;
    return result;
}

WRAP(void, closefrom, int first) {
    uint64_t start = vt_start();
    if (VT_FUNCTION(closefrom) != VT_NONE)
        NEXT(closefrom)(first);
    else if (VT_SYS(SYS_close_range, first < 0 ? 0 : first, -1, 0))
        for (int fd = first < 0 ? 0 : first; fd < sysconf(_SC_OPEN_MAX); fd++) VT_SYS(SYS_close, fd);
    int error = errno;
    if (vt_recording()) closed_all(first, INT32_MAX, start);
    errno = error;
}

static int copied(int from, int result, uint64_t start) {
    int error = errno;
    struct vt_file *file = result >= 0 ? vt_file_of(from) : NULL;
    if (result >= 0) vt_copied(from, result);
    if (file) vt_put(&(struct vt_event){VT_DUP, file->file, start, -1, 0, result});
    errno = error;
    return result;
}

WRAP(int, dup, int fd) {
    uint64_t start = vt_start();
    return copied(fd, CALL(dup, SYS_dup, fd), start);
}
WRAP(int, dup2, int fd, int to) {
    uint64_t start = vt_start();
    return copied(fd, NEXT(dup2)(fd, to), start);
}
WRAP(int, dup3, int fd, int to, int flags) {
    uint64_t start = vt_start();
    return copied(fd, CALL(dup3, SYS_dup3, fd, to, flags), start);
}

static int controlled(int fd, int command, long argument, int result, uint64_t start) {
    if (result < 0) return result;
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) return copied(fd, result, start);
    if (command == F_SETFL) {
        int error = errno;
        struct vt_file *file = vt_file_of(fd);
        if (file) file->flags = (file->flags & ~(unsigned)VT_APPEND) | (argument & O_APPEND ? VT_APPEND : 0);
        errno = error;
    }
    return result;
}

#define FCNTL(name)                                                                                  \
    WRAP(int, name, int fd, int command, ...) {                                                      \
        va_list more;                                                                                \
        va_start(more, command);                                                                     \
        long argument = va_arg(more, long);                                                          \
        va_end(more);                                                                                \
        uint64_t start = vt_start();                                                                   \
        int result = CALL(name, SYS_fcntl, fd, command, argument);                                   \
        return controlled(fd, command, argument, result, start);                                     \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

/* ---- calls on a descriptor that move no data ---- */

static int done(uint8_t call, int fd, struct vt_file *file, uint64_t start, int64_t offset, size_t size,
                int result, bool returns_error) {
    int error = errno;
    (void)fd;
    int64_t said = returns_error ? -result : result < 0 ? -error : result;
    vt_put(&(struct vt_event){call, file->file, start, offset, size, said});
    errno = error;
    return result;
}

#define ON_DESCRIPTOR(kind, fd, offset, size, returns_error, call_)                                  \
    int error = errno;                                                                               \
    struct vt_file *file = vt_file_of(fd);                                                           \
    errno = error;                                                                                   \
    if (!file) return call_;                                                                         \
    uint64_t start = vt_start();                                                                       \
    int result = call_;                                                                              \
    return done(kind, fd, file, start, offset, size, result, returns_error)

#define LSEEK(name)                                                                                  \
    WRAP(off_t, name, int fd, off_t offset, int whence) {                                            \
        int error = errno;                                                                           \
        struct vt_file *file = vt_file_of(fd);                                                       \
        errno = error;                                                                               \
        if (!file) return CALL(name, SYS_lseek, fd, offset, whence);                                 \
        uint64_t start = vt_start();                                                                   \
        off_t result = CALL(name, SYS_lseek, fd, offset, whence);                                    \
        error = errno;                                                                               \
        if (result >= 0) file->position = result;                                                    \
        vt_put(&(struct vt_event){VT_LSEEK, file->file, start, offset, (unsigned)whence,              \
                                 result < 0 ? -error : result});                                     \
        errno = error;                                                                               \
        return result;                                                                               \
    }
LSEEK(lseek)
LSEEK(lseek64)

WRAP(int, fsync, int fd) { ON_DESCRIPTOR(VT_FSYNC, fd, -1, 0, false, NEXT(fsync)(fd)); }
WRAP(int, fdatasync, int fd) { ON_DESCRIPTOR(VT_FDATASYNC, fd, -1, 0, false, NEXT(fdatasync)(fd)); }
WRAP(int, sync_file_range, int fd, off_t at, off_t n, unsigned flags) {
    ON_DESCRIPTOR(VT_SYNC_RANGE, fd, at, (size_t)n, false, NEXT(sync_file_range)(fd, at, n, flags));
}
#define FTRUNCATE(name)                                                                              \
    WRAP(int, name, int fd, off_t length) {                                                          \
        ON_DESCRIPTOR(VT_TRUNCATE, fd, length, 0, false, CALL(name, SYS_ftruncate, fd, length));     \
    }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)
#define FALLOCATE(name)                                                                              \
    WRAP(int, name, int fd, int mode, off_t at, off_t n) {                                           \
        ON_DESCRIPTOR(VT_FALLOCATE, fd, at, (size_t)n, false, NEXT(name)(fd, mode, at, n));          \
    }
FALLOCATE(fallocate)
FALLOCATE(fallocate64)
#define POSIX_FALLOCATE(name)                                                                        \
    WRAP(int, name, int fd, off_t at, off_t n) {                                                     \
        ON_DESCRIPTOR(VT_FALLOCATE, fd, at, (size_t)n, true, NEXT(name)(fd, at, n));                 \
    }
POSIX_FALLOCATE(posix_fallocate)
POSIX_FALLOCATE(posix_fallocate64)
#define POSIX_FADVISE(name)                                                                          \
    WRAP(int, name, int fd, off_t at, off_t n, int advice) {                                         \
        ON_DESCRIPTOR(VT_FADVISE, fd, at, (size_t)n, true, NEXT(name)(fd, at, n, advice));           \
    }
POSIX_FADVISE(posix_fadvise)
POSIX_FADVISE(posix_fadvise64)
WRAP(int, fchmod, int fd, mode_t mode) {
    ON_DESCRIPTOR(VT_CHANGE, fd, -1, 0, false, NEXT(fchmod)(fd, mode));
}
WRAP(int, fchown, int fd, uid_t user, gid_t group) {
    ON_DESCRIPTOR(VT_CHANGE, fd, -1, 0, false, NEXT(fchown)(fd, user, group));
}
WRAP(int, futimens, int fd, const struct timespec *times) {
    ON_DESCRIPTOR(VT_CHANGE, fd, -1, 0, false, NEXT(futimens)(fd, times));
}
#define FSTAT(name, parameters, ...)                                                                 \
    WRAP(int, name, UNPACK parameters) {                                                             \
        ON_DESCRIPTOR(VT_FSTAT, fd, -1, 0, false, CALL(name, SYS_fstat, __VA_ARGS__));               \
    }
FSTAT(fstat, (int fd, struct stat *to), fd, to)
FSTAT(fstat64, (int fd, struct stat *to), fd, to)
#define OLD_FSTAT(name)                                                                              \
    WRAP(int, name, int version, int fd, struct stat *to) {                                          \
        ON_DESCRIPTOR(VT_FSTAT, fd, -1, 0, false, NEXT(name)(version, fd, to));                      \
    }
OLD_FSTAT(__fxstat)
OLD_FSTAT(__fxstat64)

/* ---- calls on names ---- */

/* A call on a name that has just returned; a path that the kernel could not read is not looked at. */
static int named(uint8_t call, int folder, const char *path, uint64_t start, int64_t offset, int result) {
    int error = errno;
    if ((result >= 0 || error != EFAULT) && vt_recording()) {
        uint32_t number = vt_path(folder, path);
        if (number != VT_LEFT_OUT)
            vt_put(&(struct vt_event){call, number, start, offset, 0, result < 0 ? -error : 0});
    }
    errno = error;
    return result;
}

#define ON_PATH(kind, folder, path, offset, call_)                                                   \
    uint64_t start = vt_start();                                                                       \
    int result = call_;                                                                              \
    return named(kind, folder, path, start, offset, result)

#define STAT(name, flags)                                                                            \
    WRAP(int, name, const char *path, struct stat *to) {                                             \
        ON_PATH(VT_STAT, AT_FDCWD, path, -1,                                                         \
                likely(VT_FUNCTION(name) != VT_NONE)                                                 \
                    ? NEXT(name)(path, to)                                                           \
                    : (int)vt_returned(VT_SYS(SYS_newfstatat, AT_FDCWD, path, to, flags)));          \
    }
STAT(stat, 0)
STAT(stat64, 0)
STAT(lstat, AT_SYMLINK_NOFOLLOW)
STAT(lstat64, AT_SYMLINK_NOFOLLOW)

/* With an empty path it is of the descriptor. */
static int stat_at(int folder, const char *path, uint64_t start, int result) {
    int error = errno;
    if ((result >= 0 || error != EFAULT) && path && !*path) {
        struct vt_file *file = vt_file_of(folder);
        if (file)
            vt_put(&(struct vt_event){VT_FSTAT, file->file, start, -1, 0, result < 0 ? -error : 0});
        errno = error;
        return result;
    }
    return named(VT_STAT, folder, path, start, -1, result);
}

#define FSTATAT(name)                                                                                \
    WRAP(int, name, int folder, const char *path, struct stat *to, int flags) {                      \
        uint64_t start = vt_start();                                                                   \
        return stat_at(folder, path, start, CALL(name, SYS_newfstatat, folder, path, to, flags));    \
    }
FSTATAT(fstatat)
FSTATAT(fstatat64)
WRAP(int, statx, int folder, const char *path, int flags, unsigned mask, void *to) {
    uint64_t start = vt_start();
    return stat_at(folder, path, start, CALL(statx, SYS_statx, folder, path, flags, mask, to));
}
#define OLD_STAT(name)                                                                               \
    WRAP(int, name, int version, const char *path, struct stat *to) {                                \
        ON_PATH(VT_STAT, AT_FDCWD, path, -1, NEXT(name)(version, path, to));                         \
    }
OLD_STAT(__xstat)
OLD_STAT(__xstat64)
OLD_STAT(__lxstat)
OLD_STAT(__lxstat64)
#define OLD_FSTATAT(name)                                                                            \
    WRAP(int, name, int version, int folder, const char *path, struct stat *to, int flags) {         \
        uint64_t start = vt_start();                                                                   \
        return stat_at(folder, path, start, NEXT(name)(version, folder, path, to, flags));           \
    }
OLD_FSTATAT(__fxstatat)
OLD_FSTATAT(__fxstatat64)

WRAP(int, access, const char *path, int mode) {
    ON_PATH(VT_ACCESS, AT_FDCWD, path, -1, NEXT(access)(path, mode));
}
WRAP(int, euidaccess, const char *path, int mode) {
    ON_PATH(VT_ACCESS, AT_FDCWD, path, -1, NEXT(euidaccess)(path, mode));
}
WRAP(int, faccessat, int folder, const char *path, int mode, int flags) {
    ON_PATH(VT_ACCESS, folder, path, -1, NEXT(faccessat)(folder, path, mode, flags));
}
WRAP(int, unlink, const char *path) { ON_PATH(VT_UNLINK, AT_FDCWD, path, -1, NEXT(unlink)(path)); }
WRAP(int, remove, const char *path) { ON_PATH(VT_UNLINK, AT_FDCWD, path, -1, NEXT(remove)(path)); }
WRAP(int, rmdir, const char *path) { ON_PATH(VT_UNLINK, AT_FDCWD, path, -1, NEXT(rmdir)(path)); }
WRAP(int, unlinkat, int folder, const char *path, int flags) {
    ON_PATH(VT_UNLINK, folder, path, -1, NEXT(unlinkat)(folder, path, flags));
}
WRAP(int, mkdir, const char *path, mode_t mode) {
    ON_PATH(VT_MKDIR, AT_FDCWD, path, -1, NEXT(mkdir)(path, mode));
}
WRAP(int, mkdirat, int folder, const char *path, mode_t mode) {
    ON_PATH(VT_MKDIR, folder, path, -1, NEXT(mkdirat)(folder, path, mode));
}
#define TRUNCATE(name)                                                                               \
    WRAP(int, name, const char *path, off_t length) {                                                \
        ON_PATH(VT_TRUNCATE, AT_FDCWD, path, length, NEXT(name)(path, length));                      \
    }
TRUNCATE(truncate)
TRUNCATE(truncate64)
WRAP(ssize_t, readlink, const char *path, char *to, size_t n) {
    uint64_t start = vt_start();
    ssize_t result = NEXT(readlink)(path, to, n);
    named(VT_READLINK, AT_FDCWD, path, start, -1, (int)result);
    return result;
}
WRAP(ssize_t, readlinkat, int folder, const char *path, char *to, size_t n) {
    uint64_t start = vt_start();
    ssize_t result = NEXT(readlinkat)(folder, path, to, n);
    if (result < 0 || *path) named(VT_READLINK, folder, path, start, -1, (int)result);
    return result;
}
WRAP(int, chmod, const char *path, mode_t mode) {
    ON_PATH(VT_CHANGE, AT_FDCWD, path, -1, NEXT(chmod)(path, mode));
}
WRAP(int, chown, const char *path, uid_t user, gid_t group) {
    ON_PATH(VT_CHANGE, AT_FDCWD, path, -1, NEXT(chown)(path, user, group));
}
WRAP(int, utime, const char *path, const void *times) {
    ON_PATH(VT_CHANGE, AT_FDCWD, path, -1, NEXT(utime)(path, times));
}
WRAP(int, utimes, const char *path, const struct timeval times[2]) {
    ON_PATH(VT_CHANGE, AT_FDCWD, path, -1, NEXT(utimes)(path, times));
}
WRAP(int, utimensat, int folder, const char *path, const struct timespec times[2], int flags) {
    if (!path) return NEXT(utimensat)(folder, path, times, flags);
    ON_PATH(VT_CHANGE, folder, path, -1, NEXT(utimensat)(folder, path, times, flags));
}

/* Of two names: `offset` holds the number of the new one. */
static int named_both(uint8_t call, int folder, const char *path, int to_folder, const char *to,
                      uint64_t start, int result) {
    int error = errno;
    if ((result >= 0 || error != EFAULT) && vt_recording()) {
        uint32_t number = vt_path(folder, path), new_number = vt_path(to_folder, to);
        if (number != VT_LEFT_OUT || new_number != VT_LEFT_OUT)
            vt_put(&(struct vt_event){call, number == VT_LEFT_OUT ? 0 : number, start,
                                     new_number == VT_LEFT_OUT ? 0 : new_number, 0,
                                     result < 0 ? -error : 0});
    }
    errno = error;
    return result;
}

WRAP(int, rename, const char *path, const char *to) {
    uint64_t start = vt_start();
    return named_both(VT_RENAME, AT_FDCWD, path, AT_FDCWD, to, start, NEXT(rename)(path, to));
}
WRAP(int, renameat, int folder, const char *path, int to_folder, const char *to) {
    uint64_t start = vt_start();
    return named_both(VT_RENAME, folder, path, to_folder, to, start,
                      NEXT(renameat)(folder, path, to_folder, to));
}
WRAP(int, renameat2, int folder, const char *path, int to_folder, const char *to, unsigned flags) {
    uint64_t start = vt_start();
    return named_both(VT_RENAME, folder, path, to_folder, to, start,
                      CALL(renameat2, SYS_renameat2, folder, path, to_folder, to, flags));
}
WRAP(int, link, const char *path, const char *to) {
    uint64_t start = vt_start();
    return named_both(VT_LINK, AT_FDCWD, path, AT_FDCWD, to, start, NEXT(link)(path, to));
}
WRAP(int, linkat, int folder, const char *path, int to_folder, const char *to, int flags) {
    uint64_t start = vt_start();
    return named_both(VT_LINK, folder, path, to_folder, to, start,
                      NEXT(linkat)(folder, path, to_folder, to, flags));
}
WRAP(int, symlink, const char *path, const char *to) {
    uint64_t start = vt_start();
    return named_both(VT_LINK, AT_FDCWD, path, AT_FDCWD, to, start, NEXT(symlink)(path, to));
}
WRAP(int, symlinkat, const char *path, int to_folder, const char *to) {
    uint64_t start = vt_start();
    return named_both(VT_LINK, AT_FDCWD, path, to_folder, to, start,
                      NEXT(symlinkat)(path, to_folder, to));
}

WRAP(int, chdir, const char *path) {
    int result = NEXT(chdir)(path), error = errno;
    if (!result && vt_recording()) vt_changed_folder();
    errno = error;
    return result;
}
WRAP(int, fchdir, int fd) {
    int result = NEXT(fchdir)(fd), error = errno;
    if (!result && vt_recording()) vt_changed_folder();
    errno = error;
    return result;
}
WRAP(int, chroot, const char *path) {
    int result = NEXT(chroot)(path), error = errno;
    if (!result && vt_recording()) vt_changed_folder();
    errno = error;
    return result;
}

/* ---- folders ---- */

WRAP(DIR *, opendir, const char *path) {
    uint64_t start = vt_start();
    DIR *folder = NEXT(opendir)(path);
    int error = errno;
    if ((folder || error != EFAULT) && vt_recording()) {
        uint32_t number = vt_path(AT_FDCWD, path);
        if (folder) vt_opened(dirfd(folder), number, O_DIRECTORY | O_CLOEXEC);
        if (number != VT_LEFT_OUT)
            vt_put(&(struct vt_event){VT_OPENDIR, number, start, -1, 0, folder ? 0 : -error});
    }
    errno = error;
    return folder;
}

/* Most entries come from a buffer of libc's, in less than this: those are counted with the next
 * one that does not. */
enum { AT_ONCE_NS = 1000 };

static void entries_read(struct vt_file *file, void *folder, uint64_t start, bool was_last, bool got) {
    struct vt_thread *me = &vt_me;
    if (me->directory != folder) {
        if (me->entries)
            vt_put(&(struct vt_event){VT_READDIR, me->directory_file, vt_now(), -1, 0,
                                     (int64_t)me->entries});
        me->directory = folder;
        me->directory_file = file->file;
        me->entries = 0;
    }
    me->entries += got;
    if (!was_last && vt_now() - start < AT_ONCE_NS) return;
    vt_put(&(struct vt_event){VT_READDIR, file->file, start, -1, 0, (int64_t)me->entries});
    me->entries = 0;
}

#define READDIR(name)                                                                                \
    WRAP(void *, name, DIR *folder) {                                                                \
        int error = errno;                                                                           \
        struct vt_file *file = vt_file_of(dirfd(folder));                                            \
        errno = error;                                                                               \
        if (!file) return NEXT(name)(folder);                                                        \
        uint64_t start = vt_start();                                                                   \
        void *entry = NEXT(name)(folder);                                                            \
        error = errno;                                                                               \
        entries_read(file, folder, start, !entry, entry != NULL);                                    \
        errno = error;                                                                               \
        return entry;                                                                                \
    }
READDIR(readdir)
READDIR(readdir64)

WRAP(int, closedir, DIR *folder) {
    int error = errno, fd = folder && vt_recording() ? dirfd(folder) : -1;
    struct vt_file *file = fd >= 0 ? vt_take(fd) : NULL;
    uint64_t start = vt_start();
    if (file && vt_me.directory == folder && vt_me.entries)
        entries_read(file, folder, start, true, false);
    errno = error;
    int result = NEXT(closedir)(folder);
    error = errno;
    if (file) {
        vt_put(&(struct vt_event){VT_CLOSE, file->file, start, -1, 0, result < 0 ? -error : 0});
        vt_let_go(file);
    }
    errno = error;
    return result;
}

/* ---- files in memory ---- */

enum { MAPPINGS = 4096 };
static struct {
    _Atomic uintptr_t address;
    uint32_t file;
} mappings[MAPPINGS]; /* by address, for munmap and msync */
static _Atomic uint32_t mapped;

static void keep_mapping(void *address, uint32_t file) {
    uintptr_t hash = ((uintptr_t)address >> 12) * 0x9e3779b1u;
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t at = (uint32_t)(hash + i) % MAPPINGS;
        uintptr_t none = mappings[at].address;
        if (none && none != (uintptr_t)address) continue;
        if (!__atomic_compare_exchange_n(VT_AT(&mappings[at].address), &none, (uintptr_t)address, false,
                                         __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        mappings[at].file = file;
        __atomic_fetch_add(VT_AT(&mapped), 1, __ATOMIC_RELAXED);
        return;
    }
}

static bool find_mapping(void *address, uint32_t *file, bool remove) {
    if (!mapped || !address) return false;
    uintptr_t hash = ((uintptr_t)address >> 12) * 0x9e3779b1u;
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t at = (uint32_t)(hash + i) % MAPPINGS;
        uintptr_t found = (uintptr_t)address;
        if (mappings[at].address != found) continue;
        *file = mappings[at].file;
        if (remove && __atomic_compare_exchange_n(VT_AT(&mappings[at].address), &found, 0, false,
                                                  __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            __atomic_fetch_sub(VT_AT(&mapped), 1, __ATOMIC_RELAXED);
        return true;
    }
    return false;
}

#define MMAP(name)                                                                                   \
    WRAP(void *, name, void *where, size_t n, int protection, int flags, int fd, off_t at) {         \
        int error = errno;                                                                           \
        struct vt_file *file = fd < 0 || flags & MAP_ANONYMOUS ? NULL : vt_file_of(fd);              \
        errno = error;                                                                               \
        if (!file) return CALL(name, SYS_mmap, where, n, protection, flags, fd, at);                 \
        uint32_t number = file->file;                                                                \
        uint64_t start = vt_start();                                                                   \
        void *result = NEXT(name)(where, n, protection, flags, fd, at);                              \
        error = errno;                                                                               \
        bool failed = result == MAP_FAILED;                                                          \
        vt_put(&(struct vt_event){VT_MMAP, number, start, at, (unsigned)protection,                   \
                                 failed ? -error : (int64_t)n});                                     \
        if (!failed) keep_mapping(result, number);                                                   \
        errno = error;                                                                               \
        return result;                                                                               \
    }
MMAP(mmap)
MMAP(mmap64)

WRAP(int, munmap, void *where, size_t n) {
    uint32_t file;
    if (!mapped || !vt_recording() || !find_mapping(where, &file, true))
        return CALL(munmap, SYS_munmap, where, n);
    vt_keep_name(file);
    uint64_t start = vt_start();
    int result = CALL(munmap, SYS_munmap, where, n), error = errno;
    vt_put(&(struct vt_event){VT_MUNMAP, file, start, -1, n, result < 0 ? -error : 0});
    errno = error;
    return result;
}
WRAP(int, msync, void *where, size_t n, int flags) {
    uint32_t file = 0;
    if (!mapped || !vt_recording()) return NEXT(msync)(where, n, flags);
    if (find_mapping(where, &file, false)) vt_keep_name(file);
    uint64_t start = vt_start();
    int result = NEXT(msync)(where, n, flags), error = errno;
    vt_put(&(struct vt_event){VT_MSYNC, file, start, -1, n, result < 0 ? -error : 0});
    errno = error;
    return result;
}

/* ---- processes ---- */

/* Positions of descriptors are shared with a child from before it is there. */
static void forks(void) { __atomic_fetch_add(VT_AT(&vt.forks), 1, __ATOMIC_RELAXED); }

static int forked(uint8_t call, uint64_t start, int child) {
    int error = errno;
    if (child == 0 && call == VT_FORK && vt.on) vt.wiped->generation = 0; /* Linux before 4.14 */
    if (child > 0 && vt_recording())
        vt_put(&(struct vt_event){call, 0, start, -1, 0, child});
    errno = error;
    return child;
}

WRAP(int, fork, void) {
    if (vt.on) forks();
    uint64_t start = vt_start();
    return forked(VT_FORK, start, NEXT(fork)());
}
WRAP(int, _Fork, void) {
    if (vt.on) forks();
    uint64_t start = vt_start();
    return forked(VT_FORK, start, NEXT(_Fork)());
}

WRAP(int, clone, int (*run)(void *), void *stack, int flags, void *argument, ...) {
    va_list more;
    va_start(more, argument);
    void *parent = va_arg(more, void *), *tls = va_arg(more, void *), *child = va_arg(more, void *);
    va_end(more);
    if (vt.on && !(flags & CLONE_THREAD)) {
        if (flags & CLONE_VM) vt_me.maybe_vforked = 1;
        forks();
    }
    return NEXT(clone)(run, stack, flags, argument, parent, tls, child);
}

/* What the child of a vfork does is done in our memory, so nothing is recorded of it. The function
 * returns twice, in the frame of its caller: so ours must be gone by then. */
HIDDEN void *vt_before_vfork(void);
static struct vt_next next_vfork __attribute__((section("vt_next"), used, aligned(8))) = {"vfork", NULL};
void *vt_before_vfork(void) {
    if (vt.on) {
        vt_me.maybe_vforked = 1;
        __atomic_fetch_add(VT_AT(&vt.spawns), 1, __ATOMIC_RELAXED);
    }
    return next_vfork.function ? next_vfork.function : vt_find(&next_vfork);
}

/* syscall(): only that a program forbids itself system calls is of interest. */
HIDDEN void *vt_before_syscall(long number);
static struct vt_next next_syscall __attribute__((section("vt_next"), used, aligned(8))) = {"syscall",
                                                                                           NULL};
void *vt_before_syscall(long number) {
    if (number == SYS_seccomp && vt.on) vt_seal();
    return next_syscall.function ? next_syscall.function : vt_find(&next_syscall);
}

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl vfork\n.type vfork, @function\nvfork:\n"
        "  .cfi_startproc\n  endbr64\n"
        "  push %rax\n  .cfi_adjust_cfa_offset 8\n"
        "  call vt_before_vfork\n"
        "  pop %rcx\n  .cfi_adjust_cfa_offset -8\n"
        "  jmp *%rax\n"
        "  .cfi_endproc\n.size vfork, . - vfork\n"
        ".globl syscall\n.type syscall, @function\nsyscall:\n"
        "  .cfi_startproc\n  endbr64\n"
        "  push %rdi\n  push %rsi\n  push %rdx\n  push %rcx\n  push %r8\n  push %r9\n  push %rax\n"
        "  .cfi_adjust_cfa_offset 56\n"
        "  call vt_before_syscall\n"
        "  mov %rax, %r11\n"
        "  pop %rax\n  pop %r9\n  pop %r8\n  pop %rcx\n  pop %rdx\n  pop %rsi\n  pop %rdi\n"
        "  .cfi_adjust_cfa_offset -56\n"
        "  jmp *%r11\n"
        "  .cfi_endproc\n.size syscall, . - syscall\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl vfork\n.type vfork, %function\nvfork:\n"
        "  .cfi_startproc\n  hint #34\n"
        "  stp x29, x30, [sp, #-16]!\n  .cfi_adjust_cfa_offset 16\n"
        "  bl vt_before_vfork\n"
        "  ldp x29, x30, [sp], #16\n  .cfi_adjust_cfa_offset -16\n"
        "  mov x16, x0\n  br x16\n"
        "  .cfi_endproc\n.size vfork, . - vfork\n"
        ".globl syscall\n.type syscall, %function\nsyscall:\n"
        "  .cfi_startproc\n  hint #34\n"
        "  stp x29, x30, [sp, #-80]!\n  .cfi_adjust_cfa_offset 80\n"
        "  stp x0, x1, [sp, #16]\n  stp x2, x3, [sp, #32]\n"
        "  stp x4, x5, [sp, #48]\n  str x6, [sp, #64]\n"
        "  bl vt_before_syscall\n"
        "  mov x16, x0\n"
        "  ldp x0, x1, [sp, #16]\n  ldp x2, x3, [sp, #32]\n"
        "  ldp x4, x5, [sp, #48]\n  ldr x6, [sp, #64]\n"
        "  ldp x29, x30, [sp], #80\n  .cfi_adjust_cfa_offset -80\n"
        "  br x16\n"
        "  .cfi_endproc\n.size syscall, . - syscall\n");
#endif

#define POSIX_SPAWN(name)                                                                            \
    WRAP(int, name, pid_t *child, const char *path, const posix_spawn_file_actions_t *actions,       \
         const posix_spawnattr_t *attributes, char *const *words, char *const *variables) {          \
        if (vt.on) __atomic_fetch_add(VT_AT(&vt.spawns), 1, __ATOMIC_RELAXED);                              \
        uint64_t start = vt_start();                                                                   \
        int result = NEXT(name)(child, path, actions, attributes, words, variables);                 \
        if (!result && child) forked(VT_SPAWN, start, *child);                                       \
        return result;                                                                               \
    }
POSIX_SPAWN(posix_spawn)
POSIX_SPAWN(posix_spawnp)

/* Another program takes this one's place: what it has recorded is whole, unless that fails. */
static bool becomes(void) {
    if (!vt.on || !vt_recording()) return false;
    vt_put(&(struct vt_event){VT_EXEC, 0, vt_now(), -1, 0, 0});
    vt_ends();
    return true;
}
static int stays(bool had_ended, int result) {
    int error = errno;
    if (had_ended) vt_goes_on();
    errno = error;
    return result;
}

WRAP(int, execve, const char *path, char *const *words, char *const *variables) {
    bool ended = becomes();
    return stays(ended, CALL(execve, SYS_execve, path, words, variables));
}
WRAP(int, execv, const char *path, char *const *words) {
    bool ended = becomes();
    return stays(ended, NEXT(execv)(path, words));
}
WRAP(int, execvp, const char *path, char *const *words) {
    bool ended = becomes();
    return stays(ended, NEXT(execvp)(path, words));
}
WRAP(int, execvpe, const char *path, char *const *words, char *const *variables) {
    bool ended = becomes();
    return stays(ended, NEXT(execvpe)(path, words, variables));
}
WRAP(int, fexecve, int fd, char *const *words, char *const *variables) {
    bool ended = becomes();
    return stays(ended, NEXT(fexecve)(fd, words, variables));
}

#define EXIT(name)                                                                                   \
    WRAP(_Noreturn void, name, int status) {                                                         \
        if (vt.on) vt_ends();                                                                        \
        if (VT_FUNCTION(name) != VT_NONE) NEXT(name)(status);                                        \
        for (;;) VT_SYS(SYS_exit_group, status);                                                     \
    }
EXIT(_exit)
EXIT(_Exit)
EXIT(quick_exit)

/* libc forks, and lets the parent end, without a call that passes here; 0, 1 and 2 are other files
 * afterwards. */
WRAP(int, daemon, int keeps_folder, int keeps_streams) {
    if (vt.on) forks();
    bool ended = vt.on && vt_recording();
    if (ended) vt_ends();
    int result = NEXT(daemon)(keeps_folder, keeps_streams), error = errno;
    if (result < 0 && ended) vt_goes_on();
    if (!result && vt.on) vt.wiped->generation = 0;
    if (!result && vt_recording()) {
        vt_changed_folder();
        for (int fd = 0; fd < 3 && !keeps_streams; fd++) {
            struct vt_file *file = vt_take(fd);
            if (file) vt_let_go(file);
        }
    }
    errno = error;
    return result;
}

WRAP(int, prctl, int option, ...) {
    va_list more;
    va_start(more, option);
    long a = va_arg(more, long), b = va_arg(more, long), c = va_arg(more, long),
         d = va_arg(more, long);
    va_end(more);
    bool on = vt.on, sealed = vt.sealed, seals = option == PR_SET_SECCOMP && on;
    if (seals) vt_seal();
    if (seals && a == SECCOMP_MODE_STRICT) vt.on = false; /* it may not even look at the clock */
    int result = CALL(prctl, SYS_prctl, option, a, b, c, d);
    if (seals && result < 0) vt.on = on, vt.sealed = sealed;
    return result;
}
