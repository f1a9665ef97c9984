/* Replays the stored calls of the kernels and compares what they leave with what torch gave: `replay CASES`. It is
   linked with the kernels and needs no Python, so it also runs under emulators and sanitizers. Built with -DLOADS it
   takes the kernels from a shared library, as Python does: `replay CASES LIBRARY`. library.py in src/labeltide/kernels
   describes the file of cases and does the same from Python. */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "LTCASES1"
#define LINE 64 /* bytes in a cache line, on which the memory of a case starts */
#define NAME 32 /* bytes */

/* Every kernel takes a pointer to its own task. Here tasks are only bytes, so all are declared alike. */
typedef struct Work Work;
typedef int (*Kernel)(const void *task, Work *work);
typedef int (*Run)(Kernel kernel, const void *task, int64_t items, int64_t threads);

static void quit(const char *sentence, const char *about) {
    fprintf(stderr, sentence, about);
    fputc('\n', stderr);
    exit(2);
}

#ifdef LOADS
#ifdef _WIN32
#include <windows.h>
#define OPEN(path) ((void *)LoadLibraryA(path))
#define SYMBOL(library, name) ((void *)GetProcAddress((HMODULE)(library), name))
#else
#include <dlfcn.h>
#define OPEN(path) dlopen(path, RTLD_NOW | RTLD_LOCAL)
#define SYMBOL(library, name) dlsym(library, name)
#endif
static void *library;

static void *find(const char *name) {
    void *found = SYMBOL(library, name);
    if (!found) quit("The library does not hold %s.", name);
    return found;
}
#else
int labeltide_run(Kernel kernel, const void *task, int64_t items, int64_t threads);

#define KERNELS(each)                                                                                                  \
    each(labeltide_sum) each(labeltide_gru_forward) each(labeltide_gru_backward) each(labeltide_network_forward)       \
    each(labeltide_network_backward) each(labeltide_network_gradients) each(labeltide_objective) each(labeltide_adam)  \
    each(labeltide_chain)
#define DECLARE(name) int name(const void *task, Work *work);
#define ENTRY(name) {#name, (void *)name},
KERNELS(DECLARE)
static const struct {
    const char *name;
    void *function;
} known[] = {KERNELS(ENTRY){"labeltide_run", (void *)labeltide_run}};

static void *find(const char *name) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) return known[i].function;
    quit("The file calls %s, which this program does not know.", name);
    return NULL;
}
#endif

typedef struct {
    int passed;
    double difference; /* the largest, relative to the largest value of its tensor */
} Verdict;

/* The numbers in the file are little-endian, as is every machine that the kernels are built for. Every part starts at a
   multiple of eight bytes. */
static const char *take(const char **at, int64_t bytes) {
    const char *start = *at;
    *at += (bytes + 7) / 8 * 8;
    return start;
}

static int64_t number(const char **at) {
    int64_t value;
    memcpy(&value, take(at, sizeof value), sizeof value);
    return value;
}

static double real(const char **at) {
    double value;
    memcpy(&value, take(at, sizeof value), sizeof value);
    return value;
}

/* A name that fills its place does not end with a zero, so all are copied. */
static void read_name(const char **at, char name[NAME + 1]) {
    memcpy(name, take(at, NAME), NAME);
    name[NAME] = 0;
}

/* Zeros that start on a cache line. No more than its last line is added, so that a sanitizer sees what lies beyond. */
static void *new_memory(int64_t bytes) {
    const size_t whole = (size_t)(bytes > 0 ? (bytes + LINE - 1) / LINE * LINE : LINE);
#ifdef _WIN32
    void *memory = _aligned_malloc(whole, LINE);
#else
    void *memory = aligned_alloc(LINE, whole);
#endif
    if (!memory) quit("There is not enough memory for a %s.", "case");
    return memset(memory, 0, whole);
}

static void release(void *memory) {
#ifdef _WIN32
    _aligned_free(memory);
#else
    free(memory);
#endif
}

/* One call: the task is copied, because its pointers differ from memory to memory. Returns 0, or 1 without memory. */
static int replay_call(const char **at, char *memory, int64_t threads) {
    char name[NAME + 1];
    read_name(at, name);
    const int64_t items = number(at), size = number(at);
    char *task = new_memory(size);
    memcpy(task, take(at, size), (size_t)size);
    for (int64_t left = number(at); left > 0; left--) {
        const int64_t field = number(at);
        const char *pointer = memory + number(at);
        memcpy(task + field, &pointer, sizeof pointer);
    }
    const int result = ((Run)find("labeltide_run"))((Kernel)find(name), task, items, threads);
    release(task);
    return result;
}

static double value_at(const char *values, int64_t kind, int64_t i) {
    float single;
    double wide;
    switch (kind) {
    case 0: return memcpy(&single, values + i * 4, 4), single;
    case 1: return memcpy(&wide, values + i * 8, 8), wide;
    default: return (uint8_t)values[i];
    }
}

/* The largest difference of a part of the memory from what is expected there, relative to the largest value but to no
   less than 1. A NaN makes it infinite. */
static double compare(const char *found, const char *expected, int64_t kind, int64_t count) {
    double scale = 1.0, worst = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double wanted = value_at(expected, kind, i), difference = fabs(value_at(found, kind, i) - wanted);
        if (fabs(wanted) > scale) scale = fabs(wanted);
        if (isnan(difference)) worst = INFINITY;
        if (difference > worst) worst = difference;
    }
    return isfinite(worst / scale) ? worst / scale : INFINITY;
}

/* Read a case, after its names, and do its calls on fresh memory. Returns where the next one starts. */
static const char *replay(const char *at, int64_t threads, Verdict *verdict) {
    static const int64_t bytes[] = {4, 8, 1}; /* of a float, a double and a byte */
    char *memory = new_memory(number(&at));
    for (int64_t left = number(&at); left > 0; left--) {
        char *place = memory + number(&at);
        const int64_t size = number(&at);
        memcpy(place, take(&at, size), (size_t)size);
    }
    for (int64_t left = number(&at); left > 0; left--)
        if (replay_call(&at, memory, threads) != 0) *verdict = (Verdict){0, INFINITY};
    for (int64_t left = number(&at); left > 0; left--) {
        const char *found = memory + number(&at);
        const int64_t count = number(&at), kind = number(&at);
        const double tolerance = real(&at);
        const double difference = compare(found, take(&at, count * bytes[kind]), kind, count);
        if (difference > verdict->difference) verdict->difference = difference;
        if (!(difference <= tolerance)) verdict->passed = 0;
    }
    release(memory);
    return at;
}

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) quit("%s cannot be opened.", path);
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    rewind(file);
    char *content = size > 0 ? malloc((size_t)size) : NULL;
    const int whole = content && fread(content, 1, (size_t)size, file) == (size_t)size;
    fclose(file);
    if (!whole || (size_t)size < strlen(MAGIC) + 8 || memcmp(content, MAGIC, strlen(MAGIC)) != 0)
        quit("%s does not hold kernel cases.", path);
    return content;
}

int main(int argc, char **argv) {
#ifdef LOADS
    if (argc != 3) quit("Usage: %s CASES LIBRARY", argv[0]);
    if (!(library = OPEN(argv[2]))) quit("%s cannot be loaded.", argv[2]);
    const int level = ((int (*)(void))find("labeltide_processor"))();
    printf("processor level %d\n", level);
#else
    if (argc != 2) quit("Usage: %s CASES", argv[0]);
#endif
    char *content = read_file(argv[1]);
    const char *at = content + strlen(MAGIC);
    int all = 1;
    for (int64_t left = number(&at); left > 0; left--) {
        char name[NAME + 1];
        read_name(&at, name);
        take(&at, NAME); /* the kernel, which only Python needs */
        Verdict verdict = {1, 0.0};
        replay(at, 2, &verdict); /* so that a share of the items is done by another thread */
        at = replay(at, 1, &verdict);
        printf("%-*s %s %.2e\n", NAME, name, verdict.passed ? "passed" : "FAILED", verdict.difference);
        fflush(stdout); /* a later case may crash */
        all &= verdict.passed;
    }
    free(content);
    return all ? 0 : 1;
}
