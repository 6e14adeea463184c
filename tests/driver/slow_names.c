/* Preloaded, makes the directory of users hang for all ids from GUA_TEST_SLOW_FROM_UID on, as an LDAP server that
 * is not there does; smaller ones are answered from /etc/passwd at once, as nsswitch.conf's "files" would. So for the
 * group of the name GUA_TEST_SLOW_GROUP, and for the user of the name GUA_TEST_SLOW_USER. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int lookup(uid_t, struct passwd *, char *, size_t, struct passwd **);
typedef int named_lookup(const char *, struct passwd *, char *, size_t, struct passwd **);
typedef int group_lookup(const char *, struct group *, char *, size_t, struct group **);

static void hang(void) {
    for (;;)
        pause();
}

static void hang_at(const char *name, const char *variable) {
    const char *slow = getenv(variable);
    if (slow && strcmp(slow, name) == 0)
        hang();
}

int getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t size, struct passwd **found) {
    const char *first_slow = getenv("GUA_TEST_SLOW_FROM_UID");
    if (first_slow && uid >= strtoul(first_slow, NULL, 10))
        hang();
    return ((lookup *)dlsym(RTLD_NEXT, "getpwuid_r"))(uid, entry, buffer, size, found);
}

int getpwnam_r(const char *name, struct passwd *entry, char *buffer, size_t size, struct passwd **found) {
    hang_at(name, "GUA_TEST_SLOW_USER");
    return ((named_lookup *)dlsym(RTLD_NEXT, "getpwnam_r"))(name, entry, buffer, size, found);
}

int getgrnam_r(const char *name, struct group *entry, char *buffer, size_t size, struct group **found) {
    hang_at(name, "GUA_TEST_SLOW_GROUP");
    return ((group_lookup *)dlsym(RTLD_NEXT, "getgrnam_r"))(name, entry, buffer, size, found);
}
