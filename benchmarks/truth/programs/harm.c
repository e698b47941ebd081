/* Programs that a tracer must not change, by the name that is the first argument. What they print
 * and leave in the working folder, and how they end, is the same each time. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

extern char **environ;
static char buffer[1 << 16];

static void make(const char *name, size_t n) {
    int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    for (size_t i = 0; i < n; i += sizeof buffer) {
        for (size_t k = 0; k < sizeof buffer; k++) buffer[k] = (char)(i / 7 + k * 31 + n);
        if (write(fd, buffer, n - i < sizeof buffer ? n - i : sizeof buffer) < 0) abort();
    }
    close(fd);
}

static unsigned long digest(const char *name) {
    unsigned long sum = 5381;
    FILE *file = fopen(name, "r");
    if (!file) return 0;
    for (int c; (c = getc(file)) != EOF;) sum = sum * 33 + (unsigned char)c;
    fclose(file);
    return sum;
}

static void ended(const char *what, int status) {
    if (WIFEXITED(status)) printf("%s: exit %d\n", what, WEXITSTATUS(status));
    else printf("%s: signal %d\n", what, WTERMSIG(status));
}

/* ---- errors ---- */

static int failing(void) {
    enum { N = 20000, KINDS = 12 };
    make("a", 100);
    mkdir("d", 0755);
    int fd = open("a", O_RDONLY), to = open("b", O_CREAT | O_WRONLY, 0644), pipes[2];
    if (pipe(pipes)) return 1;
    struct stat is;
    for (int kind = 0; kind < KINDS; kind++) {
        int seen[200] = {0};
        for (int i = 0; i < N; i++) {
            long r = 0;
            errno = 0;
            switch (kind) {
            case 0: r = open("nothing", O_RDONLY); break;
            case 1: r = open("d", O_WRONLY); break;
            case 2: r = open("a/b", O_RDONLY); break;
            case 3: r = read(900, buffer, 1); break;
            case 4: r = write(fd, buffer, 1); break;
            case 5: r = lseek(pipes[0], 0, SEEK_CUR); break;
            case 6: r = stat("nothing/at/all", &is); break;
            case 7: r = open((char *)1, O_RDONLY); break;
            case 8: r = read(fd, (void *)1, 10); break;
            case 9: r = mkdir("d", 0755); break;
            case 10: r = rename("nothing", "b"); break;
            default: r = pread(to, buffer, 1, -5); break;
            }
            if (r >= 0) seen[199]++;
            else seen[errno < 198 ? errno : 198]++;
        }
        for (int e = 0; e < 200; e++)
            if (seen[e]) printf("kind %d: errno %d %d times\n", kind, e, seen[e]);
    }
    return 0;
}

static int keeps_errno(void) { /* calls that succeed leave errno as it was */
    int wrong = 0;
    make("a", 5000);
    struct stat is;
    for (int i = 0; i < 5000; i++) {
        errno = 77;
        int fd = open("a", O_RDONLY);
        wrong += errno != 77;
        if (read(fd, buffer, 10) != 10) wrong++;
        lseek(fd, 3, SEEK_SET);
        fstat(fd, &is);
        stat("a", &is);
        wrong += errno != 77;
        close(fd);
        wrong += errno != 77;
    }
    printf("wrong %d\n", wrong);
    return 0;
}

static int stream_errors(void) {
    make("a", 1000);
    FILE *none = fopen("nothing", "r");
    printf("%d %d\n", none == NULL, errno);
    FILE *file = fopen("a", "r");
    errno = 0;
    printf("fputs %d errno %d error %d\n", fputs("x", file), errno, !!ferror(file));
    clearerr(file);
    printf("fread %zu eof %d\n", fread(buffer, 7, 1000, file), !!feof(file));
    printf("getc %d\n", getc(file));
    errno = 0;
    printf("fseek %d errno %d\n", fseek(file, -5, SEEK_SET), errno);
    printf("fclose %d\n", fclose(file));
    file = fmemopen(buffer, 100, "w+");
    printf("%d %d\n", fprintf(file, "hello %d", 5), fileno(file));
    fclose(file);
    FILE *full = fopen("/dev/full", "w");
    errno = 0;
    fprintf(full, "text");
    int r = fflush(full);
    printf("full %d %d\n", r, errno);
    return 0;
}

/* ---- descriptors ---- */

static int numbers(void) {
    make("a", 10);
    for (int i = 0; i < 40; i++) printf("%d ", open("a", O_RDONLY));
    close(7);
    close(20);
    printf("| %d %d %d\n", dup(5), fcntl(5, F_DUPFD, 15), fcntl(5, F_DUPFD_CLOEXEC, 100));
    printf("%d %d\n", dup2(5, 300), dup3(5, 301, O_CLOEXEC));
    int p[2], s[2];
    if (pipe(p) || socketpair(AF_UNIX, SOCK_STREAM, 0, s)) return 1;
    printf("%d %d %d %d %d\n", p[0], p[1], s[0], s[1], socket(AF_INET, SOCK_DGRAM, 0));
    FILE *file = fopen("a", "r");
    DIR *folder = opendir(".");
    printf("%d %d %d\n", fileno(file), dirfd(folder), memfd_create("m", 0));
    return 0;
}

static int close_all(void) {
    make("a", 100000);
    for (int fd = 3; fd < 4096; fd++) close(fd);
    int fd = open("b", O_CREAT | O_WRONLY, 0644);
    printf("%d\n", fd);
    for (int i = 0; i < 5000; i++)
        if (write(fd, "line of text\n", 13) != 13) return 1;
    for (int other = 3; other < 64; other++)
        if (other != fd) close(other);
    for (int i = 0; i < 5000; i++)
        if (write(fd, "more of text\n", 13) != 13) return 1;
    return 0;
}

static int close_ranges(void) {
    make("a", 1000);
    for (int i = 0; i < 30; i++) open("a", O_RDONLY);
    printf("%ld\n", (long)close_range(5, 20, 0));
    printf("%d %d\n", open("a", O_RDONLY), (int)close_range(3, ~0u, CLOSE_RANGE_CLOEXEC));
    printf("%d\n", fcntl(25, F_GETFD));
    closefrom(3);
    printf("%d\n", open("a", O_RDONLY));
    return 0;
}

static int copy_over(void) {
    make("a", 1000);
    int fd = open("b", O_CREAT | O_RDWR, 0644), wrong = 0;
    for (int i = 3; i < 1000; i++) wrong += dup2(fd, i) != i;
    for (int i = 3; i < 1000; i++) wrong += write(i, "x", 1) != 1;
    printf("%d %ld\n", wrong, (long)lseek(fd, 0, SEEK_CUR));
    return 0;
}

static int passed(void) {
    make("a", 1000);
    int pair[2], got;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 1;
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 1;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    int fd = open("a", O_RDONLY);
    *(struct cmsghdr *)control = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA((struct cmsghdr *)control), &fd, sizeof fd);
    if (sendmsg(pair[0], &message, 0) != 1 || recvmsg(pair[1], &message, 0) != 1) return 1;
    memcpy(&got, CMSG_DATA((struct cmsghdr *)control), sizeof got);
    printf("%d %zd %ld\n", got, read(got, buffer, 100), (long)lseek(fd, 0, SEEK_CUR));
    return 0;
}

static int others(void) {
    int memory = memfd_create("m", 0), tmp = open(".", O_TMPFILE | O_RDWR, 0600), p[2];
    if (pipe(p)) return 1;
    printf("%zd %zd %zd\n", write(memory, "abc", 3), write(tmp, "abcd", 4), write(p[1], "ab", 2));
    printf("%zd\n", read(p[0], buffer, 100));
    FILE *stream = popen("echo from a child", "r");
    printf("%s", fgets(buffer, 100, stream));
    printf("%d\n", pclose(stream));
    printf("%d\n", system("exit 3"));
    FILE *file = tmpfile();
    fputs("text", file);
    rewind(file);
    printf("%s\n", fgets(buffer, 100, file));
    char name[] = "made-XXXXXX";
    printf("%d\n", mkstemp(name) > 2);
    unlink(name);
    return 0;
}

/* ---- processes ---- */

static int forks(void) {
    make("a", 1000);
    int fd = open("a", O_RDONLY), status;
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (!child) {
            if (read(fd, buffer, 7) != 7) _exit(99);
            _exit(i);
        }
        waitpid(child, &status, 0);
        if (WEXITSTATUS(status) != i) ended("child", status);
    }
    printf("%ld\n", (long)lseek(fd, 0, SEEK_CUR));
    return 0;
}

static void *reads_for_ever(void *stop) {
    char here[64];
    while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) {
        int fd = open("a", O_RDONLY);
        if (read(fd, here, 50) != 50) abort();
        close(fd);
    }
    return NULL;
}

static int forks_among_threads(void) {
    make("a", 1000);
    int stop = 0;
    pthread_t threads[6];
    int wrong = 0, status;
    for (int i = 0; i < 6; i++) pthread_create(&threads[i], NULL, reads_for_ever, &stop);
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        if (!child) {
            int fd = open("a", O_RDONLY);
            FILE *file = fopen("a", "r");
            _exit(read(fd, buffer, 50) != 50 || !file);
        }
        waitpid(child, &status, 0);
        wrong += status != 0;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    printf("%d\n", wrong);
    return 0;
}

static int vforks(void) {
    make("a", 1000);
    int fd = open("a", O_RDONLY), status;
    for (int i = 0; i < 100; i++) {
        int out = open("out", O_CREAT | O_WRONLY | O_APPEND, 0644);
        pid_t child = vfork();
        if (!child) {
            dup2(out, 1);
            for (int other = 3; other < 50; other++) close(other);
            char *words[] = {"echo", "from the child", NULL};
            execv("/bin/echo", words);
            _exit(98);
        }
        waitpid(child, &status, 0);
        if (status) ended("child", status);
        close(out);
        if (read(fd, buffer, 5) != 5) printf("lost its file\n");
    }
    pid_t child = vfork();
    if (!child) _exit(7);
    waitpid(child, &status, 0);
    ended("vfork", status);
    printf("%ld\n", (long)lseek(fd, 0, SEEK_CUR));
    return 0;
}

static int in_clone(void *argument) {
    (void)argument;
    close(0);
    int fd = open("a", O_RDONLY);
    _exit(fd == 0 && read(fd, buffer, 10) == 10 ? 5 : 6);
}

static int clones(void) {
    make("a", 1000);
    char *stack = malloc(1 << 16);
    int status, fd = open("a", O_RDONLY);
    for (int i = 0; i < 20; i++) {
        pid_t child = clone(in_clone, stack + (1 << 16), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
        waitpid(child, &status, 0);
        if (i == 0) ended("clone", status);
        if (read(fd, buffer, 5) != 5) printf("lost its file\n");
    }
    printf("%ld\n", (long)syscall(SYS_lseek, fd, 0L, SEEK_CUR));
    return 0;
}

static int spawns(void) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "out", O_CREAT | O_WRONLY | O_APPEND, 0644);
    for (int i = 0; i < 20; i++) {
        char *words[] = {"sh", "-c", "echo spawned; exit 4", NULL};
        pid_t child;
        int status;
        if (posix_spawn(&child, "/bin/sh", &actions, NULL, words, environ)) return 1;
        waitpid(child, &status, 0);
        if (i == 0) ended("spawned", status);
    }
    pid_t child;
    char *words[] = {"nothing", NULL};
    printf("%d\n", posix_spawnp(&child, "no-such-program", NULL, NULL, words, environ));
    return 0;
}

static int execs(void) {
    char *words[] = {"sh", "-c", "exec sh -c 'exec cat a'", NULL};
    make("a", 10);
    truncate("a", 0);
    int fd = open("a", O_WRONLY);
    if (write(fd, "text of a\n", 10) != 10) return 1;
    errno = 0;
    printf("%d %d\n", execv("/no/such/program", words), errno);
    fflush(stdout);
    execvp("sh", words);
    return 9;
}

static int daemons(void) {
    make("a", 1000);
    int out = open("log", O_CREAT | O_WRONLY, 0644), p[2];
    if (pipe(p)) return 1;
    pid_t child = fork();
    if (!child) {
        if (daemon(1, 0)) _exit(1);
        for (int fd = 3; fd < 200; fd++)
            if (fd != out && fd != p[1]) close(fd);
        for (int i = 0; i < 100; i++) dprintf(out, "line %d\n", i);
        int fd = open("a", O_RDONLY);
        dprintf(out, "%d %zd\n", fd, read(fd, buffer, 100));
        _exit(write(p[1], "x", 1) != 1);
    }
    int status;
    waitpid(child, &status, 0);
    ended("parent of the daemon", status);
    close(p[1]);
    printf("%zd\n", read(p[0], buffer, 1));
    return 0;
}

/* ---- signals ---- */

static volatile int handled;
static void on_signal(int number) {
    char here[32];
    (void)number;
    int error = errno, fd = open("b", O_RDWR);
    if (read(fd, here, 20) != 20) abort();
    close(fd);
    if (stat("b", &(struct stat){0})) abort();
    handled++;
    errno = error;
}

static int signals(void) {
    make("a", 4096);
    make("b", 100);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 150}, {0, 150}};
    setitimer(ITIMER_REAL, &often, NULL);
    int fd = open("a", O_RDONLY), wrong = 0;
    for (int i = 0; i < 300000; i++) {
        wrong += pread(fd, buffer, 100, i % 4000) <= 0;
        if (i % 100 == 0) {
            int other = open("a", O_RDONLY);
            wrong += other != fd + 1;
            close(other);
        }
    }
    often = (struct itimerval){{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    printf("wrong %d, handled %d\n", wrong, handled > 50);
    return 0;
}

static int small_stack(void) {
    make("b", 100);
    static char stack[8192];
    stack_t where = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&where, NULL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 1000; i++) raise(SIGUSR1);
    printf("%d\n", handled);
    return 0;
}

static int masks(void) {
    make("a", 100);
    sigset_t set, now;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = open("a", O_RDONLY);
    if (read(fd, buffer, 10) != 10) return 1;
    if (!fork()) _exit(0);
    wait(NULL);
    sigprocmask(SIG_SETMASK, NULL, &now);
    for (int i = 1; i < 32; i++) printf("%d", sigismember(&now, i));
    for (int i = 1; i < 32; i++) {
        struct sigaction action;
        if (!sigaction(i, NULL, &action)) printf(" %d", action.sa_handler == SIG_DFL);
    }
    puts("");
    return 0;
}

static int by_signal(int number) {
    make("a", 100);
    printf("about to end\n");
    fflush(stdout);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    if (number == SIGPIPE) {
        int p[2];
        if (pipe(p)) return 1;
        close(p[0]);
        if (write(p[1], "x", 1)) return 2;
    }
    if (number == SIGABRT) abort();
    raise(number);
    return 3;
}

static void *reads_pipe(void *end) {
    char here[16];
    int fd = open("a", O_RDONLY);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
    for (;;)
        if (read(fd, here, 1) <= 0 && read(*(int *)end, here, 1) <= 0) return NULL;
}

static int cancelled(void) {
    make("a", 100);
    int p[2], count = 0;
    if (pipe(p)) return 1;
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, reads_pipe, &p[0]);
        usleep(300);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        count += result == PTHREAD_CANCELED;
    }
    printf("%d\n", count);
    return 0;
}

/* ---- limits and places ---- */

static int full_disk(void) { /* run on a file system of 2 MB */
    int fd = open("big", O_CREAT | O_WRONLY, 0644), error = 0;
    long total = 0;
    for (;;) {
        ssize_t n = write(fd, buffer, 1000);
        if (n < 0) {
            error = errno;
            break;
        }
        total += n;
    }
    printf("%d %d\n", error, total > 100000);
    printf("%d %d\n", open("another", O_CREAT | O_WRONLY, 0644) > 0, close(fd));
    unlink("big");
    unlink("another");
    return 0;
}

static int many_reads(void) {
    make("a", 4096);
    int fd = open("a", O_RDONLY), wrong = 0;
    for (int i = 0; i < 200000; i++) wrong += pread(fd, buffer, 64, i % 4000) != 64;
    for (int i = 0; i < 300; i++) {
        char name[32];
        snprintf(name, sizeof name, "f%03d", i);
        errno = 0;
        wrong += open(name, O_RDONLY) != -1 || errno != ENOENT;
    }
    printf("%d\n", wrong);
    return 0;
}

static int no_folder(void) {
    mkdir("d", 0755);
    if (chdir("d") || rmdir("../d")) return 1;
    errno = 0;
    printf("%d %d ", open("x", O_CREAT | O_WRONLY, 0644), errno);
    printf("%d %d ", getcwd(buffer, sizeof buffer) == NULL, errno);
    printf("%d %d\n", stat("y", &(struct stat){0}), errno);
    if (!fork()) _exit(open(".", O_RDONLY) < 0);
    int status;
    wait(&status);
    ended("child", status);
    return 0;
}

static int few_descriptors(void) {
    make("a", 100);
    struct rlimit few = {64, 64};
    setrlimit(RLIMIT_NOFILE, &few);
    int n = 0, last = -1, fd;
    while ((fd = open("a", O_RDONLY)) >= 0) n++, last = fd;
    printf("%d %d %d\n", n, last, errno);
    FILE *file = fopen("a", "r");
    printf("%d %d\n", file == NULL, errno);
    if (!fork()) {
        if (read(last, buffer, 10) != 10) _exit(1);
        close(last);
        _exit(open("a", O_RDONLY) != last);
    }
    int status;
    wait(&status);
    ended("child", status);
    return 0;
}

static void on_limit(int number) { handled += number == SIGXFSZ; }

static int small_files(void) {
    struct rlimit small = {8192, 8192};
    signal(SIGXFSZ, on_limit);
    setrlimit(RLIMIT_FSIZE, &small);
    int fd = open("a", O_CREAT | O_WRONLY, 0644), n = 0;
    for (int i = 0; i < 20; i++) n += write(fd, buffer, 1000) == 1000;
    printf("%d %d %d\n", n, handled, errno);
    for (int i = 0; i < 20000; i++)
        if (pread(fd, buffer, 1, 0) != -1) return 1;
    if (!fork()) _exit(open("a", O_RDONLY) < 0);
    int status;
    wait(&status);
    ended("child", status);
    return 0;
}

static int little_memory(void) {
    struct rlimit little = {400 << 20, 400 << 20};
    setrlimit(RLIMIT_AS, &little);
    void *big = malloc(150 << 20);
    printf("%d\n", big != NULL);
    if (!fork()) _exit(malloc(1 << 30) != NULL);
    int status;
    wait(&status);
    ended("child", status);
    return 0;
}

static int other_root(void) {
    mkdir("root", 0755);
    make("root/a", 100);
    if (chroot("root") || chdir("/")) return 1;
    int fd = open("/a", O_RDONLY);
    printf("%d %zd\n", fd, read(fd, buffer, 50));
    if (!fork()) _exit(read(open("a", O_RDONLY), buffer, 70) != 70);
    int status;
    wait(&status);
    ended("child", status);
    return 0;
}

static int other_user(void) {
    make("a", 100);
    chmod("a", 0600);
    mkdir("open", 0777);
    chmod("open", 0777);
    if (setgid(65534) || setuid(65534)) return 1;
    printf("%d %d\n", open("a", O_RDONLY), errno);
    if (!fork()) _exit(open("open/mine", O_CREAT | O_WRONLY, 0644) < 0);
    int status;
    wait(&status);
    ended("child", status);
    return 0;
}

static int strict(void) {
    make("a", 100000);
    int fd = open("a", O_RDONLY);
    printf("sealed\n");
    fflush(stdout);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    int wrong = 0;
    for (int i = 0; i < 3000; i++) wrong += read(fd, buffer, 10) != 10;
    if (wrong) write(1, "wrong\n", 6);
    syscall(SYS_exit, 5);
    return 6;
}

static int filtered(void) {
    struct sock_filter allow[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof allow / sizeof *allow, allow};
    make("a", 1000);
    printf("sealed\n");
    fflush(stdout);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) return 1;
    for (int i = 0; i < 5000; i++) {
        int fd = open("a", O_RDONLY);
        if (read(fd, buffer, 10) != 10 || fd != 3) write(1, "wrong\n", 6);
        close(fd);
    }
    _exit(5);
}

/* ---- threads ---- */

static void *works(void *sum) {
    char here[128];
    for (int i = 0; i < 50; i++) {
        int fd = open("a", O_RDONLY);
        ssize_t n = read(fd, here, 100);
        n += pread(fd, here, 100, 50);
        close(fd);
        __atomic_fetch_add((long *)sum, n, __ATOMIC_RELAXED);
    }
    return NULL;
}

static int many_threads(void) {
    make("a", 1000);
    long sum = 0;
    pthread_t threads[512];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 32768);
    for (int i = 0; i < 512; i++)
        if (pthread_create(&threads[i], &small, works, &sum)) printf("no thread %d\n", i);
    for (int i = 0; i < 512; i++) pthread_join(threads[i], NULL);
    printf("%ld\n", sum);
    return 0;
}

static void *reads_once(void *sum) {
    char here[64];
    int fd = open("a", O_RDONLY);
    __atomic_fetch_add((long *)sum, read(fd, here, 10), __ATOMIC_RELAXED);
    close(fd);
    return NULL;
}

static int short_threads(void) {
    make("a", 1000);
    long sum = 0;
    for (int i = 0; i < 6000; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, reads_once, &sum);
        pthread_join(thread, NULL);
    }
    printf("%ld\n", sum);
    return 0;
}

/* ---- contents ---- */

static int mapped(void) {
    make("a", 100000);
    int fd = open("a", O_RDWR);
    char *map = mmap(NULL, 100000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    memset(map + 5000, 'x', 5000);
    printf("%d\n", msync(map, 100000, MS_SYNC));
    printf("%d %d\n", munmap(map, 100000), ftruncate(fd, 50000));
    printf("%d\n", posix_fallocate(fd, 0, 60000));
    printf("%d %d\n", fsync(fd), fdatasync(fd));
    errno = 0;
    printf("%d %d\n", mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED, errno);
    printf("%lu\n", digest("a"));
    return 0;
}

static int streams(void) {
    make("a", 5000);
    FILE *file = fopen("a", "r+");
    fpos_t position;
    printf("%d ", getc(file));
    ungetc('z', file);
    printf("%ld %d %ld ", ftell(file), getc(file), ftell(file));
    printf("%zu %ld ", fread(buffer, 10, 7, file), ftell(file));
    fgetpos(file, &position);
    fseek(file, -100, SEEK_END);
    printf("%ld %zu ", ftell(file), fread(buffer, 1, 500, file));
    fsetpos(file, &position);
    printf("%ld ", ftell(file));
    fseek(file, 10, SEEK_CUR);
    fputs("written", file);
    printf("%ld ", ftell(file));
    fflush(file);
    printf("%ld\n", (long)lseek(fileno(file), 0, SEEK_CUR));
    fclose(file);
    int fd = open("a", O_RDONLY);
    file = fdopen(fd, "r");
    lseek(fd, 1000, SEEK_SET);
    printf("%ld %d %ld\n", ftell(file), getc(file), ftell(file));
    lseek(fd, 0, SEEK_SET);
    printf("%zu %ld\n", fread(buffer, 1, 6000, file), ftell(file));
    file = fopen("log", "a+");
    fprintf(file, "%d lines %s\n", 5, "of text");
    printf("%ld\n", ftell(file));
    rewind(file);
    int number = 0;
    printf("%d %d %ld\n", fscanf(file, "%d", &number), number, ftell(file));
    fclose(file);
    char *line = NULL;
    size_t room = 0;
    file = fopen("log", "r");
    printf("%zd %s", getline(&line, &room, file), line);
    fclose(file);
    fflush(stdout);
    if (!freopen("printed", "w", stdout)) return 1;
    printf("into a file\n");
    puts("and a line");
    putchar('c');
    return 0;
}

/* Reads all of "wide" by each call, and writes it by each: what it is long is what was moved. */
static int wide_streams(void) {
    wchar_t line[100];
    int number, n = 0;
    if (!setlocale(LC_ALL, "C.UTF-8")) return 0;
    FILE *file = fopen("wide", "w");
    fwide(file, 1);
    for (int i = 0; i < 300; i++) {
        printf("%d ", fwprintf(file, L"%d \u00e9\u4e2d\n", i));
        printf("%d ", fputws(L"\U0001f600 text\n", file) >= 0);
        printf("%d ", fputwc(L'\u00df', file) == L'\u00df');
        putwc(L'\n', file);
    }
    printf("%ld %d\n", ftell(file), fclose(file));
    file = fopen("wide", "r");
    for (wint_t c; (c = fgetwc(file)) != WEOF;) n += (int)c;
    printf("%d %ld %d\n", n, ftell(file), feof(file));
    rewind(file);
    for (n = 0; fgetws(line, 100, file); n++) {}
    printf("%d %ld %d\n", n, ftell(file), feof(file));
    rewind(file);
    for (n = 0; fwscanf(file, L"%d %ls %ls %ls %ls", &number, line, line, line, line) == 5; n++) {}
    printf("%d %d %ld %d\n", n, number, ftell(file), feof(file));
    fclose(file);
    fflush(stdout);
    int fd = open("formatted", O_CREAT | O_WRONLY, 0644);
    printf("%d\n", dprintf(fd, "%d of %s\n", 7, "descriptors"));
    close(fd);
    fflush(stdout);
    if (!freopen("printed", "w", stdout)) return 1;
    wprintf(L"into a file: %ls\n", L"\u00e9");
    putwchar(L'\u4e2d');
    fclose(stdout);
    if (!freopen("wide", "r", stdin)) return 1;
    return !(getwchar() == L'0' && wscanf(L"%ls", line) == 1);
}

static int counts(const char *path, const struct stat *is, int kind, struct FTW *at) {
    (void)path, (void)is, (void)at;
    handled += kind == FTW_F;
    return 0;
}

static int folders(void) {
    char name[64];
    mkdir("d", 0755);
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "d/file-%03d", i);
        make(name, 1);
    }
    DIR *folder = opendir("d");
    int n = 0;
    while (readdir(folder)) n++;
    rewinddir(folder);
    readdir(folder);
    readdir(folder);
    long at = telldir(folder);
    struct dirent *third = readdir(folder);
    char kept[256];
    strcpy(kept, third->d_name);
    seekdir(folder, at);
    printf("%d %d\n", n, !strcmp(kept, readdir(folder)->d_name));
    printf("%d\n", closedir(folder));
    struct dirent **names;
    printf("%d\n", scandir("d", &names, NULL, alphasort));
    nftw("d", counts, 10, 0);
    printf("%d\n", handled);
    int fd = open("d", O_RDONLY | O_DIRECTORY);
    printf("%d\n", openat(fd, "file-001", O_RDONLY));
    return 0;
}

static int copies(void) {
    make("a", 300000);
    int from = open("a", O_RDONLY), to = open("b", O_CREAT | O_RDWR, 0644), p[2];
    off_t at = 100, target = 7;
    if (pipe(p)) return 1;
    printf("%zd %ld\n", sendfile(to, from, &at, 1000), (long)at);
    printf("%zd %ld\n", copy_file_range(from, &at, to, &target, 5000, 0), (long)target);
    printf("%zd\n", splice(from, NULL, p[1], NULL, 4000, 0));
    printf("%zd\n", splice(p[0], NULL, to, NULL, 4000, 0));
    struct iovec parts[2] = {{buffer, 100}, {buffer + 200, 50}};
    printf("%zd %zd %zd\n", readv(from, parts, 2), preadv(from, parts, 2, 9), preadv2(from, parts, 2, -1, 0));
    printf("%zd %zd\n", writev(to, parts, 2), pwritev2(to, parts, 2, 20000, 0));
    printf("%zd\n", pread(from, buffer, 1000, 299500));
    errno = 0;
    printf("%zd %d\n", preadv2(from, parts, 2, 0, 0x40000000), errno);
    printf("%lu\n", digest("b"));
    return 0;
}

static int long_names(void) {
    char part[256];
    memset(part, 'n', 200);
    part[200] = 0;
    for (int i = 0; i < 15; i++)
        if (mkdir(part, 0755) || chdir(part)) return 1;
    printf("%d\n", open("file", O_CREAT | O_WRONLY, 0644) > 0);
    memset(buffer, 'p', 5000);
    buffer[5000] = 0;
    printf("%d %d\n", open(buffer, O_RDONLY), errno);
    printf("%d %d\n", stat("./.././//./nothing", &(struct stat){0}), errno);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(void);
} programs[] = {
    {"failing calls", failing}, {"errno kept", keeps_errno}, {"stream errors", stream_errors},
    {"numbers", numbers}, {"close all", close_all}, {"close_range", close_ranges},
    {"dup2 over all", copy_over}, {"passed descriptor", passed}, {"pipes, memfd, popen", others},
    {"fork", forks}, {"fork among threads", forks_among_threads}, {"vfork", vforks}, {"clone", clones},
    {"posix_spawn", spawns}, {"exec", execs}, {"daemon", daemons}, {"random signals", signals},
    {"small signal stack", small_stack}, {"signal masks", masks}, {"cancelled threads", cancelled},
    {"full disk", full_disk}, {"many reads", many_reads}, {"removed folder", no_folder},
    {"RLIMIT_NOFILE", few_descriptors}, {"RLIMIT_FSIZE", small_files}, {"RLIMIT_AS", little_memory},
    {"chroot", other_root}, {"setuid", other_user}, {"seccomp strict", strict},
    {"seccomp filter", filtered}, {"512 threads", many_threads}, {"short threads", short_threads},
    {"mapped file", mapped}, {"streams", streams}, {"wide streams", wide_streams}, {"folders", folders}, {"copies", copies},
    {"long names", long_names},
};

int main(int n, char **words) {
    if (n < 2) return 100;
    if (n > 2) return by_signal(atoi(words[2]));
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (!strcmp(words[1], programs[i].name)) return programs[i].run();
    return 100;
}
