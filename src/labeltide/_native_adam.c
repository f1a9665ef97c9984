/* One step of Adam for every member of a fleet, in one pass over its parameters. The equations are those of
   training/state.py, which does the same with torch where this is not built. */

#include "_native.h"
#include <math.h>

#define BETA_MEAN 0.9f
#define BETA_VARIANCE 0.999f
#define EPSILON 1e-8f

/* All tensors have shape (members, size) or (members,), but factor (size,). A member moves if it takes part, has not diverged
   and its gradient is finite; one that takes part with a gradient that is not finite is marked in `diverged`. */
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

int labeltide_adam(const Adam *s, Work *work) {
    const int64_t size = s->size;
    for (int64_t member; (member = next_item(work)) < s->members;) {
        if (!s->taking_part[member] || s->diverged[member]) continue;
        float *restrict count = s->count, *restrict own = s->parameters + member * size;
        float *restrict m = s->mean + member * size, *restrict v = s->variance + member * size;
        const float *restrict factor = s->factor;
        const float *restrict gradient = s->gradients + member * size;
        double squares = 0.0;
        for (int64_t start = 0; start < size; start += 4096) { /* in blocks, so that floats sum precisely and fast */
            const int64_t stop = start + 4096 < size ? start + 4096 : size;
            float lanes[16] = {0};
            int64_t i = start;
            for (; i + 16 <= stop; i += 16)
                for (int lane = 0; lane < 16; lane++) lanes[lane] += gradient[i + lane] * gradient[i + lane];
            for (; i < stop; i++) lanes[0] += gradient[i] * gradient[i];
            for (int lane = 0; lane < 16; lane++) squares += lanes[lane];
        }
        const float norm = (float)sqrt(squares);
        if (!isfinite(norm)) {
            s->diverged[member] = 1;
            continue;
        }
        count[member] += 1.0f;
        const float shrink = norm > s->clip ? s->clip / norm : 1.0f;
        const float root = sqrtf(1.0f - powf(BETA_VARIANCE, count[member]));
        const float length = s->rate[member] * root / (1.0f - powf(BETA_MEAN, count[member]));
        for (int64_t i = 0; i < size; i++) {
            const float g = gradient[i] * shrink;
            m[i] += (1.0f - BETA_MEAN) * (g - m[i]);
            v[i] += (1.0f - BETA_VARIANCE) * (g * g - v[i]);
            own[i] -= length * factor[i] * m[i] / (sqrtf(v[i]) + root * EPSILON);
        }
    }
    return 0;
}
