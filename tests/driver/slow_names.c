/* Preloaded, makes the directory of users hang for all ids from GUA_TEST_SLOW_FROM_UID on, as an LDAP server that
 * is not there does; smaller ones are answered from /etc/passwd at once, as nsswitch.conf's "files" would. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

typedef int lookup(uid_t, struct passwd *, char *, size_t, struct passwd **);

int getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t size, struct passwd **found) {
    const char *first_slow = getenv("GUA_TEST_SLOW_FROM_UID");
    if (first_slow && uid >= strtoul(first_slow, NULL, 10))
        for (;;)
            pause();
    return ((lookup *)dlsym(RTLD_NEXT, "getpwuid_r"))(uid, entry, buffer, size, found);
}
