/* Thread pool. A call of `labeltide_run` starts at once in the calling thread; the others join as they wake up, and a thread
   that wakes too late is not waited for. On a busy machine a call therefore never takes longer than on one thread. */

#include "common.h"
#include <pthread.h>

/* Which variants this processor can run: 2 for avx512, 1 for avx2, 0 for plain. */
int labeltide_processor(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

typedef int (*Kernel)(const void *task, Work *work); /* takes items until none is left; returns 0, or 1 without memory */

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER, guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static Kernel kernel;
static const void *task;
static Work *work;
static int64_t started, wanted, busy; /* threads that exist, that may still join, that are at work */
static int failed;

/* The calls of a training step follow each other within tens of microseconds, about the wake-up time of a thread: spin for
   that long on a number before sleeping. */
#define LOOKS 2000
static void look(const int64_t *number, int until_positive) {
    for (int i = 0; i < LOOKS && (__atomic_load_n(number, __ATOMIC_RELAXED) > 0) != until_positive; i++) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }
}

static void *wait_for_work(void *unused) {
    for (;;) {
        look(&wanted, 1);
        pthread_mutex_lock(&guard);
        while (wanted == 0) pthread_cond_wait(&wake, &guard);
        __atomic_store_n(&wanted, wanted - 1, __ATOMIC_RELAXED), __atomic_store_n(&busy, busy + 1, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&guard);
        const int result = kernel(task, work);
        pthread_mutex_lock(&guard);
        failed |= result;
        __atomic_store_n(&busy, busy - 1, __ATOMIC_RELAXED);
        if (busy == 0) pthread_cond_signal(&done);
        pthread_mutex_unlock(&guard);
    }
    return unused;
}

static void forget_threads(void) { /* a forked child has none of them */
    pthread_mutex_init(&turn, NULL), pthread_mutex_init(&guard, NULL);
    pthread_cond_init(&wake, NULL), pthread_cond_init(&done, NULL);
    started = wanted = busy = 0;
}

static void start_threads(int64_t count) {
    static int prepared = 0;
    if (!prepared) pthread_atfork(NULL, NULL, forget_threads), prepared = 1;
    pthread_t thread;
    while (started < count && pthread_create(&thread, NULL, wait_for_work, NULL) == 0) {
        pthread_detach(thread);
        started++;
    }
}

/* Do all items of a task with up to `threads` threads. A concurrent second call runs in its calling thread alone. */
int labeltide_run(Kernel given, const void *its_task, int64_t items, int64_t threads) {
    Work own = {0, items};
    if (threads > items) threads = items;
    if (threads <= 1 || pthread_mutex_trylock(&turn) != 0) return given(its_task, &own);
    pthread_mutex_lock(&guard);
    start_threads(threads - 1);
    kernel = given, task = its_task, work = &own, failed = 0;
    __atomic_store_n(&wanted, threads - 1 < started ? threads - 1 : started, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&guard);
    int result = given(its_task, &own);
    pthread_mutex_lock(&guard);
    __atomic_store_n(&wanted, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&guard);
    look(&busy, 0);
    pthread_mutex_lock(&guard);
    while (busy > 0) pthread_cond_wait(&done, &guard);
    result |= failed;
    pthread_mutex_unlock(&guard);
    pthread_mutex_unlock(&turn);
    return result;
}

/* Sum the parts of each member in a fixed order: parts (members, count, size) to sums, which lie `stride` apart. */
typedef struct {
    int64_t members, count, size, stride;
    const float *parts;
    float *sums;
} Sum;

int labeltide_sum(const Sum *s, Work *items) {
    for (int64_t member; (member = next_item(items)) < s->members;) {
        const float *part = s->parts + member * s->count * s->size;
        float *sum = s->sums + member * s->stride;
        memcpy(sum, part, (size_t)s->size * sizeof(float));
        for (int64_t i = 1; i < s->count; i++) {
            const float *next = part + i * s->size;
            int64_t j = 0;
            for (; j + LANES <= s->size; j += LANES) store(sum + j, load(sum + j) + load(next + j));
            for (; j < s->size; j++) sum[j] += next[j];
        }
    }
    return 0;
}
