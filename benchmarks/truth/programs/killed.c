/* Four threads that read until they are killed, and count what they have done where that survives. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 4 };
static struct {
    volatile int64_t thread, done;
    int64_t rest[6];
} *counts; /* of a shared file */

static void *reads(void *which) {
    long k = (long)which;
    char buffer[64], name[2] = {(char)('a' + k), 0};
    int fd = open(name, O_CREAT | O_RDWR, 0644);
    if (write(fd, buffer, 50) != 50) abort();
    counts[k].thread = syscall(SYS_gettid);
    for (;;) {
        if (pread(fd, buffer, 1 + counts[k].done % 50, 0) < 1) abort();
        counts[k].done++;
    }
}

int main(int n, char **words) {
    int fd = open("counts", O_CREAT | O_RDWR, 0644);
    if (ftruncate(fd, 4096)) return 1;
    counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pthread_t threads[THREADS];
    for (long k = 0; k < THREADS; k++) pthread_create(&threads[k], NULL, reads, (void *)k);
    if (n > 1 && !strcmp(words[1], "memory")) /* until the kernel kills it for that */
        for (;;) memset(malloc(1 << 20), 1, 1 << 20);
    pthread_join(threads[0], NULL);
    return 0;
}
