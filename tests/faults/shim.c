/* Numbers every call that changes a file under some folders, and makes one of them go wrong.
 *
 * Loaded with LD_PRELOAD, so that native writers (safetensors, SQLite) are seen as well as Python. What goes wrong is
 * chosen by `faults_arm` in a forked process; before that every call goes straight through. Not seen is what does not go
 * through the C library: safetensors renames its temporary file (`.tmpXXXXXX`) by a call to the kernel of its own. What
 * lies on disk before that is there at the end of its last write.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum how { PASS, KILL_BEFORE, KILL_HALF, FAIL_ONCE, FAIL_FROM, FULL_FROM, ASK };
enum verdict { GO, GO_BY_HALVES, HALF_THEN_DIE, HALF, FAIL };

static struct {
    int on, log, answers, how, error;
    long at, count;
    char roots[2][PATH_MAX];
    long long clock_shift_s;
    long clock_at;
} state = {.log = -1, .answers = -1};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread long latest; /* number of this thread's last operation */

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

/* Called in the process that is to be tried. `roots` are two folders, the second one may be empty. Every operation is
 * told to `log` before it is done; with `ASK` it waits for a byte from `answers` first. */
void faults_arm(const char *root, const char *other, int log, int answers, int how, long at, int error,
                long long clock_shift_s, long clock_at) {
    snprintf(state.roots[0], PATH_MAX, "%s", root);
    snprintf(state.roots[1], PATH_MAX, "%s", other);
    state.log = log, state.answers = answers, state.how = how, state.at = at, state.error = error, state.count = 0;
    state.clock_shift_s = clock_shift_s, state.clock_at = clock_at;
    state.on = 1;
}

long faults_count(void) { return state.count; }

void faults_disarm(void) { state.on = 0, state.clock_shift_s = 0; }

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

static int is_inside(const char *path) {
    for (int i = 0; i < 2; i++) {
        size_t length = strlen(state.roots[i]);
        if (length && !strncmp(path, state.roots[i], length) && (path[length] == '/' || !path[length])) return 1;
    }
    return 0;
}

static void path_of_fd(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
}

static void path_at(int folder, const char *name, char *path) {
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
        return;
    }
    char above[PATH_MAX];
    if (folder == AT_FDCWD) {
        if (syscall(SYS_getcwd, above, sizeof above) < 0) above[0] = 0;
    } else {
        path_of_fd(folder, above);
    }
    path[0] = 0;
    strncat(path, above, PATH_MAX - 2);
    strcat(path, "/");
    strncat(path, name, PATH_MAX - strlen(path) - 1);
}

static void tell(long number, const char *kind, const char *path, const char *other) {
    if (state.log < 0) return;
    char line[2 * PATH_MAX + 64], answer;
    int length = snprintf(line, sizeof line, "%ld\t%s\t%s\t%s", number, kind, path, other ? other : "");
    for (int i = 0; i < length; i++)
        if (line[i] == '\n') line[i] = '?';
    line[length++] = '\n';
    syscall(SYS_write, state.log, line, (size_t)length);
    if (state.how == ASK) syscall(SYS_read, state.answers, &answer, 1);
}

/* What becomes of a call that changes `path` (and `other`, if there is one). */
static enum verdict judge(const char *kind, const char *path, const char *other, int takes_space) {
    if (!is_inside(path) && !(other && is_inside(other))) return GO;
    pthread_mutex_lock(&lock);
    long number = latest = ++state.count;
    tell(number, kind, path, other);
    enum verdict verdict = GO;
    int here = number == state.at, past = number >= state.at;
    switch (state.how) {
        case KILL_BEFORE: if (here) die(); break;
        case KILL_HALF: if (here) verdict = HALF_THEN_DIE; break;
        case FAIL_ONCE: if (here) verdict = FAIL; break;
        case FAIL_FROM: if (past) verdict = FAIL; break;
        case FULL_FROM: if (past && takes_space) verdict = here ? HALF : FAIL; break;
        case ASK: verdict = GO_BY_HALVES; break;
        default: break;
    }
    pthread_mutex_unlock(&lock);
    return verdict;
}

/* One call: whether it is made. */
#define AS_JUDGED(verdict, call)                                                    \
    do {                                                                            \
        if ((verdict) == FAIL || ((verdict) == HALF)) return errno = state.error, -1; \
        if ((verdict) == HALF_THEN_DIE) die();                                      \
        return call;                                                                \
    } while (0)

#define ON_PATH(kind, space, folder, name, call)                    \
    if (!state.on) return call;                                     \
    char path[PATH_MAX];                                            \
    path_at(folder, name, path);                                    \
    enum verdict verdict = judge(kind, path, NULL, space);          \
    AS_JUDGED(verdict, call)

#define ON_PATHS(kind, folder, name, other_folder, other_name, call)      \
    if (!state.on) return call;                                     \
    char path[PATH_MAX], other[PATH_MAX];                           \
    path_at(folder, name, path);                                    \
    path_at(other_folder, other_name, other);                       \
    enum verdict verdict = judge(kind, path, other, 1);             \
    AS_JUDGED(verdict, call)

#define ON_FD(kind, space, fd, call)                                \
    if (!state.on) return call;                                     \
    char path[PATH_MAX];                                            \
    path_of_fd(fd, path);                                           \
    enum verdict verdict = judge(kind, path, NULL, space);          \
    AS_JUDGED(verdict, call)

/* A write of `size` bytes: half of them may reach the file. */
#define WRITES(kind, fd, size, call, half, rest)                    \
    if (!state.on) return call;                                     \
    char path[PATH_MAX];                                            \
    path_of_fd(fd, path);                                           \
    enum verdict verdict = judge(kind, path, NULL, 1);              \
    if (verdict != GO && verdict != FAIL && (size) > 1) {           \
        ssize_t given = half;                                       \
        if (verdict == HALF_THEN_DIE) die();                        \
        if (verdict == HALF || given < 0) return given;             \
        tell(latest, "half", path, NULL);                      \
        ssize_t more = rest;                                        \
        tell(latest, "written", path, NULL);                   \
        return more < 0 ? given : given + more;                     \
    }                                                               \
    AS_JUDGED(verdict, call)

#define IS_WRITING(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define OPENS(folder, name, flags, call)                                                         \
    if (!state.on || !IS_WRITING(flags) || ((flags) & O_TMPFILE) == O_TMPFILE) return call;      \
    char path[PATH_MAX];                                                                         \
    path_at(folder, name, path);                                                                 \
    const char *kind = (flags) & O_CREAT ? "open-create" : (flags) & O_TRUNC ? "open-truncate" : "open-write"; \
    enum verdict verdict = judge(kind, path, NULL, !!((flags) & O_CREAT));                       \
    AS_JUDGED(verdict, call)

static mode_t mode_of(int flags, va_list list) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
}

#define OPEN(symbol)                                                         \
    int symbol(const char *name, int flags, ...) {                           \
        va_list list;                                                        \
        va_start(list, flags);                                               \
        mode_t mode = mode_of(flags, list);                                  \
        va_end(list);                                                        \
        OPENS(AT_FDCWD, name, flags, REAL(symbol)(name, flags, mode));       \
    }
#define OPENAT(symbol)                                                       \
    int symbol(int folder, const char *name, int flags, ...) {               \
        va_list list;                                                        \
        va_start(list, flags);                                               \
        mode_t mode = mode_of(flags, list);                                  \
        va_end(list);                                                        \
        OPENS(folder, name, flags, REAL(symbol)(folder, name, flags, mode)); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
int __open_2(const char *name, int flags) { OPENS(AT_FDCWD, name, flags, open(name, flags)); }
int __open64_2(const char *name, int flags) { OPENS(AT_FDCWD, name, flags, open64(name, flags)); }
int creat(const char *name, mode_t mode) { return open(name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *name, mode_t mode) { return open64(name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

#define FOPEN(symbol)                                                                            \
    FILE *symbol(const char *name, const char *mode) {                                           \
        if (!state.on || !strpbrk(mode, "wa+")) return REAL(symbol)(name, mode);                 \
        char path[PATH_MAX];                                                                     \
        path_at(AT_FDCWD, name, path);                                                           \
        enum verdict verdict = judge("fopen", path, NULL, 1);                                    \
        if (verdict == FAIL || verdict == HALF) return errno = state.error, NULL;                \
        if (verdict == HALF_THEN_DIE) die();                                                     \
        return REAL(symbol)(name, mode);                                                         \
    }
FOPEN(fopen)
FOPEN(fopen64)

ssize_t write(int fd, const void *from, size_t size) {
    WRITES("write", fd, size, REAL(write)(fd, from, size), REAL(write)(fd, from, size / 2),
           REAL(write)(fd, (const char *)from + size / 2, size - size / 2));
}
ssize_t pwrite(int fd, const void *from, size_t size, off_t at) {
    return pwrite64(fd, from, size, at);
}
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) {
    WRITES("pwrite", fd, size, REAL(pwrite64)(fd, from, size, at), REAL(pwrite64)(fd, from, size / 2, at),
           REAL(pwrite64)(fd, (const char *)from + size / 2, size - size / 2, at + (off64_t)(size / 2)));
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    WRITES("writev", fd, parts[0].iov_len, REAL(writev)(fd, parts, count),
           REAL(write)(fd, parts[0].iov_base, parts[0].iov_len / 2), 0);
}
ssize_t sendfile(int to, int from, off_t *at, size_t size) { return sendfile64(to, from, at, size); }
ssize_t sendfile64(int to, int from, off64_t *at, size_t size) {
    WRITES("sendfile", to, size, REAL(sendfile64)(to, from, at, size), REAL(sendfile64)(to, from, at, size / 2), 0);
}
ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned flags) {
    WRITES("copy_file_range", to, size, REAL(copy_file_range)(from, from_at, to, to_at, size, flags),
           REAL(copy_file_range)(from, from_at, to, to_at, size / 2, flags), 0);
}

int fsync(int fd) { ON_FD("fsync", 0, fd, REAL(fsync)(fd)); }
int fdatasync(int fd) { ON_FD("fsync", 0, fd, REAL(fdatasync)(fd)); }
int ftruncate(int fd, off_t size) { ON_FD("truncate", 1, fd, REAL(ftruncate)(fd, size)); }
int ftruncate64(int fd, off64_t size) { ON_FD("truncate", 1, fd, REAL(ftruncate64)(fd, size)); }
int truncate(const char *name, off_t size) { ON_PATH("truncate", 1, AT_FDCWD, name, REAL(truncate)(name, size)); }
int truncate64(const char *name, off64_t size) {
    ON_PATH("truncate", 1, AT_FDCWD, name, REAL(truncate64)(name, size));
}
int fallocate(int fd, int mode, off_t at, off_t size) {
    ON_FD("fallocate", 1, fd, REAL(fallocate)(fd, mode, at, size));
}
int fallocate64(int fd, int mode, off64_t at, off64_t size) {
    ON_FD("fallocate", 1, fd, REAL(fallocate64)(fd, mode, at, size));
}

int mkdir(const char *name, mode_t mode) { ON_PATH("mkdir", 1, AT_FDCWD, name, REAL(mkdir)(name, mode)); }
int mkdirat(int folder, const char *name, mode_t mode) {
    ON_PATH("mkdir", 1, folder, name, REAL(mkdirat)(folder, name, mode));
}
int rmdir(const char *name) { ON_PATH("rmdir", 0, AT_FDCWD, name, REAL(rmdir)(name)); }
int unlink(const char *name) { ON_PATH("unlink", 0, AT_FDCWD, name, REAL(unlink)(name)); }
int remove(const char *name) { ON_PATH("unlink", 0, AT_FDCWD, name, REAL(remove)(name)); }
int unlinkat(int folder, const char *name, int flags) {
    ON_PATH(flags & AT_REMOVEDIR ? "rmdir" : "unlink", 0, folder, name, REAL(unlinkat)(folder, name, flags));
}
int rename(const char *name, const char *to) {
    ON_PATHS("rename", AT_FDCWD, name, AT_FDCWD, to, REAL(rename)(name, to));
}
int renameat(int folder, const char *name, int other_folder, const char *to) {
    ON_PATHS("rename", folder, name, other_folder, to, REAL(renameat)(folder, name, other_folder, to));
}
int renameat2(int folder, const char *name, int other_folder, const char *to, unsigned flags) {
    ON_PATHS("rename", folder, name, other_folder, to, REAL(renameat2)(folder, name, other_folder, to, flags));
}
int link(const char *name, const char *to) { ON_PATHS("link", AT_FDCWD, name, AT_FDCWD, to, REAL(link)(name, to)); }
int linkat(int folder, const char *name, int other_folder, const char *to, int flags) {
    ON_PATHS("link", folder, name, other_folder, to, REAL(linkat)(folder, name, other_folder, to, flags));
}
int symlink(const char *target, const char *name) {
    ON_PATH("symlink", 1, AT_FDCWD, name, REAL(symlink)(target, name));
}
int symlinkat(const char *target, int folder, const char *name) {
    ON_PATH("symlink", 1, folder, name, REAL(symlinkat)(target, folder, name));
}
int chmod(const char *name, mode_t mode) { ON_PATH("chmod", 0, AT_FDCWD, name, REAL(chmod)(name, mode)); }
int fchmod(int fd, mode_t mode) { ON_FD("chmod", 0, fd, REAL(fchmod)(fd, mode)); }
int fchmodat(int folder, const char *name, mode_t mode, int flags) {
    ON_PATH("chmod", 0, folder, name, REAL(fchmodat)(folder, name, mode, flags));
}
int utimensat(int folder, const char *name, const struct timespec times[2], int flags) {
    ON_PATH("utime", 0, folder, name, REAL(utimensat)(folder, name, times, flags));
}

/* The clock on the wall, from operation `clock_at` on; the one that runs evenly is left alone. */
static long long shift_s(void) { return state.on && state.count >= state.clock_at ? state.clock_shift_s : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int given = REAL(clock_gettime)(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += shift_s();
    return given;
}
int gettimeofday(struct timeval *now, void *zone) {
    int given = REAL(gettimeofday)(now, zone);
    now->tv_sec += shift_s();
    return given;
}
time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}
