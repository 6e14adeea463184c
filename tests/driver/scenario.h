/* The scenario file of the stand-in driver (its format is described in nvml_stand_in.c): reading it, and finding the
 * value, number or rows of a key. */
#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAXIMUM_CARDS = 64,
    MAXIMUM_INSTANCES = 16, /* of a card; the hardware has at most 7 */
    MAXIMUM_FIELDS = 4,     /* of a row in a list */
};

static const uint64_t NOT_AVAILABLE = UINT64_MAX; /* "na" in a list */

struct device {
    char prefix[32];     /* of its keys: "0." or "0.mig.3.", and "" for the system */
    struct device *card; /* of a MIG instance; any other is its own */
    unsigned index;
};
struct entry { char *key, *value; struct entry *older; };

static struct entry *newest_entry;
static uint64_t now_us; /* when the library was initialized, by the driver's clock */
static struct device system_wide = {"", &system_wide, 0};
static struct device devices[MAXIMUM_CARDS][1 + MAXIMUM_INSTANCES]; /* each card, followed by its instances */

static void give_up(const char *problem, const char *text) {
    fprintf(stderr, "stand-in driver: %s: \"%s\"\n", problem, text);
    abort();
}

static char *trim(char *text) {
    text += strspn(text, " \t\n");
    for (char *end = text + strlen(text); end > text && isspace((unsigned char)end[-1]);)
        *--end = '\0';
    return text;
}

static void add_entry(char *line) {
    for (char *hash = line; (hash = strchr(hash, '#')); hash++)
        if (hash == line || isspace((unsigned char)hash[-1])) {
            *hash = '\0';
            break;
        }
    char *key = trim(line);
    if (*key == '\0')
        return;
    char *equals = strchr(key, '=');
    if (equals == NULL)
        give_up("not a `key = value` line", key);
    *equals = '\0';
    struct entry *entry = malloc(sizeof *entry);
    if (entry == NULL)
        give_up("out of memory", key);
    *entry = (struct entry){strdup(trim(key)), strdup(trim(equals + 1)), newest_entry};
    newest_entry = entry;
}

static bool load_scenario(void) {
    const char *path = getenv("GUA_STAND_IN_SCENARIO");
    FILE *file = fopen(path ? path : "/etc/gua-stand-in-scenario", "re");
    if (file == NULL)
        return false;
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, file) != -1)
        add_entry(line);
    free(line);
    fclose(file);
    for (unsigned i = 0; i < MAXIMUM_CARDS; i++)
        for (unsigned j = 0; j <= MAXIMUM_INSTANCES; j++) {
            struct device *device = &devices[i][j];
            device->card = &devices[i][0];
            device->index = j ? j - 1 : i;
            snprintf(device->prefix, sizeof device->prefix, j ? "%u.mig.%u." : "%u.", i, j - 1);
        }
    return true;
}

/* The value of <prefix of the device><group><name>, or NULL. */
static const char *find_in(const struct device *device, const char *group, const char *name) {
    size_t prefix = strlen(device->prefix), both = prefix + strlen(group);
    for (struct entry *entry = newest_entry; entry; entry = entry->older)
        if (strncmp(entry->key, device->prefix, prefix) == 0 &&
            strncmp(entry->key + prefix, group, both - prefix) == 0 && strcmp(entry->key + both, name) == 0)
            return entry->value;
    return NULL;
}

static const char *find(const struct device *device, const char *name) {
    return find_in(device, "", name);
}

static uint64_t parse_number(const char *text, const char **end) {
    if (!isdigit((unsigned char)*text))
        give_up("not a number", text);
    char *after;
    uint64_t number = strtoull(text, &after, 10);
    *end = after;
    return number;
}

/* Leaves the number alone if the key is absent. */
static bool read_number(const struct device *device, const char *key, uint64_t *number) {
    const char *end, *text = find(device, key);
    if (text == NULL)
        return false;
    *number = parse_number(text, &end);
    if (*end)
        give_up("more than a number", text);
    return true;
}

/* "~500" is the time 500 us ago. */
static uint64_t parse_time_ago(const char *text, const char **end) {
    uint64_t age_us = parse_number(text + 1, end);
    return age_us < now_us ? now_us - age_us : 1; /* a clock may have begun only just now */
}

/* Reads the first row of a list such as "4242:8192 4243:na ~500:80"; fields that are not given are not available.
 * Returns what follows it, or NULL if there was none. */
static const char *next_row(const char *list, uint64_t row[MAXIMUM_FIELDS]) {
    list += strspn(list, " \t");
    if (*list == '\0')
        return NULL;
    for (int i = 0; i < MAXIMUM_FIELDS; i++)
        row[i] = NOT_AVAILABLE;
    for (int i = 0; i < MAXIMUM_FIELDS; i++) {
        if (strncmp(list, "na", 2) == 0)
            list += 2;
        else if (*list == '~')
            row[i] = parse_time_ago(list, &list);
        else
            row[i] = parse_number(list, &list);
        if (*list != ':')
            break;
        list++;
    }
    if (*list && !isspace((unsigned char)*list))
        give_up("not a row of a list", list);
    return list;
}

static unsigned count_rows(const char *list, int field, uint64_t at_least) {
    unsigned count = 0;
    uint64_t row[MAXIMUM_FIELDS];
    while ((list = next_row(list, row)))
        count += row[field] >= at_least;
    return count;
}
