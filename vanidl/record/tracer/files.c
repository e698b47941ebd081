/* Which file a descriptor or a path is, and where in it the next byte lies. */
#include "tracer.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BLOCK = 1024,
    BLOCKS = 1024, /* descriptors up to a million */
    FILES = 256,
    FILE_BLOCKS = 4096,
    NOTHING = 1, /* index of what is not recorded: pipes, sockets, terminals, files that are left out */
    FIRST = 2,
    SHORT = 480,
    FOLDERS = 8,
};

/* ---- names ---- */

static char folders[FOLDERS][PATH_MAX]; /* the working directory, and those before it */
static _Atomic uint32_t latest_folder;

void vt_changed_folder(void) {
    uint32_t next = (latest_folder + 1) % FOLDERS;
    long n = VT_SYS(SYS_getcwd, folders[next], PATH_MAX);
    if (n <= 0 || folders[next][0] != '/') folders[next][0] = 0; /* removed, or out of reach */
    latest_folder = next;
}

static char run[PATH_MAX]; /* the recorder's own folder */
static size_t run_length;

void vt_leave_out(const char *folder) {
    if (!folder || folder[0] != '/' || (run_length = strlen(folder)) >= sizeof run) run_length = 0;
    if (run_length) memcpy(run, folder, run_length);
}

static bool begins(const char *name, const char *with) { return !strncmp(name, with, strlen(with)); }

static bool ends(const char *name, size_t length, const char *with) {
    size_t n = strlen(with);
    return length >= n && !memcmp(name + length - n, with, n);
}

/* Pseudo file systems, the system's own files, and code: as vanidl tells Darshan to leave out. */
static bool is_left_out(const char *name, size_t length) {
    static const char *const trees[] = {"/proc/", "/sys/", "/dev/", "/etc/", "/lib/", "/lib64/",
                                        "/bin/", "/sbin/", "/run/", "/memfd:"};
    static const char *const code[] = {".py", ".pyc", ".pyo", ".so", ".pth", ".steps",
                                       ".steps-error", ".objects", ".calls"};
    static const char *const within[] = {"/site-packages", "/dist-packages", "/__pycache__"};
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++)
        if (name[1] == trees[i][1] && (begins(name, trees[i]) || !strncmp(name, trees[i], length + 1)))
            return true;
    if (run_length && !memcmp(name, run, run_length < length ? run_length : length) &&
        length >= run_length && (!name[run_length] || name[run_length] == '/'))
        return true;
    if (begins(name, "/usr/") && !begins(name, "/usr/local/")) return true;
    for (size_t i = 0; i < sizeof code / sizeof *code; i++)
        if (ends(name, length, code[i])) return true;
    for (const char *at = name; (at = strchr(at, '/')) && at[1]; at++) {
        for (size_t i = 0; i < sizeof within / sizeof *within; i++)
            if (at[1] == within[i][1] && begins(at, within[i])) return true;
        if (at[1] == 'l' && begins(at, "/lib/python") && at[11] >= '2' && at[11] <= '9') return true;
    }
    const char *library = strstr(name, ".so.");
    return library && !strchr(library, '/') && library[4] >= '0' && library[4] <= '9';
}

/* base/path without "." and "//"; its length, 0 where it is not known or too long. */
static size_t join(char *name, size_t room, size_t length, const char *path) {
    if (length == 1) length = 0; /* the root */
    while (*path) {
        const char *end = path;
        while (*end && *end != '/') end++;
        size_t n = (size_t)(end - path);
        if (n && !(n == 1 && *path == '.')) {
            if (length + n + 2 > room) return 0;
            name[length++] = '/';
            memcpy(name + length, path, n);
            length += n;
        }
        path = *end ? end + 1 : end;
    }
    if (!length) name[length++] = '/';
    name[length] = 0;
    return length;
}

static uint32_t named(const char *name, size_t length) {
    if (!length) return 0;
    return is_left_out(name, length) ? VT_LEFT_OUT : vt_number(name, length);
}

static uint32_t path_in(char *name, size_t room, int folder, const char *path) {
    size_t length = 0;
    if (*path != '/' && folder == AT_FDCWD) {
        const char *base = folders[latest_folder];
        length = strlen(base);
        if (!length || length >= room) return 0;
        memcpy(name, base, length);
    } else if (*path != '/') {
        struct vt_file *file = vt_file_of(folder);
        length = file ? vt_name(file->file, name, room) : 0;
        if (!length) return file || vt.sealed ? 0 : VT_LEFT_OUT;
    }
    return named(name, join(name, room, length, path));
}

__attribute__((noinline)) static uint32_t long_path(int folder, const char *path) {
    char name[PATH_MAX + NAME_MAX];
    return path_in(name, sizeof name, folder, path);
}

/* The stack may be a small one, of a signal handler: a long name alone takes more of it. */
__attribute__((noinline)) static uint32_t short_path(int folder, const char *path) {
    char name[SHORT];
    return path_in(name, sizeof name, folder, path);
}

uint32_t vt_path(int folder, const char *path) {
    if (!path) return 0;
    size_t length = strlen(path);
    if (*path != '/') length += folder == AT_FDCWD ? strlen(folders[latest_folder]) : SHORT / 2;
    return length + 2 < SHORT ? short_path(folder, path) : long_path(folder, path);
}

/* ---- files, and descriptors of them ---- */

static struct vt_descriptor first_descriptors[BLOCK];
static struct vt_descriptor *_Atomic descriptors[BLOCKS] = {first_descriptors};
static struct vt_file first_files[FILES];
static struct vt_file *_Atomic files[FILE_BLOCKS] = {first_files};
static _Atomic uint32_t files_made = FIRST;
static _Atomic uint64_t free_file; /* stack: count << 32 | index */

static bool make_block(void *_Atomic *where, size_t nbytes) {
    void *none = NULL, *made;
    if (*where) return true;
    if (vt.sealed || !(made = vt_memory(nbytes))) return false;
    if (!__atomic_compare_exchange_n(VT_AT(where), &none, made, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        VT_SYS(SYS_munmap, made, nbytes);
    return true;
}

struct vt_descriptor *vt_descriptor(int descriptor) {
    if (descriptor < 0 || descriptor >= BLOCK * BLOCKS) return NULL;
    void *_Atomic *block = (void *_Atomic *)&descriptors[descriptor / BLOCK];
    if (unlikely(!*block) && !make_block(block, BLOCK * sizeof(struct vt_descriptor))) return NULL;
    return descriptors[descriptor / BLOCK] + descriptor % BLOCK;
}

/* The first descriptor from this one on, up to `last`, of which something is known; -1: none. */
int vt_next_used(int descriptor, int last) {
    if (descriptor < 0) descriptor = 0;
    for (; descriptor <= last && descriptor < BLOCK * BLOCKS; descriptor++) {
        struct vt_descriptor *block = descriptors[descriptor / BLOCK];
        if (!block)
            descriptor = descriptor / BLOCK * BLOCK + BLOCK - 1;
        else if (block[descriptor % BLOCK].index)
            return descriptor;
    }
    return -1;
}

static struct vt_file *file_at(uint32_t index) { return files[index / FILES] + index % FILES; }

/* Index of a new file with one user; NOTHING where there is no room. */
static uint32_t new_file(uint32_t number, uint32_t flags, int64_t position) {
    uint64_t top = free_file;
    uint32_t index = 0;
    while ((index = (uint32_t)top)) {
        uint64_t changed = ((top >> 32) + 1) << 32 | file_at(index)->next_free;
        if (__atomic_compare_exchange_n(VT_AT(&free_file), &top, changed, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_ACQUIRE))
            break;
    }
    if (!index) {
        index = __atomic_fetch_add(VT_AT(&files_made), 1, __ATOMIC_RELAXED);
        if (index >= FILES * FILE_BLOCKS ||
            !make_block((void *_Atomic *)&files[index / FILES], FILES * sizeof(struct vt_file)))
            return NOTHING;
    }
    struct vt_file *file = file_at(index);
    file->file = number;
    file->index = index;
    file->generation = vt.generation;
    file->forks = vt.forks;
    file->spawns = vt.spawns;
    file->flags = flags;
    file->position = position;
    __atomic_store_n(VT_AT(&file->users), 1, __ATOMIC_RELEASE);
    return index;
}

static void let_go(uint32_t index) {
    if (index < FIRST) return;
    struct vt_file *file = file_at(index);
    if (__atomic_sub_fetch(VT_AT(&file->users), 1, __ATOMIC_ACQ_REL)) return;
    uint64_t top = free_file, changed;
    do {
        file->next_free = (uint32_t)top;
        changed = ((top >> 32) + 1) << 32 | index;
    } while (!__atomic_compare_exchange_n(VT_AT(&free_file), &top, changed, false, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
}

static void set(int descriptor, uint32_t index) {
    struct vt_descriptor *where = vt_descriptor(descriptor);
    if (!where) {
        let_go(index);
        return;
    }
    where->stream_position = VT_UNKNOWN;
    let_go(__atomic_exchange_n(VT_AT(&where->index), index, __ATOMIC_ACQ_REL));
}

static bool is_file(int descriptor) {
    struct stat is;
    if (VT_SYS(SYS_fstat, descriptor, &is)) return false;
    return S_ISREG(is.st_mode) || S_ISDIR(is.st_mode);
}

/* Index of a descriptor that came from elsewhere: it was inherited, or made by a call that we do
 * not see. */
__attribute__((noinline)) static uint32_t look_at(int descriptor, struct vt_descriptor *where) {
    char link[32] = "/proc/self/fd/", name[1024], digits[12], *end = link + strlen(link);
    uint32_t index = NOTHING, none = 0;
    if (vt.sealed) return NOTHING;
    if (VT_SYS(SYS_fcntl, descriptor, F_GETFD) < 0) return 0; /* it is not open */
    if (is_file(descriptor)) {
        int n = 0, rest = descriptor;
        do digits[n++] = (char)('0' + rest % 10);
        while (rest /= 10);
        while (n) *end++ = digits[--n];
        *end = 0;
        long length = VT_SYS(SYS_readlinkat, AT_FDCWD, link, name, sizeof name - 1);
        if (length > 0 && name[0] == '/') {
            name[length] = 0;
            uint32_t number = length == sizeof name - 1 ? 0 : named(name, (size_t)length);
            uint32_t flags = VT_SHARED;
            if (VT_SYS(SYS_fcntl, descriptor, F_GETFL) & O_APPEND) flags |= VT_APPEND;
            if (number != VT_LEFT_OUT) index = new_file(number, flags, VT_UNKNOWN);
        }
    }
    if (!__atomic_compare_exchange_n(VT_AT(&where->index), &none, index, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        let_go(index);
        index = none;
    } else {
        where->stream_position = VT_UNKNOWN;
    }
    return index;
}

struct vt_file *vt_file_of(int descriptor) {
    if (!vt_recording()) return NULL;
    struct vt_descriptor *where = vt_descriptor(descriptor);
    uint32_t index = likely(where != NULL) ? where->index : NOTHING;
    if (unlikely(!index)) index = look_at(descriptor, where);
    if (index < FIRST) return NULL;
    struct vt_file *file = file_at(index);
    if (unlikely(file->generation != vt.generation)) { /* from before a fork */
        file->generation = vt.generation;
        vt_keep_name(file->file);
    }
    return file;
}

void vt_opened(int descriptor, uint32_t number, int flags) {
    if (!vt_recording()) return;
    uint32_t kept = (flags & O_APPEND ? VT_APPEND : 0) | (flags & O_CLOEXEC ? VT_CLOEXEC : 0);
    set(descriptor, number == VT_LEFT_OUT || (!vt.sealed && !is_file(descriptor))
                        ? NOTHING
                        : new_file(number, kept, 0));
}

struct vt_file *vt_take(int descriptor) {
    if (!vt_recording()) return NULL;
    struct vt_descriptor *where = vt_descriptor(descriptor);
    if (!where || !where->index) return NULL;
    vt_file_of(descriptor); /* its name is known in this process, too */
    uint32_t index = __atomic_exchange_n(VT_AT(&where->index), 0, __ATOMIC_ACQ_REL);
    where->stream_position = VT_UNKNOWN;
    return index < FIRST ? NULL : file_at(index);
}

void vt_let_go(struct vt_file *file) { let_go(file->index); }

void vt_copied(int from, int to) {
    if (!vt_recording() || from == to) return;
    struct vt_descriptor *of = vt_descriptor(from);
    uint32_t index = of ? of->index : NOTHING;
    if (index >= FIRST) __atomic_fetch_add(VT_AT(&file_at(index)->users), 1, __ATOMIC_RELAXED);
    set(to, index);
}

int64_t vt_advance(struct vt_file *file, int descriptor, int64_t moved, bool writing) {
    bool shared = file->flags & VT_SHARED || file->forks != vt.forks ||
                  (!(file->flags & VT_CLOEXEC) && file->spawns != vt.spawns);
    if (unlikely(shared || file->position < 0 || (writing && file->flags & VT_APPEND))) {
        if (vt.sealed) return VT_UNKNOWN;
        long now = VT_SYS(SYS_lseek, descriptor, 0, SEEK_CUR);
        file->position = now < 0 ? VT_UNKNOWN : now;
        return now < 0 ? VT_UNKNOWN : now - moved;
    }
    return __atomic_fetch_add(VT_AT(&file->position), moved, __ATOMIC_RELAXED);
}
