/* Adam (Kingma and Ba 2015) with gradient clipping for every member of a fleet, in one pass over its parameters. The
   reference implementation in torch is training/state.py. */

#include "common.h"
#include <math.h>

#define BETA_MEAN 0.9f
#define BETA_VARIANCE 0.999f
#define EPSILON 1e-8f

/* All tensors have shape (members, size) or (members,), except factor (size,). A member is updated if it takes part, has not
   diverged and its gradient is finite. A member that takes part with a gradient that is not finite is marked in `diverged`. */
typedef struct {
    int64_t members, size;
    float *parameters, *mean, *variance;
    const float *gradients;
    float *count;
    const float *rate, *factor;
    const uint8_t *taking_part;
    uint8_t *diverged;
    float clip;
} Adam;

/* The sum of squares, in blocks: accurate in single precision, and vectorised. */
static double sum_of_squares(const float *values, int64_t size) {
    double total = 0.0;
    for (int64_t start = 0; start < size; start += 4096) {
        const int64_t stop = start + 4096 < size ? start + 4096 : size;
        vec sums[4] = {{0}}; /* four independent sums hide the latency of an addition */
        int64_t i = start;
        for (; i + 4 * LANES <= stop; i += 4 * LANES)
            for (int k = 0; k < 4; k++) {
                const vec value = load(values + i + k * LANES);
                sums[k] += value * value;
            }
        const vec sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        for (int lane = 0; lane < LANES; lane++) total += sum[lane];
        for (; i < stop; i++) total += (double)values[i] * values[i];
    }
    return total;
}

/* The constants of one step of a member. */
typedef struct {
    float shrink, length, epsilon;
} Step;

/* Update LANES parameters. */
INLINE void move(float *parameters, float *mean, float *variance, const float *gradient, const float *factor, Step step) {
    const vec g = load(gradient) * step.shrink;
    const vec m = load(mean) + (1.0f - BETA_MEAN) * (g - load(mean));
    const vec v = load(variance) + (1.0f - BETA_VARIANCE) * (g * g - load(variance));
    store(mean, m), store(variance, v);
    store(parameters, load(parameters) - step.length * load(factor) * m / (square_root(v) + step.epsilon));
}

EXPORT int labeltide_adam(const Adam *s, Work *work) {
    const int64_t size = s->size, whole = size / LANES * LANES, rest = size - whole;
    for (int64_t member; (member = next_item(work)) < s->members;) {
        if (!s->taking_part[member] || s->diverged[member]) continue;
        float *parameters = s->parameters + member * size, *mean = s->mean + member * size;
        float *variance = s->variance + member * size;
        const float *gradient = s->gradients + member * size;
        const float norm = (float)sqrt(sum_of_squares(gradient, size));
        if (!isfinite(norm)) {
            s->diverged[member] = 1;
            continue;
        }
        const float count = s->count[member] += 1.0f, root = sqrtf(1.0f - powf(BETA_VARIANCE, count));
        const Step step = {norm > s->clip ? s->clip / norm : 1.0f, s->rate[member] * root / (1.0f - powf(BETA_MEAN, count)),
                           root * EPSILON};
        for (int64_t i = 0; i < whole; i += LANES)
            move(parameters + i, mean + i, variance + i, gradient + i, s->factor + i, step);
        if (!rest) continue;
        float last[5][LANES] = {{0}}; /* parameters, mean, variance, gradient, factor, filled up with zeros */
        float *const from[5] = {parameters, mean, variance, (float *)gradient, (float *)s->factor};
        for (int k = 0; k < 5; k++) memcpy(last[k], from[k] + whole, (size_t)rest * sizeof(float));
        move(last[0], last[1], last[2], last[3], last[4], step);
        for (int k = 0; k < 3; k++) memcpy(from[k] + whole, last[k], (size_t)rest * sizeof(float));
    }
    return 0;
}
