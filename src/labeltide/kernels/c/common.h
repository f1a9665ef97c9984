/* Shared by all kernels: vectors, exponential and logarithm, matrix products, and the items of the thread pool. */

#ifndef LABELTIDE_NATIVE_H
#define LABELTIDE_NATIVE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef LANES
#define LANES 4
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#define INLINE static inline __attribute__((always_inline))
#if defined(_WIN32)
#include <malloc.h>
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* The items of one call. Every thread takes the next one until none is left; what an item computes and where it puts it
   must not depend on the thread. */
typedef struct {
    int64_t next, items;
} Work;

INLINE int64_t next_item(Work *work) { return __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED); }

/* Allocate floats aligned to a cache line; loading a vector across two lines costs twice. NULL if out of memory. Windows has
   no `aligned_alloc`, and its own function has its own `free`. */
INLINE float *room(int64_t floats) {
    const size_t line = 64, bytes = ((size_t)floats * sizeof(float) + line - 1) / line * line, size = bytes ? bytes : line;
#if defined(_WIN32)
    return _aligned_malloc(size, line);
}
INLINE void release(void *memory) { _aligned_free(memory); }
#else
    return aligned_alloc(line, size);
}
INLINE void release(void *memory) { free(memory); }
#endif
INLINE int64_t in_lines(int64_t floats) { return (floats + 15) / 16 * 16; }

INLINE vec load(const float *p) { return *(const vec *)p; }
INLINE void store(float *p, vec v) { *(vec *)p = v; }
INLINE vec fill(float a) { return (vec){0} + a; }
INLINE vec choose(ivec where, vec yes, vec no) { return (vec)(((ivec)yes & where) | ((ivec)no & ~where)); }

INLINE vec bounded(vec x, float limit) { /* NaN stays NaN: these return their second operand where either is NaN */
#if LANES == 16
    return (vec)_mm512_max_ps((__m512)fill(-limit), _mm512_min_ps((__m512)fill(limit), (__m512)x));
#elif LANES == 8
    return (vec)_mm256_max_ps((__m256)fill(-limit), _mm256_min_ps((__m256)fill(limit), (__m256)x));
#else
    vec high = fill(limit), low = fill(-limit);
    return choose(x > high, high, choose(x < low, low, x));
#endif
}

/* 1 / x for finite x away from the ends of the range, to about one unit in the last place. */
INLINE vec reciprocal(vec x) {
#if LANES == 16
    vec guess = (vec)_mm512_rcp14_ps((__m512)x);
    return guess + guess * (1.0f - x * guess);
#else
    return 1.0f / x;
#endif
}

INLINE vec square_root(vec x) {
#if LANES == 16
    return (vec)_mm512_sqrt_ps((__m512)x);
#elif LANES == 8
    return (vec)_mm256_sqrt_ps((__m256)x);
#elif defined(__x86_64__)
    return (vec)_mm_sqrt_ps((__m128)x);
#elif defined(__aarch64__)
    return (vec)vsqrtq_f32((float32x4_t)x);
#else
    for (int lane = 0; lane < LANES; lane++) x[lane] = __builtin_sqrtf(x[lane]);
    return x;
#endif
}

/* exp(x) for |x| <= 80: split x into a power of two and a rest below log(2) / 2, whose series is cut after x^6 / 720;
   the error is below two units in the last place. */
INLINE vec exponential(vec x) {
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    vec shifted = x * 1.44269504f + magic;
    vec whole = shifted - magic;
    vec rest = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    vec series = fill(1.0f / 720);
    series = series * rest + 1.0f / 120;
    series = series * rest + 1.0f / 24;
    series = series * rest + 1.0f / 6;
    series = series * rest + 0.5f;
    series = series * rest + 1.0f;
    series = series * rest + 1.0f;
    return (vec)((ivec)series + ((ivec)shifted << 23));
}

/* log(x) for positive x, to about one unit in the last place (the series of the Cephes library); NaN stays NaN. */
INLINE vec logarithm(vec x) {
    ivec bits = (ivec)x, power = (bits >> 23) - 127;
    vec part = (vec)((bits & 0x7fffff) | 0x3f800000);
    ivec above = part > 1.41421356f; /* all ones, which is -1, where true */
    part = choose(above, 0.5f * part, part) - 1.0f;
    vec whole = __builtin_convertvector(power - above, vec);
    vec series = fill(7.0376836292e-2f);
    series = series * part - 1.1514610310e-1f;
    series = series * part + 1.1676998740e-1f;
    series = series * part - 1.2420140846e-1f;
    series = series * part + 1.4249322787e-1f;
    series = series * part - 1.6668057665e-1f;
    series = series * part + 2.0000714765e-1f;
    series = series * part - 2.4999993993e-1f;
    series = series * part + 3.3333331174e-1f;
    vec square = part * part;
    vec rest = series * part * square - 2.12194440e-4f * whole - 0.5f * square;
    return part + rest + 0.693359375f * whole + (x - x);
}

/* How many pairs of sums stay in registers beside the values that are added to them: wide vectors and Arm have 32 registers,
   narrow ones on x86 have 16, and with more every product would go through memory. */
#if LANES == 16 || defined(__aarch64__)
#define PAIRS 8
#else
#define PAIRS 4
#endif

INLINE void multiply_block(vec (*sum)[2], const float *in, int64_t in_stride, const float *weight, int64_t weight_stride,
                           int64_t depth) {
    vec own[PAIRS][2];
    for (int row = 0; row < PAIRS; row++) own[row][0] = sum[row][0], own[row][1] = sum[row][1];
    for (int64_t k = 0; k < depth; k++) {
        const vec left = load(weight + k * weight_stride), right = load(weight + k * weight_stride + LANES);
        for (int row = 0; row < PAIRS; row++) {
            const float value = in[row * in_stride + k];
            own[row][0] += value * left;
            own[row][1] += value * right;
        }
    }
    for (int row = 0; row < PAIRS; row++) sum[row][0] = own[row][0], sum[row][1] = own[row][1];
}

/* sum[row] += in[row][k] * weight[k][0 .. 2 LANES) over k < depth, for a number of rows that is a multiple of 8. */
INLINE void multiply_add(vec (*sum)[2], const int rows, const float *in, int64_t in_stride, const float *weight,
                         int64_t weight_stride, int64_t depth) {
    for (int row = 0; row < rows; row += PAIRS)
        multiply_block(sum + row, in + row * in_stride, in_stride, weight, weight_stride, depth);
}

/* sums[k][c] += left[row][k] * right[row][c] over rows, for `few` k's and 2 LANES c's. */
INLINE void outer_block(float *sums, int64_t sums_stride, const int few, const float *left, int64_t left_stride,
                        const float *right, int64_t right_stride, int64_t rows) {
    vec sum[PAIRS][2];
    for (int i = 0; i < few; i++) sum[i][0] = load(sums + i * sums_stride), sum[i][1] = load(sums + i * sums_stride + LANES);
    for (int64_t row = 0; row < rows; row++) {
        const vec a = load(right + row * right_stride), b = load(right + row * right_stride + LANES);
        for (int i = 0; i < few; i++) {
            const float value = left[row * left_stride + i];
            sum[i][0] += value * a;
            sum[i][1] += value * b;
        }
    }
    for (int i = 0; i < few; i++) store(sums + i * sums_stride, sum[i][0]), store(sums + i * sums_stride + LANES, sum[i][1]);
}

/* The same for all k < depth. */
INLINE void outer_add(float *sums, int64_t sums_stride, int64_t depth, const float *left, int64_t left_stride,
                      const float *right, int64_t right_stride, int64_t rows) {
    int64_t k = 0;
    for (; k + PAIRS <= depth; k += PAIRS)
        outer_block(sums + k * sums_stride, sums_stride, PAIRS, left + k, left_stride, right, right_stride, rows);
    for (; k < depth; k++)
        outer_block(sums + k * sums_stride, sums_stride, 1, left + k, left_stride, right, right_stride, rows);
}

#endif
