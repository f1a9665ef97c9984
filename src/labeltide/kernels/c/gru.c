/* GRU layers (Cho and others 2014) of a fleet with a linear head, fused over time, forward and backward.

   Plain C without any header of Python or torch: it is built once for each vector width (see setup.py) and called
   through ctypes. The equations and the reference implementation in torch are in models/gru.py.

   An item is a tile: ROWS sequences of one member, which run through all steps together, so that their state and the
   member's weights stay in the nearest caches. Weights are copied to cache-aligned memory first. Vectors run
   along hidden units in pairs, so inside a tile the hidden units are padded to a multiple of UNITS, which is 2 * LANES in the
   widest build. Padding has zero weights: its state stays zero and so do its gradients. Weights have shape
   (inputs, 3 * hidden) in the order reset, update, new. */

#include "common.h"

#define ROWS 8
#define UNITS 32 /* hidden units are padded to a multiple of it */
#define STEPS 4 /* steps whose contribution to the weight gradient is added at once */

typedef struct {
    int64_t members, batch, steps, inputs, hidden, classes; /* no head where there are no classes */
    int64_t strides[6];                                     /* between the members of each parameter */
    const float *features; /* (members, batch, steps, inputs); with rows, a table of (any number, steps, inputs) */
    const int64_t *rows;   /* (members, batch), row numbers of that table, -1 for filler rows; or NULL */
    const float *parameters[6];                             /* weight_input, weight_hidden, bias_input, bias_hidden, head */
    float *out;            /* (members, batch, steps, classes), or hidden states where there are no classes */
    const float *grad_out; /* of the same shape */
    float *kept;           /* (members, tiles, kept_size): saved for the backward pass; NULL without one */
    float *gradients;      /* (members, tiles, size), all parameters concatenated */
    float *state;          /* (members, batch, hidden), hidden state before and after the call; NULL starts from zero */
} Task;

/* The working memory of one tile, aligned to cache lines. */
typedef struct {
    float *weight_input, *weight_hidden, *weight_back, *bias_input, *bias_hidden, *head, *head_back, *head_bias;
    float *x, *states, *kept, *logits, *carry, *gates, *sums;
} Tile;

INLINE int64_t padded(const Task *s) { return (s->hidden + UNITS - 1) / UNITS * UNITS; }
INLINE int64_t head_width(const Task *s) { return (s->classes + LANES - 1) / LANES * LANES; }

static float *make_room(Tile *tile, const Task *s, int backward) {
    const int64_t hidden = padded(s), block = ROWS * hidden, width = head_width(s);
    const struct {
        float **pointer;
        int64_t size;
    } parts[] = {
        {&tile->weight_input, s->inputs * 3 * hidden},
        {&tile->weight_hidden, hidden * 3 * hidden},
        {&tile->weight_back, backward ? hidden * 3 * hidden : 0},
        {&tile->bias_input, 3 * hidden},
        {&tile->bias_hidden, 3 * hidden},
        {&tile->head, hidden * width},
        {&tile->head_back, hidden * s->classes},
        {&tile->head_bias, width},
        {&tile->x, ROWS * s->inputs},
        {&tile->states, 2 * block},
        {&tile->kept, 4 * block},
        {&tile->logits, ROWS * width},
        {&tile->carry, block},
        {&tile->gates, backward ? STEPS * 4 * block : 0},
        {&tile->sums, backward ? s->inputs * 3 * hidden + hidden * 3 * hidden + 6 * hidden + hidden * s->classes + s->classes + 64 : 0},
    };
    const int count = sizeof parts / sizeof *parts;
    int64_t all = 0;
    for (int i = 0; i < count; i++) all += in_lines(parts[i].size);
    float *memory = room(all), *next = memory;
    for (int i = 0; memory && i < count; next += in_lines(parts[i].size), i++) *parts[i].pointer = next;
    return memory;
}

static void transpose(float *to, int64_t to_stride, const float *from, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) to[j * to_stride + i] = from[i * columns + j];
}

/* Copy rows of three gates, each of `from_size` floats, to gates of `to_size`; what is beyond is zero. */
static void copy_gates(float *to, int64_t to_size, const float *from, int64_t from_size, int64_t rows) {
    const int64_t both = to_size < from_size ? to_size : from_size;
    for (int64_t gate = 0; gate < 3 * rows; gate++) {
        memcpy(to + gate * to_size, from + gate * from_size, (size_t)both * sizeof(float));
        for (int64_t i = both; i < to_size; i++) to[gate * to_size + i] = 0.0f;
    }
}

static void take_weights(Tile *tile, const Task *s, int64_t member, int backward) {
    const int64_t own = s->hidden, hidden = padded(s), width = head_width(s);
    const float *from[6];
    for (int i = 0; i < (s->classes ? 6 : 4); i++) from[i] = s->parameters[i] + member * s->strides[i];
    copy_gates(tile->weight_input, hidden, from[0], own, s->inputs);
    copy_gates(tile->weight_hidden, hidden, from[1], own, own);
    memset(tile->weight_hidden + own * 3 * hidden, 0, (size_t)((hidden - own) * 3 * hidden) * sizeof(float));
    copy_gates(tile->bias_input, hidden, from[2], own, 1);
    copy_gates(tile->bias_hidden, hidden, from[3], own, 1);
    if (backward) transpose(tile->weight_back, hidden, tile->weight_hidden, hidden, 3 * hidden);
    if (!s->classes) return;
    memset(tile->head, 0, (size_t)(hidden * width) * sizeof(float));
    memset(tile->head_bias, 0, (size_t)width * sizeof(float));
    for (int64_t k = 0; k < own; k++)
        memcpy(tile->head + k * width, from[4] + k * s->classes, (size_t)s->classes * sizeof(float));
    memcpy(tile->head_bias, from[5], (size_t)s->classes * sizeof(float));
    memset(tile->head_back, 0, (size_t)(hidden * s->classes) * sizeof(float));
    transpose(tile->head_back, hidden, from[4], own, s->classes);
}

INLINE void start_sums(vec sum[ROWS][2], const float *first, const float *second) {
    vec left = load(first), right = load(first + LANES);
    if (second) left += load(second), right += load(second + LANES);
    for (int row = 0; row < ROWS; row++) sum[row][0] = left, sum[row][1] = right;
}

/* One step of one tile. `kept` has room for reset, update, new and mix, (4, ROWS, hidden). */
INLINE void step_forward(const Tile *tile, const int64_t inputs, const int64_t hidden, const float *x, const float *state,
                         float *after, float *kept) {
    const int64_t width = 3 * hidden, block = ROWS * hidden;
    float *reset = kept, *update = kept + block, *new = kept + 2 * block, *mix = kept + 3 * block;
    for (int64_t c = 0; c < hidden; c += 2 * LANES) {
        vec r[ROWS][2], z[ROWS][2];
        start_sums(r, tile->bias_input + c, tile->bias_hidden + c);
        multiply_add(r, ROWS, x, inputs, tile->weight_input + c, width, inputs);
        multiply_add(r, ROWS, state, hidden, tile->weight_hidden + c, width, hidden);
        for (int row = 0; row < ROWS; row++)
            for (int half = 0; half < 2; half++)
                store(reset + row * hidden + c + half * LANES,
                      reciprocal(1.0f + exponential(-bounded(r[row][half], 40.0f))));
        start_sums(z, tile->bias_input + hidden + c, tile->bias_hidden + hidden + c);
        multiply_add(z, ROWS, x, inputs, tile->weight_input + hidden + c, width, inputs);
        multiply_add(z, ROWS, state, hidden, tile->weight_hidden + hidden + c, width, hidden);
        for (int row = 0; row < ROWS; row++)
            for (int half = 0; half < 2; half++)
                store(update + row * hidden + c + half * LANES,
                      reciprocal(1.0f + exponential(-bounded(z[row][half], 40.0f))));
    }
    for (int64_t c = 0; c < hidden; c += 2 * LANES) {
        vec m[ROWS][2], n[ROWS][2];
        start_sums(m, tile->bias_hidden + 2 * hidden + c, NULL);
        multiply_add(m, ROWS, state, hidden, tile->weight_hidden + 2 * hidden + c, width, hidden);
        for (int row = 0; row < ROWS; row++) {
            for (int half = 0; half < 2; half++) {
                const int64_t at = row * hidden + c + half * LANES;
                store(mix + at, m[row][half]);
                n[row][half] = m[row][half] * load(reset + at) + load(tile->bias_input + 2 * hidden + c + half * LANES);
            }
        }
        multiply_add(n, ROWS, x, inputs, tile->weight_input + 2 * hidden + c, width, inputs);
        for (int row = 0; row < ROWS; row++) {
            for (int half = 0; half < 2; half++) {
                const int64_t at = row * hidden + c + half * LANES;
                vec tanh = 2.0f * reciprocal(1.0f + exponential(-2.0f * bounded(n[row][half], 20.0f))) - 1.0f;
                store(new + at, tanh);
                store(after + at, tanh + load(update + at) * (load(state + at) - tanh));
            }
        }
    }
}

/* The logits of one tile at one step, where there is a head; hidden states where there is none. */
INLINE void write_out(const Task *s, const Tile *tile, const int64_t hidden, const float *state, int64_t member, int64_t first,
                      int64_t t) {
    const int64_t size = s->classes ? s->classes : s->hidden, width = head_width(s);
    const float *answers = state;
    int64_t stride = hidden;
    for (int64_t c = 0; c < width; c += LANES) {
        vec sum[ROWS];
        for (int row = 0; row < ROWS; row++) sum[row] = load(tile->head_bias + c);
        for (int64_t k = 0; k < s->hidden; k++) {
            vec weight = load(tile->head + k * width + c);
            for (int row = 0; row < ROWS; row++) sum[row] += state[row * hidden + k] * weight;
        }
        for (int row = 0; row < ROWS; row++) store(tile->logits + row * width + c, sum[row]);
        answers = tile->logits, stride = width;
    }
    float *out = s->out + ((member * s->batch + first) * s->steps + t) * size;
    for (int64_t row = 0; row < ROWS && first + row < s->batch; row++)
        for (int64_t i = 0; i < size; i++) out[row * s->steps * size + i] = answers[row * stride + i];
}

/* Floats that a tile saves for its gradient, and a tile that saves them into memory of the caller. */
INLINE int64_t kept_size(const Task *s) {
    return (5 * s->steps + 1) * ROWS * padded(s) + in_lines(s->steps * ROWS * s->inputs);
}
INLINE void keep_in(Tile *tile, const Task *s, float *memory) {
    const int64_t block = ROWS * padded(s);
    tile->states = memory;
    tile->kept = tile->states + (s->steps + 1) * block;
    tile->x = tile->kept + s->steps * 4 * block;
}

/* Run a tile through all steps; with a gradient, the values of every step are kept. */
INLINE void run_forward(const Task *s, Tile *tile, const int64_t hidden, int64_t member, int64_t first) {
    const int keep = s->kept != NULL;
    const int64_t inputs = s->inputs, block = ROWS * hidden;
    const int64_t rows = s->state ? (first + ROWS < s->batch ? ROWS : s->batch - first) : 0; /* with a state to carry over */
    float *standing = s->state + (member * s->batch + first) * s->hidden;
    const size_t of_row = (size_t)s->hidden * sizeof(float);
    memset(tile->states, 0, (size_t)block * sizeof(float));
    for (int64_t row = 0; row < rows; row++) memcpy(tile->states + row * hidden, standing + row * s->hidden, of_row);
    for (int64_t t = 0; t < s->steps; t++) {
        float *x = tile->x + (keep ? t * ROWS * inputs : 0), *kept = tile->kept + (keep ? t * 4 * block : 0);
        float *state = tile->states + (keep ? t : t % 2) * block, *after = tile->states + (keep ? t + 1 : (t + 1) % 2) * block;
        for (int64_t row = 0; row < ROWS; row++) { /* rows beyond the batch repeat its last one */
            int64_t index = member * s->batch + (first + row < s->batch ? first + row : s->batch - 1);
            if (s->rows) index = s->rows[index] < 0 ? 0 : s->rows[index];
            memcpy(x + row * inputs, s->features + (index * s->steps + t) * inputs, (size_t)inputs * sizeof(float));
        }
        step_forward(tile, inputs, hidden, x, state, after, kept);
        write_out(s, tile, hidden, after, member, first, t);
    }
    const float *last = tile->states + (keep ? s->steps : s->steps % 2) * block;
    for (int64_t row = 0; row < rows; row++) memcpy(standing + row * s->hidden, last + row * hidden, of_row);
}

/* Whether a tile holds filler rows only; their results are not read. */
static int is_empty(const Task *s, int64_t member, int64_t first) {
    for (int64_t row = first; row < first + ROWS && row < s->batch; row++)
        if (!s->rows || s->rows[member * s->batch + row] >= 0) return 0;
    return 1;
}

EXPORT int labeltide_gru_forward(const Task *s, Work *work) {
    const int64_t tiles = (s->batch + ROWS - 1) / ROWS;
    Tile tile;
    float *memory = make_room(&tile, s, 0);
    if (!memory) return 1;
    int64_t holds = -1;
    for (int64_t item; (item = next_item(work)) < work->items;) {
        const int64_t member = item / tiles, first = item % tiles * ROWS;
        if (is_empty(s, member, first)) continue;
        if (member != holds) take_weights(&tile, s, member, 0);
        holds = member;
        if (s->kept) keep_in(&tile, s, s->kept + item * kept_size(s));
        if (padded(s) == 32) /* the paper's size, known to the compiler */
            run_forward(s, &tile, 32, member, first);
        else
            run_forward(s, &tile, padded(s), member, first);
    }
    release(memory);
    return 0;
}

/* Where each gradient stands in a tile's sums, as the caller reads them. */
typedef struct {
    float *weight_input, *weight_hidden, *bias_input, *bias_hidden, *head, *head_bias;
} Sums;

INLINE Sums place_sums(const Task *s, float *start) {
    const int64_t hidden = padded(s), width = 3 * hidden;
    Sums sums = {.weight_input = start};
    sums.weight_hidden = sums.weight_input + s->inputs * width;
    sums.bias_input = sums.weight_hidden + hidden * width;
    sums.bias_hidden = sums.bias_input + width;
    sums.head = sums.bias_hidden + width; /* (classes, hidden): transposed when it leaves */
    sums.head_bias = sums.head + hidden * s->classes;
    return sums;
}

/* Add the gradient of the output at step t to `carry`, the gradient of the state after it. */
INLINE void take_grad(const Task *s, const Tile *tile, Sums *sums, const int64_t hidden, const float *after, int64_t member,
                      int64_t first, int64_t t) {
    const int64_t size = s->classes ? s->classes : s->hidden;
    for (int64_t row = 0; row < ROWS && first + row < s->batch; row++) {
        const float *grad = s->grad_out + ((member * s->batch + first + row) * s->steps + t) * size;
        float *carry = tile->carry + row * hidden;
        if (!s->classes)
            for (int64_t c = 0; c < size; c++) carry[c] += grad[c];
        for (int64_t j = 0; j < s->classes; j++) {
            const float value = grad[j];
            sums->head_bias[j] += value;
            for (int64_t c = 0; c < hidden; c += LANES) {
                store(carry + c, load(carry + c) + value * load(tile->head_back + j * hidden + c));
                float *sum = sums->head + j * hidden + c;
                store(sum, load(sum) + value * load(after + row * hidden + c));
            }
        }
    }
}

/* The gradients of one tile at one step; `carry` is the gradient of the state after the step, then of that before.
   `gates` gets those of reset, update, mix and new, (ROWS, 4, hidden). */
INLINE void step_backward(const Tile *tile, Sums *sums, const int64_t hidden, const float *before, const float *kept,
                          float *gates) {
    const int64_t block = ROWS * hidden;
    const float *reset = kept, *update = kept + block, *new = kept + 2 * block, *mix = kept + 3 * block;
    float *carry = tile->carry;
    for (int64_t c = 0; c < hidden; c += LANES) {
        vec sum[4] = {{0}};
        for (int row = 0; row < ROWS; row++) {
            const int64_t at = row * hidden + c;
            float *own = gates + row * 4 * hidden + c;
            vec grad = load(carry + at), r = load(reset + at), z = load(update + at), n = load(new + at);
            vec grad_new = grad * (1.0f - z) * (1.0f - n * n);
            vec grad_update = grad * (load(before + at) - n) * z * (1.0f - z);
            vec grad_mix = grad_new * r;
            vec grad_reset = grad_mix * load(mix + at) * (1.0f - r);
            store(own, grad_reset), store(own + hidden, grad_update);
            store(own + 2 * hidden, grad_mix), store(own + 3 * hidden, grad_new);
            store(carry + at, grad * z);
            sum[0] += grad_reset, sum[1] += grad_update, sum[2] += grad_mix, sum[3] += grad_new;
        }
        for (int gate = 0; gate < 3; gate++) {
            float *input = sums->bias_input + gate * hidden + c, *recurrent = sums->bias_hidden + gate * hidden + c;
            store(input, load(input) + sum[gate == 2 ? 3 : gate]);
            store(recurrent, load(recurrent) + sum[gate]);
        }
    }
    for (int64_t c = 0; c < hidden; c += 2 * LANES) {
        vec sum[ROWS][2];
        for (int row = 0; row < ROWS; row++)
            sum[row][0] = load(carry + row * hidden + c), sum[row][1] = load(carry + row * hidden + c + LANES);
        multiply_add(sum, ROWS, gates, 4 * hidden, tile->weight_back + c, hidden, 3 * hidden);
        for (int row = 0; row < ROWS; row++)
            store(carry + row * hidden + c, sum[row][0]), store(carry + row * hidden + c + LANES, sum[row][1]);
    }
}

INLINE void run_backward(const Task *s, Tile *tile, const int64_t hidden, int64_t member, int64_t first) {
    const int64_t inputs = s->inputs, width = 3 * hidden, block = ROWS * hidden;
    Sums sums = place_sums(s, tile->sums);
    memset(tile->carry, 0, (size_t)block * sizeof(float));
    for (int64_t last = s->steps; last > 0; last -= STEPS) {
        const int64_t start = last > STEPS ? last - STEPS : 0, rows = (last - start) * ROWS;
        for (int64_t t = last - 1; t >= start; t--) {
            take_grad(s, tile, &sums, hidden, tile->states + (t + 1) * block, member, first, t);
            step_backward(tile, &sums, hidden, tile->states + t * block, tile->kept + t * 4 * block,
                          tile->gates + (t - start) * 4 * block);
        }
        for (int64_t c = 0; c < width; c += 2 * LANES) {
            const float *share = tile->gates + c, *gate = tile->gates + (c < 2 * hidden ? c : c + hidden);
            outer_add(sums.weight_hidden + c, width, hidden, tile->states + start * block, hidden, share, 4 * hidden, rows);
            outer_add(sums.weight_input + c, width, inputs, tile->x + start * ROWS * inputs, inputs, gate, 4 * hidden, rows);
        }
    }
}

/* Whether the gradient of the output is nonzero; it is zero for filler rows. */
static int has_grad(const Task *s, int64_t member, int64_t first) {
    const int64_t rows = first + ROWS < s->batch ? ROWS : s->batch - first;
    const int64_t size = s->steps * (s->classes ? s->classes : s->hidden);
    const float *grad = s->grad_out + (member * s->batch + first) * size;
    for (int64_t i = 0; i < rows * size; i++)
        if (grad[i] != 0.0f) return 1;
    return 0;
}

/* The gradients of a tile without padding, all parameters concatenated as the caller reads them. */
static void give_sums(const Task *s, float *gradients, Sums sums) {
    const int64_t own = s->hidden, hidden = padded(s);
    copy_gates(gradients, own, sums.weight_input, hidden, s->inputs), gradients += s->inputs * 3 * own;
    copy_gates(gradients, own, sums.weight_hidden, hidden, own), gradients += own * 3 * own;
    copy_gates(gradients, own, sums.bias_input, hidden, 1), gradients += 3 * own;
    copy_gates(gradients, own, sums.bias_hidden, hidden, 1), gradients += 3 * own;
    for (int64_t k = 0; k < own; k++)
        for (int64_t j = 0; j < s->classes; j++) gradients[k * s->classes + j] = sums.head[j * hidden + k];
    memcpy(gradients + own * s->classes, sums.head_bias, (size_t)s->classes * sizeof(float));
}

EXPORT int labeltide_gru_backward(const Task *s, Work *work) {
    const int64_t tiles = (s->batch + ROWS - 1) / ROWS, own = s->hidden, hidden = padded(s);
    const int64_t size = (s->inputs + own + 2) * 3 * own + (own + 1) * s->classes;
    const int64_t inside = (s->inputs + hidden + 2) * 3 * hidden + (hidden + 1) * s->classes;
    Tile tile;
    float *memory = make_room(&tile, s, 1);
    if (!memory) return 1;
    int64_t holds = -1;
    for (int64_t item; (item = next_item(work)) < work->items;) {
        const int64_t member = item / tiles, first = item % tiles * ROWS;
        memset(tile.sums, 0, (size_t)inside * sizeof(float));
        if (has_grad(s, member, first)) {
            if (member != holds) take_weights(&tile, s, member, 1);
            holds = member;
            keep_in(&tile, s, s->kept + item * kept_size(s));
            if (hidden == 32)
                run_backward(s, &tile, 32, member, first);
            else
                run_backward(s, &tile, hidden, member, first);
        }
        give_sums(s, s->gradients + item * size, place_sums(s, tile.sums));
    }
    release(memory);
    return 0;
}
