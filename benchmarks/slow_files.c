/* A slow file system for programs that load this library by LD_PRELOAD: what is asked for files below some directories
   takes longer, and is counted for each process. See slow_files.py.

   SLOW_FILES_BELOW  directories, separated by colons; both these names and what links lead to count
   SLOW_FILES_US     how long each operation takes longer, in microseconds
   SLOW_FILES_COUNTS a file of SLOTS slots, zeroed, into which each process counts
   Not seen is what the dynamic linker asks for itself: libraries that libraries need, and those of the program. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 4096, KINDS = 4 };
enum kind { OPEN, STAT, LIST, LIBRARY };

struct slot {
    _Atomic int pid;
    char name[16];
    char rank[8];
    _Atomic int counts[KINDS];
};

static struct slot *slots, *mine;
static const char *below;
static struct timespec delay;

__attribute__((constructor)) static void begin(void) {
    const char *counts = getenv("SLOW_FILES_COUNTS"), *microseconds = getenv("SLOW_FILES_US");
    long us = microseconds ? atol(microseconds) : 0;
    delay.tv_sec = us / 1000000;
    delay.tv_nsec = us % 1000000 * 1000;
    int file = counts ? open(counts, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, SLOTS * sizeof(struct slot), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED)
        return;
    slots = mapped;
    below = getenv("SLOW_FILES_BELOW");
    below = below ? strdup(below) : NULL; /* programs change their environment */
}

static struct slot *slot(void) {
    int pid = getpid();
    if (mine && mine->pid == pid)
        return mine;
    mine = NULL;
    for (int number = 0; number < SLOTS && !mine; number++) {
        int none = 0;
        if (slots[number].pid == pid || atomic_compare_exchange_strong(&slots[number].pid, &none, pid))
            mine = &slots[number];
    }
    return mine;
}

static int is_below(const char *path) {
    if (!below || !path || path[0] != '/')
        return 0;
    for (const char *one = below; *one;) {
        size_t length = strcspn(one, ":");
        if (length && !strncmp(path, one, length) && (path[length] == '/' || !path[length]))
            return 1;
        one += length + (one[length] == ':');
    }
    return 0;
}

static void ask(enum kind kind, const char *path) {
    if (!slots || !is_below(path))
        return;
    struct slot *here = slot();
    if (here) {
        const char *rank = getenv("OMPI_COMM_WORLD_RANK");
        rank = rank ? rank : getenv("PMI_RANK");
        prctl(PR_GET_NAME, here->name);
        snprintf(here->rank, sizeof here->rank, "%s", rank ? rank : "");
        here->counts[kind]++;
    }
    if (delay.tv_sec || delay.tv_nsec)
        nanosleep(&delay, NULL);
}

#define NEXT(type, name, ...)                                                                                          \
    static type (*next)(__VA_ARGS__);                                                                                  \
    if (!next)                                                                                                         \
        next = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define OPENS(symbol)                                                                                                  \
    int symbol(const char *path, int flags, ...) {                                                                     \
        NEXT(int, #symbol, const char *, int, ...);                                                                    \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                                        \
        va_end(more);                                                                                                  \
        ask(OPEN, path);                                                                                               \
        return next(path, flags, mode);                                                                                \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(symbol)                                                                                               \
    int symbol(int directory, const char *path, int flags, ...) {                                                      \
        NEXT(int, #symbol, int, const char *, int, ...);                                                               \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                                        \
        va_end(more);                                                                                                  \
        ask(OPEN, path);                                                                                               \
        return next(directory, path, flags, mode);                                                                     \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

#define READS(symbol, kind, type, second)                                                                              \
    type symbol(const char *path, second argument) {                                                                   \
        NEXT(type, #symbol, const char *, second);                                                                     \
        ask(kind, path);                                                                                               \
        return next(path, argument);                                                                                   \
    }
READS(fopen, OPEN, FILE *, const char *)
READS(fopen64, OPEN, FILE *, const char *)
READS(stat, STAT, int, struct stat *)
READS(stat64, STAT, int, struct stat64 *)
READS(lstat, STAT, int, struct stat *)
READS(lstat64, STAT, int, struct stat64 *)
READS(access, STAT, int, int)
READS(dlopen, LIBRARY, void *, int)

#define READS_AT(symbol, type)                                                                                         \
    int symbol(int directory, const char *path, type argument, int flags) {                                            \
        NEXT(int, #symbol, int, const char *, type, int);                                                              \
        ask(STAT, path);                                                                                               \
        return next(directory, path, argument, flags);                                                                 \
    }
READS_AT(fstatat, struct stat *)
READS_AT(fstatat64, struct stat64 *)
READS_AT(faccessat, int)

DIR *opendir(const char *path) {
    NEXT(DIR *, "opendir", const char *);
    ask(LIST, path);
    return next(path);
}

ssize_t readlink(const char *path, char *target, size_t size) {
    NEXT(ssize_t, "readlink", const char *, char *, size_t);
    ask(STAT, path);
    return next(path, target, size);
}
