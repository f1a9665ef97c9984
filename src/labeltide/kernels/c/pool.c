/* Thread pool. A call of `labeltide_run` starts at once in the calling thread; the others join as they wake up, and a thread
   that wakes too late is not waited for. On a busy machine a call therefore never takes longer than on one thread. */

#include "common.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* The few thread functions that the pool needs, by the names of POSIX. */
#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
typedef SRWLOCK Mutex;
typedef CONDITION_VARIABLE Condition;
#define MUTEX SRWLOCK_INIT
#define CONDITION CONDITION_VARIABLE_INIT
static void lock(Mutex *mutex) { AcquireSRWLockExclusive(mutex); }
static int try_lock(Mutex *mutex) { return TryAcquireSRWLockExclusive(mutex); }
static void unlock(Mutex *mutex) { ReleaseSRWLockExclusive(mutex); }
static void wait_for(Condition *condition, Mutex *mutex) { SleepConditionVariableSRW(condition, mutex, INFINITE, 0); }
static void wake_all(Condition *condition) { WakeAllConditionVariable(condition); }
#else
#include <pthread.h>
typedef pthread_mutex_t Mutex;
typedef pthread_cond_t Condition;
#define MUTEX PTHREAD_MUTEX_INITIALIZER
#define CONDITION PTHREAD_COND_INITIALIZER
static void lock(Mutex *mutex) { pthread_mutex_lock(mutex); }
static int try_lock(Mutex *mutex) { return pthread_mutex_trylock(mutex) == 0; }
static void unlock(Mutex *mutex) { pthread_mutex_unlock(mutex); }
static void wait_for(Condition *condition, Mutex *mutex) { pthread_cond_wait(condition, mutex); }
static void wake_all(Condition *condition) { pthread_cond_broadcast(condition); }
#endif

/* Which variants this processor and its system can run: 2 for avx512, 1 for avx2, 0 for plain. `__builtin_cpu_supports` would
   need a library of the compiler, which cross-compilers do not bring along. */
EXPORT int labeltide_processor(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d, saved, unused;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX) || !(c & bit_FMA)) return 0;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(unused) : "c"(0)); /* the registers that the system saves */
    if ((saved & 0x06) != 0x06 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    const unsigned wide = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    if ((b & wide) == wide && (saved & 0xe6) == 0xe6) return 2;
    if (b & bit_AVX2) return 1;
#endif
    return 0;
}

typedef int (*Kernel)(const void *task, Work *work); /* takes items until none is left; returns 0, or 1 without memory */

static Mutex turn = MUTEX, guard = MUTEX;
static Condition wake = CONDITION, done = CONDITION;
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

static void work_forever(void) {
    for (;;) {
        look(&wanted, 1);
        lock(&guard);
        while (wanted == 0) wait_for(&wake, &guard);
        __atomic_store_n(&wanted, wanted - 1, __ATOMIC_RELAXED), __atomic_store_n(&busy, busy + 1, __ATOMIC_RELAXED);
        unlock(&guard);
        const int result = kernel(task, work);
        lock(&guard);
        failed |= result;
        __atomic_store_n(&busy, busy - 1, __ATOMIC_RELAXED);
        if (busy == 0) wake_all(&done);
        unlock(&guard);
    }
}

#if defined(_WIN32)
static DWORD WINAPI thread_main(void *unused) { return work_forever(), unused ? 1 : 0; }
static int start_thread(void) {
    HANDLE thread = CreateThread(NULL, 0, thread_main, NULL, 0, NULL);
    return thread && CloseHandle(thread);
}
#else
static void *thread_main(void *unused) { return work_forever(), unused; }
static void forget_threads(void) { /* a forked child has none of them */
    pthread_mutex_init(&turn, NULL), pthread_mutex_init(&guard, NULL);
    pthread_cond_init(&wake, NULL), pthread_cond_init(&done, NULL);
    started = wanted = busy = 0;
}
static int start_thread(void) {
    static int prepared = 0;
    if (!prepared) pthread_atfork(NULL, NULL, forget_threads), prepared = 1;
    pthread_t thread;
    return pthread_create(&thread, NULL, thread_main, NULL) == 0 && pthread_detach(thread) == 0;
}
#endif

/* Do all items of a task with up to `threads` threads. A concurrent second call runs in its calling thread alone. */
EXPORT int labeltide_run(Kernel given, const void *its_task, int64_t items, int64_t threads) {
    Work own = {0, items};
    if (threads > items) threads = items;
    if (threads <= 1 || !try_lock(&turn)) return given(its_task, &own);
    lock(&guard);
    while (started < threads - 1 && start_thread()) started++;
    kernel = given, task = its_task, work = &own, failed = 0;
    __atomic_store_n(&wanted, threads - 1 < started ? threads - 1 : started, __ATOMIC_RELAXED);
    wake_all(&wake);
    unlock(&guard);
    int result = given(its_task, &own);
    lock(&guard);
    __atomic_store_n(&wanted, 0, __ATOMIC_RELAXED);
    unlock(&guard);
    look(&busy, 0);
    lock(&guard);
    while (busy > 0) wait_for(&done, &guard);
    result |= failed;
    unlock(&guard);
    unlock(&turn);
    return result;
}

/* Sum the parts of each member in a fixed order: parts (members, count, size) to sums, which lie `stride` apart. */
typedef struct {
    int64_t members, count, size, stride;
    const float *parts;
    float *sums;
} Sum;

EXPORT int labeltide_sum(const Sum *s, Work *items) {
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
