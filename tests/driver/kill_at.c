/* An LD_PRELOAD shim: the process gets a SIGKILL right before its Nth change to a file under a folder.
 *
 *   GUA_TEST_KILL_DIR   the folder, with no "/" at its end
 *   GUA_TEST_KILL_AT    N, from 1 on
 *
 * Trying every N until the process survives kills it at every moment that could leave something half-way.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int is_inside(const char *path) {
    const char *folder = getenv("GUA_TEST_KILL_DIR");
    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static void count_path(const char *path) {
    static int count;
    const char *at = getenv("GUA_TEST_KILL_AT");
    if (at && is_inside(path) && ++count == atoi(at)) {
        kill(getpid(), SIGKILL);
    }
}

static void count_file(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        count_path(path);
    }
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size) {
    count_file(fd);
    return NEXT(write)(fd, data, size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    count_file(fd);
    return NEXT(pwrite)(fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    count_file(fd);
    return NEXT(pwrite64)(fd, data, size, offset);
}
int fsync(int fd) {
    count_file(fd);
    return NEXT(fsync)(fd);
}
int fdatasync(int fd) {
    count_file(fd);
    return NEXT(fdatasync)(fd);
}
int ftruncate64(int fd, off64_t size) {
    count_file(fd);
    return NEXT(ftruncate64)(fd, size);
}
int unlink(const char *path) {
    count_path(path);
    return NEXT(unlink)(path);
}
int rename(const char *from, const char *to) {
    count_path(from);
    return NEXT(rename)(from, to);
}
