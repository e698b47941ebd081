/* What a call costs through whatever is preloaded, and what it costs in libc itself: batches of calls
 * in turn, in one process, so that whatever else the machine does meets both.
 *
 *     loops KIND FILE PAIRS CALLS [wall]        FILE has 800 KiB or more
 *
 * Prints a line a pair: nanoseconds of CPU (of the clock) a call by name, and in libc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct {
    ssize_t (*read)(int, void *, size_t);
    ssize_t (*pread)(int, void *, size_t, off_t);
    size_t (*fread)(void *, size_t, size_t, FILE *);
    int (*open)(const char *, int, ...);
    int (*close)(int);
    int (*stat)(const char *, struct stat *);
} by[2];
static off_t (*seek)(int, off_t, int); /* libc's own: beginning again is no call that is measured */
static void (*begin_again)(FILE *);

static clockid_t watch = CLOCK_THREAD_CPUTIME_ID;
static const char *path;
static char buffer[4096];

static double now(void) {
    struct timespec t;
    clock_gettime(watch, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double batch(int way, char kind, long calls, int fd, FILE *stream) {
    struct stat is;
    double begin = now();
    for (long i = 0; i < calls; i++) {
        long failed = 0;
        if (i % 200 == 0) kind == 'f' ? begin_again(stream) : (void)seek(fd, 0, SEEK_SET);
        if (kind == 'r') failed = by[way].read(fd, buffer, 4096) != 4096;
        if (kind == 'p') failed = by[way].pread(fd, buffer, 4096, i % 200 * 4096) != 4096;
        if (kind == 'f') failed = by[way].fread(buffer, 1, 4096, stream) != 4096;
        if (kind == 's') failed = by[way].stat(path, &is);
        if (kind == 'o') failed = by[way].close(by[way].open(path, O_RDONLY));
        if (failed) exit(3);
    }
    return (now() - begin) / (double)calls;
}

int main(int n, char **words) {
    if (n < 5) return 2;
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    by[0].read = read, by[0].pread = pread, by[0].fread = fread;
    by[0].open = open, by[0].close = close, by[0].stat = stat;
    by[1].read = dlsym(libc, "read"), by[1].pread = dlsym(libc, "pread");
    by[1].fread = dlsym(libc, "fread"), by[1].open = dlsym(libc, "open");
    by[1].close = dlsym(libc, "close"), by[1].stat = dlsym(libc, "stat");
    seek = dlsym(libc, "lseek"), begin_again = dlsym(libc, "rewind");
    path = words[2];
    if (n > 5) watch = CLOCK_MONOTONIC;
    long pairs = atol(words[3]), calls = atol(words[4]);
    int fd = open(path, O_RDONLY);
    FILE *stream = fopen(path, "r");
    if (!stream) return 4;
    for (long i = 0; i < pairs; i++) {
        double cost[2];
        for (int k = 0; k < 2; k++) {
            int way = (int)(i + k) % 2;
            cost[way] = batch(way, words[1][0], calls, fd, stream);
        }
        printf("%.2f %.2f\n", cost[0], cost[1]);
    }
    return 0;
}
