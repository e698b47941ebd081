/* Calls on streams: what the caller got or gave. What libc reads and writes below them does not pass
 * here, as it calls itself.
 *
 * The position of a stream is counted, not asked for: ftell may change what libc remembers of it.
 */
#include "tracer.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef __GLIBC__ /* musl may have these as macros; programs may have them as symbols */
#undef fopen64
#undef freopen64
#undef fseeko64
#undef fsetpos64
#endif

int fileno_unlocked(FILE *);

static int descriptor_of(FILE *stream) {
    int error = errno, fd = stream ? fileno_unlocked(stream) : -1; /* -1: it is in memory */
    errno = error;
    return fd;
}

struct use { /* of a stream by one call */
    struct vt_file *file; /* NULL: nothing that is recorded */
    uint32_t number;
    int fd;
    uint64_t start;
};

static struct use use_of(FILE *stream) {
    struct use use = {.fd = descriptor_of(stream)};
    int error = errno;
    use.file = use.fd < 0 ? NULL : vt_file_of(use.fd);
    if (use.file) {
        use.number = use.file->file;
        struct vt_descriptor *at = vt_descriptor(use.fd);
        if (unlikely(at->stream_position == VT_UNKNOWN) && !vt.sealed) {
            struct stat is;
            long now = VT_SYS(SYS_lseek, use.fd, 0, SEEK_CUR);
            if (use.file->flags & VT_APPEND && !VT_SYS(SYS_fstat, use.fd, &is)) now = is.st_size;
            at->stream_position = now < 0 ? VT_UNKNOWN : now;
        }
        use.start = vt_start();
    }
    errno = error;
    return use;
}

/* A call that moved so many bytes; -1: it failed. */
static void moved(uint8_t call, const struct use *use, int64_t nbytes, size_t size) {
    int error = errno;
    if (!use->file) {
        if (nbytes > 0) vt_moved_elsewhere(call >> 4 == 3, (uint64_t)nbytes);
        return;
    }
    _Atomic int64_t *position = &vt_descriptor(use->fd)->stream_position;
    int64_t offset = *position;
    if (offset >= 0 && nbytes > 0)
        offset = __atomic_fetch_add(VT_AT(position), nbytes, __ATOMIC_RELAXED);
    vt_put(&(struct vt_event){call, use->number, use->start, offset, size,
                             nbytes < 0 ? -(error ? error : EIO) : nbytes});
    errno = error;
}

/* ---- opening and closing ---- */

static int flags_of(const char *mode) {
    int flags = mode[0] == 'r' ? O_RDONLY : O_WRONLY | O_CREAT;
    if (mode[0] == 'a') flags |= O_APPEND;
    if (mode[0] == 'w') flags |= O_TRUNC;
    for (const char *c = mode; *c && *c != ','; c++) {
        if (*c == '+') flags = (flags & ~O_WRONLY) | O_RDWR;
        if (*c == 'x') flags |= O_EXCL;
        if (*c == 'e') flags |= O_CLOEXEC;
    }
    return flags;
}

static FILE *opened(const char *path, const char *mode, uint64_t start, FILE *stream) {
    int error = errno;
    if ((stream || error != EFAULT) && vt_recording()) {
        int flags = flags_of(mode), fd = descriptor_of(stream);
        uint32_t number = vt_path(AT_FDCWD, path);
        if (fd >= 0) vt_opened(fd, number, flags);
        if (number != VT_LEFT_OUT && (!stream || (fd >= 0 && vt_file_of(fd))))
            vt_put(&(struct vt_event){VT_FOPEN, number, start, -1, (unsigned)flags, stream ? 0 : -error});
    }
    errno = error;
    return stream;
}

#define FOPEN(name)                                                                                  \
    WRAP(FILE *, name, const char *path, const char *mode) {                                         \
        uint64_t start = vt_start();                                                                   \
        return opened(path, mode, start, NEXT(name)(path, mode));                                    \
    }
FOPEN(fopen)
FOPEN(fopen64)

static void closed(uint8_t call, struct vt_file *file, uint64_t start, int result) {
    int error = errno;
    if (file) {
        vt_put(&(struct vt_event){call, file->file, start, -1, 0, result ? -(error ? error : EIO) : 0});
        vt_let_go(file);
    }
    errno = error;
}

static struct vt_file *take(FILE *stream) {
    int error = errno, fd = vt.on ? descriptor_of(stream) : -1;
    struct vt_file *file = fd < 0 ? NULL : vt_take(fd);
    errno = error;
    return file;
}

#define FREOPEN(name)                                                                                \
    WRAP(FILE *, name, const char *path, const char *mode, FILE *stream) {                           \
        struct vt_file *before = take(stream);                                                       \
        uint64_t start = vt_start();                                                                   \
        FILE *result = NEXT(name)(path, mode, stream);                                               \
        closed(VT_FCLOSE, before, start, 0);                                                         \
        return path ? opened(path, mode, start, result) : result;                                    \
    }
FREOPEN(freopen)
FREOPEN(freopen64)

WRAP(FILE *, fdopen, int fd, const char *mode) {
    uint64_t start = vt_start();
    FILE *stream = NEXT(fdopen)(fd, mode);
    int error = errno;
    struct vt_file *file = stream ? vt_file_of(fd) : NULL;
    if (file) {
        if (*mode == 'a') file->flags |= VT_APPEND;
        vt_descriptor(fd)->stream_position = VT_UNKNOWN;
        vt_put(&(struct vt_event){VT_FOPEN, file->file, start, -1, (unsigned)flags_of(mode), 0});
    }
    errno = error;
    return stream;
}

WRAP(int, fclose, FILE *stream) {
    struct vt_file *file = take(stream);
    uint64_t start = vt_start();
    int result = NEXT(fclose)(stream);
    closed(VT_FCLOSE, file, start, result);
    return result;
}

WRAP(int, fflush, FILE *stream) {
    struct use use = use_of(stream);
    int result = NEXT(fflush)(stream), error = errno;
    if (use.file)
        vt_put(&(struct vt_event){VT_FFLUSH, use.number, use.start, -1, 0, result ? -error : 0});
    errno = error;
    return result;
}

/* ---- positions ---- */

static int sought(const struct use *use, int64_t position, int64_t asked, int whence, int result) {
    int error = errno;
    if (use->file) {
        _Atomic int64_t *at = &vt_descriptor(use->fd)->stream_position;
        if (!result) *at = position;
        vt_put(&(struct vt_event){VT_FSEEK, use->number, use->start, asked, (unsigned)whence,
                                 result ? -error : position});
    }
    errno = error;
    return result;
}

static int64_t aim_of(const struct use *use, int64_t offset, int whence) {
    struct stat is;
    int error = errno;
    if (!use->file) return 0;
    int64_t aim = VT_UNKNOWN, now = vt_descriptor(use->fd)->stream_position;
    if (whence == SEEK_SET) aim = offset;
    if (whence == SEEK_CUR && now >= 0) aim = now + offset;
    if (whence == SEEK_END && !vt.sealed && !VT_SYS(SYS_fstat, use->fd, &is)) aim = is.st_size + offset;
    errno = error;
    return aim;
}

/* SEEK_END counts from where the file ends once what was written is flushed, so it is asked after. */
#define FSEEK(name, type)                                                                            \
    WRAP(int, name, FILE *stream, type offset, int whence) {                                         \
        struct use use = use_of(stream);                                                             \
        int result = NEXT(name)(stream, offset, whence);                                             \
        return sought(&use, aim_of(&use, offset, whence), offset, whence, result);                   \
    }
FSEEK(fseek, long)
FSEEK(fseeko, off_t)
FSEEK(fseeko64, off_t)

WRAP(void, rewind, FILE *stream) {
    struct use use = use_of(stream);
    NEXT(rewind)(stream);
    sought(&use, 0, 0, SEEK_SET, 0);
}

off_t ftello(FILE *);

#define FSETPOS(name)                                                                                \
    WRAP(int, name, FILE *stream, const fpos_t *position) {                                          \
        struct use use = use_of(stream);                                                             \
        int result = NEXT(name)(stream, position);                                                   \
        int error = errno;                                                                           \
        int64_t now = use.file && !result ? ftello(stream) : 0; /* it was just set */                \
        errno = error;                                                                               \
        return sought(&use, now, now, SEEK_SET, result);                                             \
    }
FSETPOS(fsetpos)
FSETPOS(fsetpos64)

/* ---- reading ---- */

/* Of items that were read in part the bytes were read, too: then the stream is at its end. */
static size_t items_read(const struct use *use, FILE *stream, size_t size, size_t n, size_t got) {
    int64_t nbytes = (int64_t)(got * size);
    if (use->file && got < n && size > 1) {
        int error = errno;
        int64_t before = vt_descriptor(use->fd)->stream_position, now = ftello(stream);
        if (before >= 0 && now >= before + nbytes && now < before + nbytes + (int64_t)size)
            nbytes = now - before;
        errno = error;
    }
    moved(VT_FREAD, use, nbytes, size * n);
    return got;
}

#define FREAD(name)                                                                                  \
    WRAP(size_t, name, void *to, size_t size, size_t n, FILE *stream) {                              \
        struct use use = use_of(stream);                                                             \
        return items_read(&use, stream, size, n, NEXT(name)(to, size, n, stream));                   \
    }
FREAD(fread)
FREAD(fread_unlocked)
#define FREAD_CHK(name)                                                                              \
    WRAP(size_t, name, void *to, size_t room, size_t size, size_t n, FILE *stream) {                 \
        struct use use = use_of(stream);                                                             \
        return items_read(&use, stream, size, n, NEXT(name)(to, room, size, n, stream));             \
    }
FREAD_CHK(__fread_chk)
FREAD_CHK(__fread_unlocked_chk)

static char *line_read(const struct use *use, char *line, int room) {
    moved(VT_FGETS, use, line ? (int64_t)strlen(line) : 0, (size_t)room);
    return line;
}
#define FGETS(name)                                                                                  \
    WRAP(char *, name, char *to, int room, FILE *stream) {                                           \
        struct use use = use_of(stream);                                                             \
        return line_read(&use, NEXT(name)(to, room, stream), room);                                  \
    }
FGETS(fgets)
FGETS(fgets_unlocked)
#define FGETS_CHK(name)                                                                              \
    WRAP(char *, name, char *to, size_t size, int room, FILE *stream) {                              \
        struct use use = use_of(stream);                                                             \
        return line_read(&use, NEXT(name)(to, size, room, stream), room);                            \
    }
FGETS_CHK(__fgets_chk)
FGETS_CHK(__fgets_unlocked_chk)

static ssize_t text_read(const struct use *use, ssize_t result) {
    moved(VT_FGETS, use, result < 0 ? 0 : result, result < 0 ? 0 : (size_t)result);
    return result;
}
#define GETDELIM(name)                                                                               \
    WRAP(ssize_t, name, char **line, size_t *room, int end, FILE *stream) {                          \
        struct use use = use_of(stream);                                                             \
        return text_read(&use, NEXT(name)(line, room, end, stream));                                 \
    }
GETDELIM(getdelim)
GETDELIM(__getdelim)
WRAP(ssize_t, getline, char **line, size_t *room, FILE *stream) {
    struct use use = use_of(stream);
    return text_read(&use, NEXT(getline)(line, room, stream));
}

#define GETC(name)                                                                                   \
    WRAP(int, name, FILE *stream) {                                                                  \
        struct use use = use_of(stream);                                                             \
        int result = NEXT(name)(stream);                                                             \
        moved(VT_FGETC, &use, result != EOF, 1);                                                     \
        return result;                                                                               \
    }
GETC(fgetc)
GETC(getc)
GETC(_IO_getc)
GETC(fgetc_unlocked)
GETC(getc_unlocked)

/* How much was read is where the stream stands afterwards. */
static int scanned(const struct use *use, FILE *stream, int result) {
    int error = errno;
    int64_t nbytes = 0;
    if (use->file) {
        int64_t before = vt_descriptor(use->fd)->stream_position, now = ftello(stream);
        if (before >= 0 && now > before) nbytes = now - before;
    }
    errno = error;
    moved(VT_FSCANF, use, nbytes, (size_t)nbytes);
    return result;
}
#define VFSCANF(name)                                                                                \
    WRAP(int, name, FILE *stream, const char *format, va_list values) {                              \
        struct use use = use_of(stream);                                                             \
        return scanned(&use, stream, NEXT(name)(stream, format, values));                            \
    }
VFSCANF(vfscanf)
VFSCANF(__isoc99_vfscanf)
VFSCANF(__isoc23_vfscanf)
#define FSCANF(name, in_turn)                                                                        \
    WRAP(int, name, FILE *stream, const char *format, ...) {                                         \
        va_list values;                                                                              \
        va_start(values, format);                                                                    \
        struct use use = use_of(stream);                                                             \
        int result = scanned(&use, stream, NEXT(in_turn)(stream, format, values));                   \
        va_end(values);                                                                              \
        return result;                                                                               \
    }
FSCANF(fscanf, vfscanf)
FSCANF(__isoc99_fscanf, __isoc99_vfscanf)
FSCANF(__isoc23_fscanf, __isoc23_vfscanf)

/* ---- writing ---- */

#define FWRITE(name)                                                                                 \
    WRAP(size_t, name, const void *from, size_t size, size_t n, FILE *stream) {                      \
        struct use use = use_of(stream);                                                             \
        size_t given = NEXT(name)(from, size, n, stream);                                            \
        moved(VT_FWRITE, &use, given < n && !given ? -1 : (int64_t)(given * size), size * n);        \
        return given;                                                                                \
    }
FWRITE(fwrite)
FWRITE(fwrite_unlocked)

#define FPUTS(name)                                                                                  \
    WRAP(int, name, const char *text, FILE *stream) {                                                \
        struct use use = use_of(stream);                                                             \
        int result = NEXT(name)(text, stream);                                                       \
        size_t size = use.file && result >= 0 ? strlen(text) : 0;                                    \
        moved(VT_FPUTS, &use, result < 0 ? -1 : (int64_t)size, size);                                \
        return result;                                                                               \
    }
FPUTS(fputs)
FPUTS(fputs_unlocked)

WRAP(int, puts, const char *text) {
    struct use use = use_of(stdout);
    int result = NEXT(puts)(text);
    size_t size = use.file && result >= 0 ? strlen(text) + 1 : 0;
    moved(VT_FPUTS, &use, result < 0 ? -1 : (int64_t)size, size);
    return result;
}

#define PUTC(name)                                                                                   \
    WRAP(int, name, int letter, FILE *stream) {                                                      \
        struct use use = use_of(stream);                                                             \
        int result = NEXT(name)(letter, stream);                                                     \
        moved(VT_FPUTC, &use, result == EOF ? -1 : 1, 1);                                            \
        return result;                                                                               \
    }
PUTC(fputc)
PUTC(putc)
PUTC(_IO_putc)
PUTC(fputc_unlocked)
PUTC(putc_unlocked)
WRAP(int, putchar, int letter) {
    struct use use = use_of(stdout);
    int result = NEXT(putchar)(letter);
    moved(VT_FPUTC, &use, result == EOF ? -1 : 1, 1);
    return result;
}

static int printed(const struct use *use, int result) {
    moved(VT_FPRINTF, use, result, result < 0 ? 0 : (size_t)result);
    return result;
}
WRAP(int, vfprintf, FILE *stream, const char *format, va_list values) {
    struct use use = use_of(stream);
    return printed(&use, NEXT(vfprintf)(stream, format, values));
}
WRAP(int, __vfprintf_chk, FILE *stream, int flag, const char *format, va_list values) {
    struct use use = use_of(stream);
    return printed(&use, NEXT(__vfprintf_chk)(stream, flag, format, values));
}
WRAP(int, fprintf, FILE *stream, const char *format, ...) {
    va_list values;
    va_start(values, format);
    struct use use = use_of(stream);
    int result = printed(&use, NEXT(vfprintf)(stream, format, values));
    va_end(values);
    return result;
}
WRAP(int, __fprintf_chk, FILE *stream, int flag, const char *format, ...) {
    va_list values;
    va_start(values, format);
    struct use use = use_of(stream);
    int result = printed(&use, NEXT(__vfprintf_chk)(stream, flag, format, values));
    va_end(values);
    return result;
}
WRAP(int, vprintf, const char *format, va_list values) {
    struct use use = use_of(stdout);
    return printed(&use, NEXT(vfprintf)(stdout, format, values));
}
WRAP(int, printf, const char *format, ...) {
    va_list values;
    va_start(values, format);
    struct use use = use_of(stdout);
    int result = printed(&use, NEXT(vfprintf)(stdout, format, values));
    va_end(values);
    return result;
}
WRAP(int, __vprintf_chk, int flag, const char *format, va_list values) {
    struct use use = use_of(stdout);
    return printed(&use, NEXT(__vfprintf_chk)(stdout, flag, format, values));
}
WRAP(int, __printf_chk, int flag, const char *format, ...) {
    va_list values;
    va_start(values, format);
    struct use use = use_of(stdout);
    int result = printed(&use, NEXT(__vfprintf_chk)(stdout, flag, format, values));
    va_end(values);
    return result;
}
