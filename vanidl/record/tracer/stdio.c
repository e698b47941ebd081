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
#include <wchar.h>

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
#define GETCHAR(name)                                                                                \
    WRAP(int, name, void) {                                                                          \
        struct use use = use_of(stdin);                                                              \
        int result = NEXT(name)();                                                                   \
        moved(VT_FGETC, &use, result != EOF, 1);                                                     \
        return result;                                                                               \
    }
GETCHAR(getchar)
GETCHAR(getchar_unlocked)

/* How much a call moved that does not say it: where the stream stands afterwards. */
static int64_t moved_since(const struct use *use, FILE *stream) {
    int error = errno;
    int64_t nbytes = 0;
    if (use->file) {
        int64_t before = vt_descriptor(use->fd)->stream_position, now = ftello(stream);
        if (before >= 0 && now > before) nbytes = now - before;
    }
    errno = error;
    return nbytes;
}
static int scanned(const struct use *use, FILE *stream, int result) {
    int64_t nbytes = moved_since(use, stream);
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
#define SCANF(name, v_name, in_turn, type)                                                           \
    WRAP(int, v_name, const type *format, va_list values) {                                          \
        struct use use = use_of(stdin);                                                              \
        return scanned(&use, stdin, NEXT(in_turn)(stdin, format, values));                           \
    }                                                                                                \
    WRAP(int, name, const type *format, ...) {                                                       \
        va_list values;                                                                              \
        va_start(values, format);                                                                    \
        struct use use = use_of(stdin);                                                              \
        int result = scanned(&use, stdin, NEXT(in_turn)(stdin, format, values));                     \
        va_end(values);                                                                              \
        return result;                                                                               \
    }
SCANF(scanf, vscanf, vfscanf, char)
SCANF(__isoc99_scanf, __isoc99_vscanf, __isoc99_vfscanf, char)
SCANF(__isoc23_scanf, __isoc23_vscanf, __isoc23_vfscanf, char)

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
#define PUTCHAR(name)                                                                                \
    WRAP(int, name, int letter) {                                                                    \
        struct use use = use_of(stdout);                                                             \
        int result = NEXT(name)(letter);                                                             \
        moved(VT_FPUTC, &use, result == EOF ? -1 : 1, 1);                                            \
        return result;                                                                               \
    }
PUTCHAR(putchar)
PUTCHAR(putchar_unlocked)

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

/* ---- wide characters: bytes of the file, as the stream's locale encodes them ---- */

static size_t encoded(wint_t letter) {
    char bytes[16];
    mbstate_t state = {0};
    int error = errno;
    size_t n = wcrtomb(bytes, (wchar_t)letter, &state);
    errno = error;
    return n == (size_t)-1 ? 1 : n;
}
static size_t encoded_text(const wchar_t *text) {
    size_t n = 0;
    for (; *text; text++) n += encoded((wint_t)*text);
    return n;
}

static wint_t wide_read(const struct use *use, wint_t letter) {
    moved(VT_FGETC, use, letter == WEOF ? 0 : (int64_t)encoded(letter), 1);
    return letter;
}
#define GETWC(name)                                                                                  \
    WRAP(wint_t, name, FILE *stream) {                                                               \
        struct use use = use_of(stream);                                                             \
        return wide_read(&use, NEXT(name)(stream));                                                  \
    }
GETWC(fgetwc)
GETWC(getwc)
GETWC(fgetwc_unlocked)
GETWC(getwc_unlocked)
#define GETWCHAR(name)                                                                               \
    WRAP(wint_t, name, void) {                                                                       \
        struct use use = use_of(stdin);                                                              \
        return wide_read(&use, NEXT(name)());                                                        \
    }
GETWCHAR(getwchar)
GETWCHAR(getwchar_unlocked)

static wchar_t *wide_line_read(const struct use *use, wchar_t *line, int room) {
    moved(VT_FGETS, use, line ? (int64_t)encoded_text(line) : 0, (size_t)room);
    return line;
}
#define FGETWS(name)                                                                                 \
    WRAP(wchar_t *, name, wchar_t *to, int room, FILE *stream) {                                     \
        struct use use = use_of(stream);                                                             \
        return wide_line_read(&use, NEXT(name)(to, room, stream), room);                             \
    }
FGETWS(fgetws)
FGETWS(fgetws_unlocked)
#define FGETWS_CHK(name)                                                                             \
    WRAP(wchar_t *, name, wchar_t *to, size_t size, int room, FILE *stream) {                        \
        struct use use = use_of(stream);                                                             \
        return wide_line_read(&use, NEXT(name)(to, size, room, stream), room);                       \
    }
FGETWS_CHK(__fgetws_chk)
FGETWS_CHK(__fgetws_unlocked_chk)

#define VFWSCANF(name)                                                                               \
    WRAP(int, name, FILE *stream, const wchar_t *format, va_list values) {                           \
        struct use use = use_of(stream);                                                             \
        return scanned(&use, stream, NEXT(name)(stream, format, values));                            \
    }
VFWSCANF(vfwscanf)
VFWSCANF(__isoc99_vfwscanf)
VFWSCANF(__isoc23_vfwscanf)
#define FWSCANF(name, in_turn)                                                                       \
    WRAP(int, name, FILE *stream, const wchar_t *format, ...) {                                      \
        va_list values;                                                                              \
        va_start(values, format);                                                                    \
        struct use use = use_of(stream);                                                             \
        int result = scanned(&use, stream, NEXT(in_turn)(stream, format, values));                   \
        va_end(values);                                                                              \
        return result;                                                                               \
    }
FWSCANF(fwscanf, vfwscanf)
FWSCANF(__isoc99_fwscanf, __isoc99_vfwscanf)
FWSCANF(__isoc23_fwscanf, __isoc23_vfwscanf)
SCANF(wscanf, vwscanf, vfwscanf, wchar_t)
SCANF(__isoc99_wscanf, __isoc99_vwscanf, __isoc99_vfwscanf, wchar_t)
SCANF(__isoc23_wscanf, __isoc23_vwscanf, __isoc23_vfwscanf, wchar_t)

static wint_t wide_written(const struct use *use, wint_t letter) {
    moved(VT_FPUTC, use, letter == WEOF ? -1 : (int64_t)encoded(letter), 1);
    return letter;
}
#define PUTWC(name)                                                                                  \
    WRAP(wint_t, name, wchar_t letter, FILE *stream) {                                               \
        struct use use = use_of(stream);                                                             \
        return wide_written(&use, NEXT(name)(letter, stream));                                       \
    }
PUTWC(fputwc)
PUTWC(putwc)
PUTWC(fputwc_unlocked)
PUTWC(putwc_unlocked)
#define PUTWCHAR(name)                                                                               \
    WRAP(wint_t, name, wchar_t letter) {                                                             \
        struct use use = use_of(stdout);                                                             \
        return wide_written(&use, NEXT(name)(letter));                                               \
    }
PUTWCHAR(putwchar)
PUTWCHAR(putwchar_unlocked)

#define FPUTWS(name)                                                                                 \
    WRAP(int, name, const wchar_t *text, FILE *stream) {                                             \
        struct use use = use_of(stream);                                                             \
        int result = NEXT(name)(text, stream);                                                       \
        size_t size = result >= 0 ? encoded_text(text) : 0;                                          \
        moved(VT_FPUTS, &use, result < 0 ? -1 : (int64_t)size, size);                                \
        return result;                                                                               \
    }
FPUTWS(fputws)
FPUTWS(fputws_unlocked)

/* What is returned are characters: how many bytes they are is where the stream stands. */
static int wide_printed(const struct use *use, FILE *stream, int result) {
    int64_t nbytes = result < 0 || !use->file ? result : moved_since(use, stream);
    moved(VT_FPRINTF, use, nbytes, nbytes < 0 ? 0 : (size_t)nbytes);
    return result;
}
#define WPRINTF(v_name, name, first, stream_, ...)                                                   \
    WRAP(int, v_name, first const wchar_t *format, va_list values) {                                 \
        struct use use = use_of(stream_);                                                            \
        return wide_printed(&use, stream_, __VA_ARGS__);                                             \
    }                                                                                                \
    WRAP(int, name, first const wchar_t *format, ...) {                                              \
        va_list values;                                                                              \
        va_start(values, format);                                                                    \
        struct use use = use_of(stream_);                                                            \
        int result = wide_printed(&use, stream_, __VA_ARGS__);                                       \
        va_end(values);                                                                              \
        return result;                                                                               \
    }
#define OF_STREAM FILE *stream,
#define OF_STREAM_CHECKED FILE *stream, int flag,
#define CHECKED int flag,
#define NOTHING_ELSE
WPRINTF(vfwprintf, fwprintf, OF_STREAM, stream, NEXT(vfwprintf)(stream, format, values))
WPRINTF(__vfwprintf_chk, __fwprintf_chk, OF_STREAM_CHECKED, stream,
        NEXT(__vfwprintf_chk)(stream, flag, format, values))
WPRINTF(vwprintf, wprintf, NOTHING_ELSE, stdout, NEXT(vfwprintf)(stdout, format, values))
WPRINTF(__vwprintf_chk, __wprintf_chk, CHECKED, stdout,
        NEXT(__vfwprintf_chk)(stdout, flag, format, values))
