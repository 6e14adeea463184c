/* An LD_PRELOAD shim: what happens at the Nth change to a file or a folder under a folder.
 *
 *   GUA_TEST_KILL_DIR    the folder, with no "/" at its end
 *   GUA_TEST_KILL_AT     N, from 1 on: the process gets a SIGKILL right before that change
 *   GUA_TEST_FAULT_AT    N: that change fails with the error number GUA_TEST_FAULT; 0 is a write of half its bytes.
 *                        With GUA_TEST_FAULT_ON all later ones fail too, as on a full disk
 *   GUA_TEST_RECORD      a file to which each change is added that was made, in order, for a replay
 *   GUA_TEST_HURRY       so many times shorter is each sleep: SQLite counts those rather than the time
 *
 * Trying every N until the process survives stops it at every moment that could leave something half-way. SQLite's own
 * calls are seen too. The environment is read at every call, so that a forked child may set its own.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

static int is_inside(const char *path) {
    const char *folder = getenv("GUA_TEST_KILL_DIR");
    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

/* The absolute path, which need not exist, of what is named relative to an open folder. */
static const char *path_at(int folder, const char *name, char *path) {
    char link[64];
    ssize_t length = 0;
    if (name[0] == '/')
        return name;
    snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
    length = readlink(link, path, PATH_MAX - 1);
    snprintf(path + (length > 0 ? length : 0), PATH_MAX - (length > 0 ? length : 0), "/%s", name);
    return path;
}

static const char *path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
    return path;
}

enum change { WRITES, ADDS, REMOVES }; /* what a full disk has no room for, and what makes room on it */

/* To be called before each change: 0 to go on, an error number to fail with, or -1 for half a write. */
static int meet(const char *path, enum change change) {
    static int count;
    long kill_at = number("GUA_TEST_KILL_AT"), fault_at = number("GUA_TEST_FAULT_AT");
    if ((!kill_at && !fault_at) || !is_inside(path))
        return 0;
    int now = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    if (now == kill_at)
        kill(getpid(), SIGKILL);
    if (now != fault_at && !(fault_at && now > fault_at && getenv("GUA_TEST_FAULT_ON")))
        return 0;
    int fault = (int)number("GUA_TEST_FAULT");
    if (fault == ENOSPC && change == REMOVES)
        return 0;
    return fault ? fault : change == WRITES ? -1 : 0;
}

/* To be called after each change: "what inode mtime offset length path other", and the bytes that were written. */
static void record(const char *what, int fd, const char *path, const char *other, off_t offset, const void *data,
                   size_t length) {
    const char *log = getenv("GUA_TEST_RECORD");
    if (!log || !is_inside(path))
        return;
    int error = errno;
    struct stat found = {0};
    if (fd < 0 || fstat(fd, &found) != 0)
        (void)!lstat(*other ? other : path, &found);
    char line[2 * PATH_MAX + 128];
    int size = snprintf(line, sizeof line, "%s\t%lu\t%lld\t%lld\t%zu\t%s\t%s\n", what, (unsigned long)found.st_ino,
                        (long long)found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec, (long long)offset,
                        data ? length : 0, path, other);
    struct iovec parts[] = {{line, (size_t)size}, {(void *)data, data ? length : 0}};
    long file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    (void)!syscall(SYS_writev, file, parts, 2);
    syscall(SYS_close, file);
    errno = error;
}

#define FAIL_IF(fault)                                                                                                 \
    if (fault) {                                                                                                       \
        errno = fault;                                                                                                 \
        return -1;                                                                                                     \
    }

static ssize_t write_at(int fd, const void *data, size_t size, off_t offset, int is_positioned) {
    char path[PATH_MAX];
    int fault = meet(path_of(fd, path), WRITES);
    if (fault > 0)
        FAIL_IF(fault);
    if (fault < 0 && size > 1)
        size /= 2;
    if (!is_positioned && getenv("GUA_TEST_RECORD"))
        offset = (off_t)syscall(SYS_lseek, fd, 0, SEEK_CUR);
    ssize_t done = is_positioned ? NEXT(pwrite64)(fd, data, size, offset) : NEXT(write)(fd, data, size);
    if (done > 0)
        record("write", fd, path, "", offset, data, (size_t)done);
    return done;
}
ssize_t write(int fd, const void *data, size_t size) { return write_at(fd, data, size, 0, 0); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return write_at(fd, data, size, offset, 1); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) { return write_at(fd, data, size, offset, 1); }

/* A change to an open file, or to a path: counted, made, recorded. */
#define CHANGE_FILE(what, fd, offset, call)                                                                            \
    char path[PATH_MAX];                                                                                               \
    int fault = meet(path_of(fd, path), ADDS);                                                                            \
    FAIL_IF(fault)                                                                                                     \
    int result = call;                                                                                                 \
    if (result == 0)                                                                                                   \
        record(what, fd, path, "", offset, NULL, 0);                                                                   \
    return result;
#define CHANGE_PATH(change, what, folder, name, other_folder, other_name, call)                                             \
    char buffer[PATH_MAX], other_buffer[PATH_MAX];                                                                     \
    const char *path = path_at(folder, name, buffer);                                                                  \
    const char *other = *other_name ? path_at(other_folder, other_name, other_buffer) : "";                            \
    int fault = meet(path, change);                                                                                    \
    FAIL_IF(fault)                                                                                                     \
    int result = call;                                                                                                 \
    if (result == 0)                                                                                                   \
        record(what, -1, path, other, 0, NULL, 0);                                                                     \
    return result;

int fsync(int fd) { CHANGE_FILE("sync", fd, 0, NEXT(fsync)(fd)) }
int fdatasync(int fd) { CHANGE_FILE("sync", fd, 0, NEXT(fdatasync)(fd)) }
int ftruncate(int fd, off_t size) { CHANGE_FILE("truncate", fd, size, NEXT(ftruncate)(fd, size)) }
int ftruncate64(int fd, off64_t size) { CHANGE_FILE("truncate", fd, size, NEXT(ftruncate64)(fd, size)) }
int unlink(const char *name) { CHANGE_PATH(REMOVES, "unlink", AT_FDCWD, name, 0, "", NEXT(unlink)(name)) }
int unlinkat(int folder, const char *name, int flags) {
    CHANGE_PATH(REMOVES, "unlink", folder, name, 0, "", NEXT(unlinkat)(folder, name, flags))
}
int rmdir(const char *name) { CHANGE_PATH(REMOVES, "unlink", AT_FDCWD, name, 0, "", NEXT(rmdir)(name)) }
int mkdir(const char *name, mode_t mode) { CHANGE_PATH(ADDS, "mkdir", AT_FDCWD, name, 0, "", NEXT(mkdir)(name, mode)) }
int rename(const char *from, const char *to) {
    CHANGE_PATH(ADDS, "rename", AT_FDCWD, from, AT_FDCWD, to, NEXT(rename)(from, to))
}
int renameat(int folder, const char *from, int other_folder, const char *to) {
    CHANGE_PATH(ADDS, "rename", folder, from, other_folder, to, NEXT(renameat)(folder, from, other_folder, to))
}
int link(const char *from, const char *to) { CHANGE_PATH(ADDS, "link", AT_FDCWD, from, AT_FDCWD, to, NEXT(link)(from, to)) }
int linkat(int folder, const char *from, int other_folder, const char *to, int flags) {
    CHANGE_PATH(ADDS, "link", folder, from, other_folder, to, NEXT(linkat)(folder, from, other_folder, to, flags))
}
int utimensat(int folder, const char *name, const struct timespec times[2], int flags) {
    CHANGE_PATH(REMOVES, "times", folder, name, 0, "", NEXT(utimensat)(folder, name, times, flags))
}

/* Opening a file changes something if it is made, or emptied. */
static int open_at(int folder, const char *name, int flags, mode_t mode) {
    char buffer[PATH_MAX];
    const char *path = path_at(folder, name, buffer);
    int is_made = (flags & O_CREAT) && is_inside(path) && syscall(SYS_faccessat, AT_FDCWD, path, F_OK) != 0;
    int is_emptied = (flags & O_TRUNC) && !is_made && is_inside(path);
    if (is_made || is_emptied)
        FAIL_IF(meet(path, ADDS))
    int fd = (int)syscall(SYS_openat, folder, name, flags, mode);
    if (fd >= 0 && (is_made || is_emptied))
        record(is_made ? "create" : "truncate", fd, path, "", 0, NULL, 0);
    return fd;
}
#define MODE_OF(flags)                                                                                                 \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                                           \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode = va_arg(more, mode_t);                                                                                   \
        va_end(more);                                                                                                  \
    }
int open(const char *name, int flags, ...) { MODE_OF(flags) return open_at(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE_OF(flags) return open_at(AT_FDCWD, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE_OF(flags) return open_at(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE_OF(flags) return open_at(folder, name, flags, mode); }

static struct timespec hurried(struct timespec time) {
    long times = number("GUA_TEST_HURRY");
    long long nanoseconds = (time.tv_sec * 1000000000LL + time.tv_nsec) / (times > 0 ? times : 1);
    return (struct timespec){.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
}
int nanosleep(const struct timespec *wanted, struct timespec *left) {
    struct timespec time = hurried(*wanted);
    return (int)syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, left) ? -1 : 0;
}
int usleep(useconds_t microseconds) {
    struct timespec time = {.tv_sec = microseconds / 1000000, .tv_nsec = microseconds % 1000000 * 1000};
    return nanosleep(&time, NULL);
}
