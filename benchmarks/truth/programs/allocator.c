/* An allocator that reads files and maps memory by libc's calls as it begins, and as it goes on. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEAD = 16, PIECE = 1 << 22 };
static char first[1 << 16], *arena;
static size_t used, at, end;
static int depth;

static void *given(char *where, size_t n) {
    *(size_t *)where = n;
    return where + HEAD;
}

void *malloc(size_t n) {
    char text[64];
    n = (n + HEAD + 15) & ~(size_t)15;
    if (depth) { /* asked for by a call of its own */
        if (used + n > sizeof first) _exit(90);
        used += n;
        return given(first + used - n, n);
    }
    depth = 1;
    int fd = open("/proc/self/stat", O_RDONLY);
    if (fd >= 0 && read(fd, text, sizeof text) >= 0) close(fd);
    close(open("/tmp", O_RDONLY));
    if (readlink("/etc/malloc.conf", text, sizeof text) > 0) _exit(91);
    if (at + n > end) {
        end = n > PIECE ? n : PIECE;
        arena = mmap(NULL, end, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        at = 0;
    }
    at += n;
    depth = 0;
    return given(arena + at - n, n);
}

void free(void *memory) { (void)memory; }

void *calloc(size_t n, size_t size) {
    char *memory = malloc(n * size);
    for (size_t i = 0; i < n * size; i++) memory[i] = 0;
    return memory;
}

void *realloc(void *memory, size_t n) {
    char *moved = malloc(n);
    size_t before = memory ? *(size_t *)((char *)memory - HEAD) - HEAD : 0;
    for (size_t i = 0; i < before && i < n; i++) moved[i] = ((char *)memory)[i];
    return moved;
}

__attribute__((constructor)) static void early(void) {
    close(open("/tmp", O_RDONLY));
    free(malloc(10));
}
