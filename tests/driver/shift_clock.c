/* LD_PRELOAD shim that moves the wall clock of a process under test.
 *
 *   GUA_TEST_CLOCK_OFFSET_MS   the real time plus these milliseconds (may be negative)
 *   GUA_TEST_CLOCK_MS          exactly this epoch millisecond, standing still; wins over the offset
 *
 * CLOCK_MONOTONIC and CLOCK_BOOTTIME stay true, and so do the times the kernel writes itself, such as a file's mtime.
 * The environment is read at every call, so a process may move its own clock with os.environ. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t NANOSECONDS = 1000000000;

static struct timespec add_milliseconds(struct timespec time, int64_t milliseconds)
{
    int64_t nanoseconds = time.tv_nsec + (milliseconds % 1000) * 1000000;
    int64_t carry = nanoseconds < 0 ? -1 : nanoseconds / NANOSECONDS;
    return (struct timespec){
        .tv_sec = (time_t)(time.tv_sec + milliseconds / 1000 + carry),
        .tv_nsec = (long)(nanoseconds - carry * NANOSECONDS),
    };
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    /* The system call rather than libc's function: no dlsym, which may itself ask for the time. */
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return result;
    const char *frozen = getenv("GUA_TEST_CLOCK_MS"), *offset = getenv("GUA_TEST_CLOCK_OFFSET_MS");
    if (frozen)
        *time = add_milliseconds((struct timespec){0, 0}, strtoll(frozen, NULL, 10));
    else if (offset)
        *time = add_milliseconds(*time, strtoll(offset, NULL, 10));
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *time = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds)
        *seconds = now.tv_sec;
    return now.tv_sec;
}
