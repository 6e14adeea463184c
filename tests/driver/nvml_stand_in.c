/* A stand-in for NVIDIA's libnvidia-ml.so.1, so that tests run the real pynvml on machines without a card.
 *
 * Written from scratch: no NVIDIA header is included, the structs below have the layouts pynvml declares. What the
 * driver answers comes from the scenario file named in GUA_STAND_IN_SCENARIO, or else from /etc/gua-stand-in-scenario,
 * read once per process:
 *
 *   driver_version = 580.65.06        cards = 2                # one `key = value` a line, the last of equal keys wins
 *   0.uuid = GPU-...                  0.mig.0.uuid = MIG-...   # keys of a card, of a MIG instance of a card
 *   0.compute = 4242:8192 4243:na     # rows of fields, "na" is NVML_VALUE_NOT_AVAILABLE; empty means no row
 *   0.samples = ~166667:80 ~0:90      # "~" before a time: so many us before the library was initialized
 *   clock = boottime                  # the clock of such times: monotonic, boottime, or else the epoch's
 *   0.buffers_answer_success = 1      # buffers of records answer "success" with none, as NVIDIA's own mock does
 *   error.<function> = 9              0.error.<function> = 3   # return this code; 0 exempts from the next
 *   0.error = 15                      # every query of that card and its instances, but not the one for its handle
 *   delay_ms.<function> = 500         0.delay_ms.<function> = 500
 *   call_log = /path                  # append each called function's name
 *   struct_535 = 1                    # *RunningProcesses_v3 write the 32-byte rows of the early 535 drivers
 *
 * A key that is absent means NVML_ERROR_NOT_SUPPORTED. A malformed scenario aborts: it is a mistake in a test. */
#define _GNU_SOURCE
#include "scenario.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

enum result {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    MEMORY = 20,
    ARGUMENT_VERSION_MISMATCH = 25,
};

enum {
    UTILIZATION_SAMPLES = 1,
    UNSIGNED_INT_VALUES = 1,
    SAMPLE_BUFFER_SIZE = 120,
    PROCESS_SAMPLE_BUFFER_SIZE = 100,
    GRAPHICS_UTILIZATION_METRIC = 1,
    GPM_MINIMUM_INTERVAL_MS = 100,
    MEMORY_VERSION_2 = 0x02000028,
};

static const uint64_t MIB = 1024 * 1024;

struct memory { uint64_t total, free, used; };
struct memory_v2 { unsigned version; uint64_t total, reserved, free, used; };
struct utilization { unsigned gpu, memory; };
struct sample { uint64_t timestamp; union { double real; unsigned number; uint64_t all; } value; };
struct process_sample { unsigned pid; uint64_t timestamp; unsigned sm, memory, encoder, decoder; };
struct process { unsigned pid; uint64_t memory; unsigned gpu_instance, compute_instance; uint64_t protected_memory; };
enum { ROW_SIZE = offsetof(struct process, protected_memory), ROW_SIZE_535 = sizeof(struct process) };
struct gpm_support { unsigned version, supported; };
struct gpm_sample { const struct device *device; struct timespec taken; }; /* no device until it is taken */
struct gpm_metric { unsigned id; int result; double value; const char *short_name, *long_name, *unit; };
struct gpm_metrics {
    unsigned version, count;
    struct gpm_sample *first, *second;
    struct gpm_metric metrics[]; /* pynvml's array grows from version to version: touch only the first `count` */
};

_Static_assert(ROW_SIZE == 24 && ROW_SIZE_535 == 32, "rows of the process lists");
_Static_assert(sizeof(struct memory_v2) == (MEMORY_VERSION_2 & 0xffff), "its size is part of its version");

/* ---- what every function does first ---- */

static bool is_loaded;
static int users; /* nvmlInit adds one, nvmlShutdown takes one away */

static void log_call(const char *function) {
    const char *path = find(&system_wide, "call_log");
    if (path == NULL)
        return;
    char line[128];
    int length = snprintf(line, sizeof line, "%s\n", function);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0 || write(file, line, (size_t)length) != length)
        give_up("cannot write the call log", path);
    close(file);
}

static const char *find_for(const struct device *device, const char *group, const char *function) {
    const char *own = find_in(device, group, function);
    return own ? own : find_in(&system_wide, group, function);
}

static void delay_call(const char *milliseconds_text) {
    const char *end;
    uint64_t milliseconds = parse_number(milliseconds_text, &end);
    struct timespec rest = {(time_t)(milliseconds / 1000), (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR)
        continue;
}

/* The device is NULL if the caller asked for one that does not exist. */
static enum result enter(const struct device *device, const char *function) {
    const struct device *asked = device ? device : &system_wide;
    const char *delay = find_for(asked, "delay_ms.", function), *error = find_for(asked, "error.", function);
    log_call(function);
    if (delay)
        delay_call(delay);
    if (error == NULL && strcmp(function, "nvmlDeviceGetHandleByIndex_v2") != 0) {
        error = find(asked, "error");
        if (error == NULL) /* a lost card takes its instances with it */
            error = find(asked->card, "error");
    }
    const char *end;
    enum result result = error ? (enum result)parse_number(error, &end) : SUCCESS;
    if (result == SUCCESS && users == 0 && strncmp(function, "nvmlInit", strlen("nvmlInit")) != 0)
        return UNINITIALIZED;
    return result == SUCCESS && device == NULL ? INVALID_ARGUMENT : result;
}

#define ENTER(device)                                    \
    do {                                                 \
        enum result entered = enter((device), __func__); \
        if (entered != SUCCESS)                          \
            return entered;                              \
    } while (0)

static enum result answer_number(const struct device *device, const char *key, unsigned *answer) {
    uint64_t number;
    if (!read_number(device, key, &number))
        return NOT_SUPPORTED;
    *answer = (unsigned)number;
    return SUCCESS;
}

static enum result answer_text(const struct device *device, const char *key, char *answer, unsigned size) {
    const char *text = find(device, key);
    if (text == NULL)
        return NOT_SUPPORTED;
    if (strlen(text) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(answer, text);
    return SUCCESS;
}

/* ---- the library ---- */

static void read_clock(void) {
    const char *name = find(&system_wide, "clock");
    bool is_monotonic = name && strcmp(name, "monotonic") == 0, is_boottime = name && strcmp(name, "boottime") == 0;
    if (name && !is_monotonic && !is_boottime)
        give_up("not a clock", name);
    struct timespec now;
    clock_gettime(is_monotonic ? CLOCK_MONOTONIC : is_boottime ? CLOCK_BOOTTIME : CLOCK_REALTIME, &now);
    now_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static enum result initialize(const char *function) {
    if (!is_loaded && !(is_loaded = load_scenario()))
        return DRIVER_NOT_LOADED;
    read_clock();
    enum result entered = enter(&system_wide, function);
    users += entered == SUCCESS;
    return entered;
}

enum result nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return initialize(__func__);
}

enum result nvmlInit_v2(void) {
    return initialize(__func__);
}

enum result nvmlShutdown(void) {
    ENTER(&system_wide);
    users--;
    return SUCCESS;
}

/* pynvml has texts of its own for the usual codes and asks for the others only. */
const char *nvmlErrorString(enum result code) {
    return code == ARGUMENT_VERSION_MISMATCH ? "Argument version mismatch" : "Unknown Error";
}

enum result nvmlSystemGetDriverVersion(char *version, unsigned size) {
    ENTER(&system_wide);
    return answer_text(&system_wide, "driver_version", version, size);
}

enum result nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER(&system_wide);
    return answer_number(&system_wide, "cards", count);
}

enum result nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device) {
    uint64_t count = 0;
    read_number(&system_wide, "cards", &count);
    *device = index < count && index < MAXIMUM_CARDS ? &devices[index][0] : NULL;
    ENTER(*device);
    return SUCCESS;
}

/* ---- one value of a card ---- */

#define TEXT(function, key)                                                    \
    enum result function(struct device *device, char *answer, unsigned size) { \
        ENTER(device);                                                         \
        return answer_text(device, key, answer, size);                         \
    }
#define NUMBER(function, key)                                       \
    enum result function(struct device *device, unsigned *answer) { \
        ENTER(device);                                              \
        return answer_number(device, key, answer);                  \
    }

TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetName, "name")
NUMBER(nvmlDeviceGetPowerUsage, "power_milliwatts")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence_mode")
NUMBER(nvmlDeviceGetMinorNumber, "minor_number")
NUMBER(nvmlDeviceGetMaxMigDeviceCount, "mig.count")
NUMBER(nvmlDeviceGetGpuInstanceId, "gpu_instance_id")
NUMBER(nvmlDeviceGetComputeInstanceId, "compute_instance_id")

enum result nvmlDeviceGetIndex(struct device *device, unsigned *index) {
    ENTER(device);
    *index = device->index;
    return SUCCESS;
}

enum result nvmlDeviceGetTemperature(struct device *device, unsigned sensor, unsigned *celsius) {
    ENTER(device);
    return sensor == 0 ? answer_number(device, "temperature_celsius", celsius) : INVALID_ARGUMENT;
}

enum result nvmlDeviceGetTotalEnergyConsumption(struct device *device, uint64_t *millijoules) {
    ENTER(device);
    return read_number(device, "energy_millijoules", millijoules) ? SUCCESS : NOT_SUPPORTED;
}

enum result nvmlDeviceGetUtilizationRates(struct device *device, struct utilization *utilization) {
    ENTER(device);
    utilization->memory = 0;
    return answer_number(device, "utilization_percent", &utilization->gpu);
}

enum result nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory) {
    ENTER(device);
    uint64_t total, free;
    if (!read_number(device, "memory_total_mib", &total) || !read_number(device, "memory_free_mib", &free))
        return NOT_SUPPORTED;
    *memory = (struct memory){total * MIB, free * MIB, (total - free) * MIB}; /* the reserve counts as used */
    return SUCCESS;
}

enum result nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *memory) {
    ENTER(device);
    uint64_t total, free, reserved, includes_reserve = 0;
    if (memory->version != MEMORY_VERSION_2)
        return ARGUMENT_VERSION_MISMATCH;
    if (!read_number(device, "memory_total_mib", &total) || !read_number(device, "memory_free_mib", &free) ||
        !read_number(device, "memory_reserved_mib", &reserved))
        return NOT_SUPPORTED;
    read_number(device, "memory_v2_used_includes_reserve", &includes_reserve);
    uint64_t used = total - free - (includes_reserve ? 0 : reserved);
    *memory = (struct memory_v2){MEMORY_VERSION_2, total * MIB, reserved * MIB, free * MIB, used * MIB};
    return SUCCESS;
}

/* ---- lists ---- */

static bool answers_success(const struct device *device, unsigned *count) {
    uint64_t is_so = 0;
    read_number(device, "buffers_answer_success", &is_so);
    if (is_so)
        *count = 0;
    return is_so;
}

/* The call without a buffer gives the buffer's size, whether or not there is anything to put in it. */
enum result nvmlDeviceGetSamples(struct device *device, unsigned type, uint64_t last_seen, unsigned *value_type,
                                 unsigned *count, struct sample *samples) {
    ENTER(device);
    const char *list = find(device, "samples");
    if (list == NULL || type != UTILIZATION_SAMPLES)
        return NOT_SUPPORTED;
    *value_type = UNSIGNED_INT_VALUES;
    if (answers_success(device, count))
        return SUCCESS;
    if (samples == NULL) {
        *count = SAMPLE_BUFFER_SIZE;
        return SUCCESS;
    }
    unsigned left = count_rows(list, 0, last_seen + 1), written = 0;
    uint64_t row[MAXIMUM_FIELDS];
    while ((list = next_row(list, row)))
        if (row[0] > last_seen && left-- <= *count) /* of too many only the newest are still in the buffer */
            samples[written++] = (struct sample){row[0], {.all = (unsigned)row[1]}};
    *count = written;
    return written ? SUCCESS : NOT_FOUND;
}

enum result nvmlDeviceGetProcessUtilization(struct device *device, struct process_sample *samples, unsigned *count,
                                            uint64_t last_seen) {
    ENTER(device);
    const char *list = find(device, "process_utilization");
    if (list == NULL)
        return NOT_SUPPORTED;
    if (answers_success(device, count))
        return SUCCESS;
    unsigned newer = count_rows(list, 1, last_seen + 1), written = 0;
    if (samples == NULL || *count < newer) {
        *count = newer > PROCESS_SAMPLE_BUFFER_SIZE ? newer : PROCESS_SAMPLE_BUFFER_SIZE;
        return INSUFFICIENT_SIZE;
    }
    uint64_t row[MAXIMUM_FIELDS];
    while ((list = next_row(list, row)))
        if (row[1] > last_seen)
            samples[written++] = (struct process_sample){(unsigned)row[0], row[1], (unsigned)row[2], 0, 0, 0};
    *count = written;
    return written ? SUCCESS : NOT_FOUND;
}

/* The caller's buffer has *count rows of 24 bytes, whatever size of row is written into it. */
static enum result list_processes(const struct device *device, const char *key, size_t row_size, unsigned *count,
                                  unsigned char *buffer) {
    const char *list = find(device, key);
    if (list == NULL)
        return NOT_SUPPORTED;
    size_t capacity = (size_t)*count * ROW_SIZE;
    *count = count_rows(list, 0, 0);
    if (capacity < (size_t)*count * ROW_SIZE)
        return INSUFFICIENT_SIZE;
    if (*count > 0 && buffer == NULL)
        return INVALID_ARGUMENT;
    uint64_t row[MAXIMUM_FIELDS];
    for (size_t offset = 0; offset < capacity && (list = next_row(list, row)); offset += row_size) {
        struct process process;
        memset(&process, 0, sizeof process); /* the padding shows in a reader of shorter rows */
        process.pid = (unsigned)row[0];
        process.memory = row[1] == NOT_AVAILABLE ? NOT_AVAILABLE : row[1] * MIB;
        process.gpu_instance = (unsigned)row[2];
        process.compute_instance = (unsigned)row[3];
        memcpy(buffer + offset, &process, row_size < capacity - offset ? row_size : capacity - offset);
    }
    return SUCCESS;
}

#define PROCESS_LIST(function, key)                                                                   \
    enum result function##_v2(struct device *device, unsigned *count, void *rows) {                   \
        ENTER(device);                                                                                \
        return list_processes(device, key, ROW_SIZE, count, rows);                                    \
    }                                                                                                 \
    enum result function##_v3(struct device *device, unsigned *count, void *rows) {                   \
        uint64_t is_535 = 0;                                                                          \
        ENTER(device);                                                                                \
        read_number(&system_wide, "struct_535", &is_535);                                             \
        return list_processes(device, key, is_535 ? ROW_SIZE_535 : ROW_SIZE, count, rows);            \
    }

PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, "compute")
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, "graphics")
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, "mps")

/* ---- MIG and its utilization ---- */

enum result nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending) {
    ENTER(device);
    *current = 0;
    enum result answer = answer_number(device, "mig_mode", current);
    *pending = *current;
    return answer;
}

enum result nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned index, struct device **instance) {
    ENTER(device);
    if (device != device->card || index >= MAXIMUM_INSTANCES)
        return INVALID_ARGUMENT;
    *instance = device + 1 + index;
    return find(*instance, "uuid") ? SUCCESS : NOT_FOUND;
}

struct attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    unsigned long long memory_mb;
};

enum result nvmlDeviceGetAttributes_v2(struct device *device, struct attributes *attributes) {
    ENTER(device);
    memset(attributes, 0, sizeof *attributes);
    enum result answer = answer_number(device, "compute_slices", &attributes->compute_slices);
    attributes->gpu_slices = attributes->compute_slices;
    return answer;
}

enum result nvmlGpmQueryDeviceSupport(struct device *device, struct gpm_support *support) {
    ENTER(device);
    return support->version == 1 ? answer_number(device->card, "gpm_supported", &support->supported)
                                 : ARGUMENT_VERSION_MISMATCH;
}

enum result nvmlGpmSampleAlloc(struct gpm_sample **sample) {
    ENTER(&system_wide);
    *sample = calloc(1, sizeof **sample);
    return *sample ? SUCCESS : MEMORY;
}

enum result nvmlGpmSampleFree(struct gpm_sample *sample) {
    ENTER(&system_wide);
    enum result answer = sample ? SUCCESS : INVALID_ARGUMENT;
    free(sample);
    return answer;
}

static enum result take_gpm_sample(const struct device *device, struct gpm_sample *sample) {
    uint64_t is_supported = 0;
    read_number(device->card, "gpm_supported", &is_supported);
    if (!is_supported || find(device, "gpm_utilization_percent") == NULL)
        return NOT_SUPPORTED;
    if (sample == NULL)
        return INVALID_ARGUMENT;
    sample->device = device;
    clock_gettime(CLOCK_MONOTONIC, &sample->taken);
    return SUCCESS;
}

enum result nvmlGpmSampleGet(struct device *device, struct gpm_sample *sample) {
    ENTER(device);
    return take_gpm_sample(device, sample);
}

/* Takes the card's handle, not the instance's. */
enum result nvmlGpmMigSampleGet(struct device *device, unsigned gpu_instance_id, struct gpm_sample *sample) {
    ENTER(device);
    uint64_t id;
    for (int i = 1; device == device->card && i <= MAXIMUM_INSTANCES; i++)
        if (read_number(device + i, "gpu_instance_id", &id) && id == gpu_instance_id)
            return take_gpm_sample(device + i, sample);
    return INVALID_ARGUMENT;
}

static double milliseconds_between(const struct gpm_sample *first, const struct gpm_sample *second) {
    return (double)(second->taken.tv_sec - first->taken.tv_sec) * 1e3 +
           (double)(second->taken.tv_nsec - first->taken.tv_nsec) / 1e6;
}

/* nvml.h: two samples should be more than 100 ms apart, and a metric's value is valid only if its own result is 0.
 * Here a caller that did not wait finds an error there, beside the 0 % that it would take for idle. */
enum result nvmlGpmMetricsGet(struct gpm_metrics *request) {
    const struct gpm_sample *first = request->first, *second = request->second;
    ENTER(first && first->device ? first->device : &system_wide);
    if (request->version != 1)
        return ARGUMENT_VERSION_MISMATCH;
    if (first == NULL || second == NULL || first->device == NULL || first->device != second->device)
        return INVALID_ARGUMENT;
    for (struct gpm_metric *metric = request->metrics; metric < request->metrics + request->count; metric++) {
        bool is_known = metric->id == GRAPHICS_UTILIZATION_METRIC;
        bool is_apart = milliseconds_between(first, second) >= GPM_MINIMUM_INTERVAL_MS;
        metric->short_name = metric->long_name = metric->unit = NULL;
        metric->result = !is_known ? NOT_SUPPORTED : !is_apart ? INVALID_ARGUMENT : SUCCESS;
        metric->value = is_known && is_apart ? atof(find(first->device, "gpm_utilization_percent")) : 0;
    }
    return SUCCESS;
}
