/* A fleet of GRU layers, fused over time, forward and backward.

   Plain C without any header of Python or torch: it is built once for each vector width (see pyproject.toml) and
   called through ctypes. The equations are those of gru.py beside it.

   ROWS sequences of one member run through all steps together, so that their state and the member's weights stay in
   the nearest cache. Vectors run along hidden units in pairs, so their number must be a multiple of 2 * LANES
   (32 in the widest build); fused.py sees to it. Weights have shape
   (inputs, 3 * hidden) in the order reset, update, new. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef LANES
#define LANES 4
#endif
#define ROWS 8
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

typedef struct {
    int64_t members, batch, steps, inputs, hidden, chunks;
    int64_t stride_weight_input, stride_weight_hidden, stride_bias_input, stride_bias_hidden; /* between members */
} Shape;

INLINE vec load(const float *p) { return *(const vec *)p; }
INLINE void store(float *p, vec v) { *(vec *)p = v; }
INLINE vec fill(float a) { return (vec){0} + a; }

INLINE vec bounded(vec x, float limit) {
    vec high = fill(limit), low = fill(-limit);
    ivec over = x > high, under = x < low;
    ivec bits = ((ivec)x & ~over & ~under) | ((ivec)high & over) | ((ivec)low & under);
    return (vec)bits;
}

/* exp(x) for |x| <= 40: split x into a power of two and a rest below log(2) / 2, whose series is cut after x^6 / 720;
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

/* ROWS x 2 vectors of sums: out[row][0..2 LANES) += in[row][k] * weight[k][...] over k. */
INLINE void multiply_add(vec sum[ROWS][2], const float *in, int64_t in_stride, const float *weight,
                         int64_t weight_stride, int64_t depth) {
    for (int64_t k = 0; k < depth; k++) {
        vec left = load(weight + k * weight_stride), right = load(weight + k * weight_stride + LANES);
        for (int row = 0; row < ROWS; row++) {
            float value = in[row * in_stride + k];
            sum[row][0] += value * left;
            sum[row][1] += value * right;
        }
    }
}

/* weight_sums[k][c] += sum over rows of left[row][k] * right[row][c], for k < depth and c < width. */
INLINE void outer_add(float *sums, const float *left, int64_t left_stride, int64_t depth, const float *right,
                      int64_t right_stride, int64_t width) {
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
        for (int64_t c = 0; c < width; c += 2 * LANES) {
            vec sum[4][2];
            for (int i = 0; i < 4; i++) {
                sum[i][0] = load(sums + (k + i) * width + c);
                sum[i][1] = load(sums + (k + i) * width + c + LANES);
            }
            for (int row = 0; row < ROWS; row++) {
                vec a = load(right + row * right_stride + c), b = load(right + row * right_stride + c + LANES);
                for (int i = 0; i < 4; i++) {
                    float value = left[row * left_stride + k + i];
                    sum[i][0] += value * a;
                    sum[i][1] += value * b;
                }
            }
            for (int i = 0; i < 4; i++) {
                store(sums + (k + i) * width + c, sum[i][0]);
                store(sums + (k + i) * width + c + LANES, sum[i][1]);
            }
        }
    }
    for (; k < depth; k++) {
        for (int64_t c = 0; c < width; c += LANES) {
            vec sum = load(sums + k * width + c);
            for (int row = 0; row < ROWS; row++) sum += left[row * left_stride + k] * load(right + row * right_stride + c);
            store(sums + k * width + c, sum);
        }
    }
}

/* The rows of one tile at one step, side by side; rows beyond the batch repeat its last one. */
INLINE void gather_rows(float *tile, const float *source, int64_t first, int64_t batch, int64_t row_stride, int64_t size) {
    for (int row = 0; row < ROWS; row++) {
        int64_t index = first + row < batch ? first + row : batch - 1;
        memcpy(tile + row * size, source + index * row_stride, (size_t)size * sizeof(float));
    }
}

INLINE void start_sums(vec sum[ROWS][2], const float *first, const float *second) {
    vec left = load(first), right = load(first + LANES);
    if (second) left += load(second), right += load(second + LANES);
    for (int row = 0; row < ROWS; row++) sum[row][0] = left, sum[row][1] = right;
}

/* One step of one tile. `kept` has room for reset, update, new and mix, (4, ROWS, hidden). */
INLINE void step_forward(const Shape *s, const float *x, float *state, float *kept, const float *weight_input,
                         const float *weight_hidden, const float *bias_input, const float *bias_hidden) {
    const int64_t hidden = s->hidden, width = 3 * hidden, block = ROWS * hidden;
    float *reset = kept, *update = kept + block, *new = kept + 2 * block, *mix = kept + 3 * block;
    for (int64_t c = 0; c < hidden; c += 2 * LANES) {
        vec r[ROWS][2], z[ROWS][2];
        start_sums(r, bias_input + c, bias_hidden + c);
        start_sums(z, bias_input + hidden + c, bias_hidden + hidden + c);
        multiply_add(r, x, s->inputs, weight_input + c, width, s->inputs);
        multiply_add(r, state, hidden, weight_hidden + c, width, hidden);
        multiply_add(z, x, s->inputs, weight_input + hidden + c, width, s->inputs);
        multiply_add(z, state, hidden, weight_hidden + hidden + c, width, hidden);
        for (int row = 0; row < ROWS; row++) {
            for (int half = 0; half < 2; half++) {
                /* Two logistic functions for one division. */
                vec a = 1.0f + exponential(-bounded(r[row][half], 40.0f));
                vec b = 1.0f + exponential(-bounded(z[row][half], 40.0f));
                vec inverse = 1.0f / (a * b);
                store(reset + row * hidden + c + half * LANES, inverse * b);
                store(update + row * hidden + c + half * LANES, inverse * a);
            }
        }
    }
    for (int64_t c = 0; c < hidden; c += 2 * LANES) {
        vec n[ROWS][2], m[ROWS][2];
        start_sums(n, bias_input + 2 * hidden + c, NULL);
        start_sums(m, bias_hidden + 2 * hidden + c, NULL);
        multiply_add(n, x, s->inputs, weight_input + 2 * hidden + c, width, s->inputs);
        multiply_add(m, state, hidden, weight_hidden + 2 * hidden + c, width, hidden);
        for (int row = 0; row < ROWS; row++) {
            for (int half = 0; half < 2; half++) {
                int64_t at = row * hidden + c + half * LANES;
                vec inside = n[row][half] + load(reset + at) * m[row][half];
                vec tanh = 2.0f / (1.0f + exponential(-2.0f * bounded(inside, 20.0f))) - 1.0f;
                store(mix + at, m[row][half]);
                store(new + at, tanh);
            }
        }
    }
    for (int64_t at = 0; at < block; at += LANES) {
        vec n = load(new + at);
        store(state + at, n + load(update + at) * (load(state + at) - n));
    }
}

/* Items are pairs (member, chunk of tiles); a call does items first .. last - 1.
   features (members, batch, steps, inputs), out (members, batch, steps, hidden),
   kept (members, tiles, steps, 4, ROWS, hidden) or NULL where no gradient is wanted. Returns 0, or 1 without memory. */
int labeltide_gru_forward(const Shape *s, const float *features, const float *weight_input, const float *weight_hidden,
                          const float *bias_input, const float *bias_hidden, float *out, float *kept, int64_t first,
                          int64_t last) {
    const int64_t hidden = s->hidden, block = ROWS * hidden, tiles = (s->batch + ROWS - 1) / ROWS;
    float *x = malloc((size_t)(ROWS * s->inputs + 5 * block) * sizeof(float));
    if (!x) return 1;
    float *state = x + ROWS * s->inputs, *scratch = state + block;
    for (int64_t item = first; item < last; item++) {
        const int64_t member = item / s->chunks, chunk = item % s->chunks;
        const float *rows = features + member * s->batch * s->steps * s->inputs;
        float *answers = out + member * s->batch * s->steps * hidden;
        for (int64_t tile = chunk * tiles / s->chunks; tile < (chunk + 1) * tiles / s->chunks; tile++) {
            memset(state, 0, (size_t)block * sizeof(float));
            for (int64_t t = 0; t < s->steps; t++) {
                float *here = kept ? kept + ((member * tiles + tile) * s->steps + t) * 4 * block : scratch;
                gather_rows(x, rows + t * s->inputs, tile * ROWS, s->batch, s->steps * s->inputs, s->inputs);
                step_forward(s, x, state, here, weight_input + member * s->stride_weight_input,
                             weight_hidden + member * s->stride_weight_hidden, bias_input + member * s->stride_bias_input,
                             bias_hidden + member * s->stride_bias_hidden);
                for (int64_t row = 0; row < ROWS && tile * ROWS + row < s->batch; row++)
                    memcpy(answers + ((tile * ROWS + row) * s->steps + t) * hidden, state + row * hidden,
                           (size_t)hidden * sizeof(float));
            }
        }
    }
    free(x);
    return 0;
}

/* The gradients of one tile at one step; `carry` is the gradient of the state after the step, then of that before. */
INLINE void step_backward(const Shape *s, const float *before, const float *kept, float *carry, float *share, float *gate,
                          const float *weight_back) {
    const int64_t hidden = s->hidden, width = 3 * hidden, block = ROWS * hidden;
    const float *reset = kept, *update = kept + block, *new = kept + 2 * block, *mix = kept + 3 * block;
    for (int row = 0; row < ROWS; row++) {
        for (int64_t c = 0; c < hidden; c += LANES) {
            const int64_t at = row * hidden + c;
            vec grad = load(carry + at), r = load(reset + at), z = load(update + at), n = load(new + at);
            vec grad_new = grad * (1.0f - z) * (1.0f - n * n);
            vec grad_update = grad * (load(before + at) - n) * z * (1.0f - z);
            vec grad_reset = grad_new * load(mix + at) * r * (1.0f - r);
            float *own_share = share + row * width + c, *own_gate = gate + row * width + c;
            store(own_share, grad_reset), store(own_gate, grad_reset);
            store(own_share + hidden, grad_update), store(own_gate + hidden, grad_update);
            store(own_share + 2 * hidden, grad_new * r), store(own_gate + 2 * hidden, grad_new);
            store(carry + at, grad * z);
        }
    }
    for (int64_t c = 0; c < hidden; c += 2 * LANES) {
        vec sum[ROWS][2];
        for (int row = 0; row < ROWS; row++) {
            sum[row][0] = load(carry + row * hidden + c);
            sum[row][1] = load(carry + row * hidden + c + LANES);
        }
        multiply_add(sum, share, width, weight_back + c, hidden, width);
        for (int row = 0; row < ROWS; row++) {
            store(carry + row * hidden + c, sum[row][0]);
            store(carry + row * hidden + c + LANES, sum[row][1]);
        }
    }
}

/* weight_back (members, 3 * hidden, hidden) is weight_hidden transposed. The four gradients have a slot for each item,
   shape (members * chunks, ...), and are summed over chunks by the caller. Returns 0, or 1 without memory. */
int labeltide_gru_backward(const Shape *s, const float *features, const float *weight_back, const float *out,
                           const float *kept, const float *grad_out, float *grad_weight_input, float *grad_weight_hidden,
                           float *grad_bias_input, float *grad_bias_hidden, int64_t first, int64_t last) {
    const int64_t hidden = s->hidden, width = 3 * hidden, block = ROWS * hidden, inputs = s->inputs;
    const int64_t tiles = (s->batch + ROWS - 1) / ROWS;
    float *x = malloc((size_t)(ROWS * inputs + 2 * block + 2 * ROWS * width) * sizeof(float));
    if (!x) return 1;
    float *before = x + ROWS * inputs, *carry = before + block, *share = carry + block, *gate = share + ROWS * width;
    for (int64_t item = first; item < last; item++) {
        const int64_t member = item / s->chunks, chunk = item % s->chunks;
        const float *rows = features + member * s->batch * s->steps * inputs;
        const float *states = out + member * s->batch * s->steps * hidden;
        const float *grads = grad_out + member * s->batch * s->steps * hidden;
        float *sum_input = grad_weight_input + item * inputs * width, *sum_hidden = grad_weight_hidden + item * hidden * width;
        float *sum_gate = grad_bias_input + item * width, *sum_share = grad_bias_hidden + item * width;
        memset(sum_input, 0, (size_t)(inputs * width) * sizeof(float));
        memset(sum_hidden, 0, (size_t)(hidden * width) * sizeof(float));
        memset(sum_gate, 0, (size_t)width * sizeof(float));
        memset(sum_share, 0, (size_t)width * sizeof(float));
        for (int64_t tile = chunk * tiles / s->chunks; tile < (chunk + 1) * tiles / s->chunks; tile++) {
            memset(carry, 0, (size_t)block * sizeof(float));
            for (int64_t t = s->steps - 1; t >= 0; t--) {
                for (int64_t row = 0; row < ROWS && tile * ROWS + row < s->batch; row++)
                    for (int64_t c = 0; c < hidden; c += LANES) {
                        float *sum = carry + row * hidden + c;
                        store(sum, load(sum) + load(grads + ((tile * ROWS + row) * s->steps + t) * hidden + c));
                    }
                gather_rows(x, rows + t * inputs, tile * ROWS, s->batch, s->steps * inputs, inputs);
                if (t > 0)
                    gather_rows(before, states + (t - 1) * hidden, tile * ROWS, s->batch, s->steps * hidden, hidden);
                else
                    memset(before, 0, (size_t)block * sizeof(float));
                step_backward(s, before, kept + ((member * tiles + tile) * s->steps + t) * 4 * block, carry, share, gate,
                              weight_back + member * width * hidden);
                outer_add(sum_hidden, before, hidden, hidden, share, width, width);
                outer_add(sum_input, x, inputs, inputs, gate, width, width);
                for (int64_t c = 0; c < width; c += LANES) {
                    vec a = load(sum_gate + c), b = load(sum_share + c);
                    for (int row = 0; row < ROWS; row++) a += load(gate + row * width + c), b += load(share + row * width + c);
                    store(sum_gate + c, a), store(sum_share + c, b);
                }
            }
        }
    }
    free(x);
    return 0;
}
