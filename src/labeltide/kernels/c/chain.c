/* Forward-backward algorithm for hidden Markov models (Rabiner 1989), for many sequences and many models. The reference
   implementation in torch is chain/passes.py.

   An item is a member. ROWS of its sequences run side by side, one in each lane of VECTORS vectors. Vectors are written out:
   gcc 12.2 at -O3 compiles the conditional update of the backward pass, `back = t < length ? flow : back` over lanes, to
   masked loads that all use the mask of the first vector, so sequences of unequal length got wrong results with AVX2.
   Probabilities are normalised at every step, so that no product underflows. */

#include "common.h"
#include <math.h>

#define ROWS 16
#define TINY 1e-30f
#define RARE 1e-6f /* the least rate by which another is divided */
#define VECTORS (ROWS / LANES)
#define EACH(v) for (int v = 0; v < VECTORS; v++)
#define LN2 0.693147180559945309417

typedef struct {
    int64_t members, rows, steps, classes, annotators, groups, points, gaps;
} Shape;

typedef struct {
    const int8_t *labels;    /* (sets, rows, steps, annotators) */
    const int64_t *lengths;  /* (rows,) */
    const int64_t *grid_index; /* (rows, steps), on the clock grid */
    const float *evidence;   /* (sets, rows, steps, classes) or null */
    const int8_t *trusted;   /* (rows, steps) or null */
    const int8_t *jumps;     /* (rows, steps) or null: which gap lies before each step, 0 for none */
    const int64_t *label_of; /* (members,) */
    const int64_t *evidence_of;
    const float *weights; /* (members, rows) */
    const float *start, *transition, *power, *matrices; /* transitions (members, gaps, classes, classes) */
    const float *bursts; /* (members,) or null */
    double *log_likelihood;                 /* (members, rows) */
    float *counts, *starts, *pairs, *slope, *kept; /* as in Expected, zero at first */
    float *posterior;                       /* (members, rows, steps, classes) or null */
} Tensors;

typedef struct {
    Shape sizes;
    Tensors tensors;
} Chains;

/* One annotator's label of a step, for all true labels of it. If the draw of the step before is kept, which happens with
   some probability (bursts), errors persist as far as the rates of both moments allow, with the same label unless that
   has become the true one. The likelihood is rest + offset + slope * again, where `again` is the chance that a kept draw
   gives an error now; `repeat` takes the place of `slope` where the label of the step before was wrong. */
typedef struct {
    float *error, *rest, *offset, *slope, *repeat; /* (classes,), padded to whole vectors */
    const float *there;                   /* Q of the step before, or null where its label is not known */
    int before;                           /* its label */
    float least, inverse;                 /* again = (error - least) * inverse, for one true label of the step before */
} Kept;

/* The buffers of ROWS sequences, each (steps, classes, ROWS) but scale (steps, ROWS), and the transitions to the
   step at hand (classes, classes, ROWS), with `next` zero in lanes that jump over a gap to it. Where errors come in bursts
   also the likelihood for every pair of labels (steps, classes, classes, ROWS), and the share of it in which the draw
   behind the label was kept. `work` has room for five (classes, ROWS), `room` for what all annotators keep. */
typedef struct {
    float *ratio, *likelihood, *filtered, *scale, *evidence, *moves, *pair, *kept, *work, *room;
    Kept *kept_of; /* (annotators,) */
    float next[ROWS];
    int jumped; /* whether a lane jumps to the step at hand */
} Block;

INLINE vec at(const float *p, int v) { return load(p + v * LANES); }
INLINE void put(float *p, int v, vec x) { store(p + v * LANES, x); }
INLINE vec at_least(vec x, float least) { return choose(x > least, x, fill(least)); }
INLINE vec at_most(vec x, float most) { return choose(x < most, x, fill(most)); }

/* The transition matrices to step t of every lane, reloaded only if a lane has a gap now or had one the last time. */
static void read_moves(const Shape *s, const Tensors *d, Block *b, int64_t member, int64_t first, int64_t t) {
    const int64_t size = s->classes * s->classes;
    int8_t jump[ROWS] = {0};
    int any = 0;
    for (int l = 0; d->jumps && l < ROWS && first + l < s->rows; l++)
        any |= jump[l] = t < d->lengths[first + l] ? d->jumps[(first + l) * s->steps + t] : 0;
    if (!any && !b->jumped) return;
    for (int64_t x = 0; x < size; x++)
        for (int l = 0; l < ROWS; l++) b->moves[x * ROWS + l] = d->transition[(member * s->gaps + jump[l]) * size + x];
    for (int l = 0; l < ROWS; l++) b->next[l] = jump[l] ? 0.0f : 1.0f;
    b->jumped = any;
}

INLINE void read_kept(const Kept *kept, const float *here, float bursts, int64_t C, int now) {
    const float share = kept->there ? bursts : 0.0f;
    for (int64_t j = 0; j < C; j++) {
        const float q = here[j * C + now], error = 1.0f - here[j * C + j];
        kept->error[j] = error;
        kept->rest[j] = (1.0f - share) * q;
        kept->offset[j] = 0.0f;
        kept->slope[j] = share * q / (error > RARE ? error : RARE);
        kept->repeat[j] = kept->before == j ? kept->slope[j] : kept->before == now ? share : 0.0f;
    }
    kept->offset[now] = share;
    kept->slope[now] = kept->repeat[now] = -share;
}

/* The likelihood of the labels of step t of one sequence for every pair of true labels, and the share of kept draws. */
static void read_pairs(const Shape *s, const Tensors *d, const Block *b, int64_t member, int64_t row, int64_t t, int l) {
    const int64_t C = s->classes, A = s->annotators, size = s->points * C * C, padded = (C + LANES - 1) / LANES * LANES;
    const int8_t *now = d->labels + ((d->label_of[member] * s->rows + row) * s->steps + t) * A, *before = now - A;
    const int64_t *point = d->grid_index + row * s->steps + t;
    const int known = d->trusted ? d->trusted[row * s->steps + t] : -1, jump = d->jumps && d->jumps[row * s->steps + t];
    int64_t labelled = 0;
    for (int64_t a = 0; a < A; a++) {
        if (now[a] < 0) continue;
        const float *Q = d->matrices + (member * s->groups + (s->groups > 1 ? a : 0)) * size;
        float *own = b->room + 5 * labelled * padded;
        b->kept_of[labelled] = (Kept){own, own + padded, own + 2 * padded, own + 3 * padded, own + 4 * padded,
                                      jump || before[a] < 0 ? NULL : Q + point[-1] * C * C, before[a], 0.0f, 0.0f};
        read_kept(b->kept_of + labelled++, Q + point[0] * C * C, d->bursts[member], C, now[a]);
    }
    for (int64_t i = 0; i < C; i++) {
        for (int64_t a = 0; a < labelled; a++) {
            Kept *kept = b->kept_of + a;
            const float error = kept->there ? 1.0f - kept->there[i * C + i] : 0.0f;
            const float rate = kept->before == i ? 1.0f - error : error;
            kept->least = kept->before == i ? error : 0.0f;
            kept->inverse = 1.0f / (rate > RARE ? rate : RARE);
        }
        float *pair = b->pair + (t * C + i) * C * ROWS + l, *share = b->kept + (t * C + i) * C * ROWS + l;
        for (int64_t first = 0; first < C; first += LANES) {
            vec value = fill(1.0f), shares = fill(0.0f);
            for (int64_t a = 0; a < labelled; a++) {
                const Kept *kept = b->kept_of + a;
                const vec again = (load(kept->error + first) - kept->least) * kept->inverse;
                const float *slope = kept->before == i ? kept->slope : kept->repeat;
                const vec same = load(kept->offset + first) + at_least(at_most(again, 1.0f), 0.0f) * load(slope + first);
                const vec total = load(kept->rest + first) + same;
                value *= total;
                shares += same * reciprocal(at_least(total, TINY));
            }
            value = at_least(value, TINY);
            for (int64_t j = first; j < C && j < first + LANES; j++) {
                pair[j * ROWS] = known >= 0 && j != known ? TINY : value[j - first];
                share[j * ROWS] = shares[j - first];
            }
        }
    }
}

/* The same for all steps; without a step before, the likelihood of the label alone. */
static void read_all_pairs(const Shape *s, const Tensors *d, const Block *b, int64_t member, int64_t first) {
    const int64_t C = s->classes;
    for (int64_t t = 0; t < s->steps; t++) {
        for (int l = 0; l < ROWS; l++) {
            const int64_t row = first + l < s->rows ? first + l : s->rows - 1;
            if (t > 0 && t < d->lengths[row]) {
                read_pairs(s, d, b, member, row, t, l);
                continue;
            }
            for (int64_t x = 0; x < C * C; x++) {
                b->pair[(t * C * C + x) * ROWS + l] = b->likelihood[(t * C + x % C) * ROWS + l];
                b->kept[(t * C * C + x) * ROWS + l] = 0.0f;
            }
        }
    }
}

static void read_block(const Shape *s, const Tensors *d, const Block *b, int64_t member, int64_t first) {
    const int64_t C = s->classes, T = s->steps, A = s->annotators;
    const float k = d->power[member];
    for (int l = 0; l < ROWS; l++) {
        const int64_t row = first + l < s->rows ? first + l : s->rows - 1;
        const int8_t *labels = d->labels + (d->label_of[member] * s->rows + row) * T * A;
        for (int64_t t = 0; t < T; t++) {
            float *likelihood = b->likelihood + t * C * ROWS + l, *ratio = b->ratio + t * C * ROWS + l;
            const int real = t < d->lengths[row];
            for (int64_t i = 0; i < C; i++)
                likelihood[i * ROWS] = 1.0f, ratio[i * ROWS] = b->evidence[(t * C + i) * ROWS + l] = 0.0f;
            if (!real) continue;
            const int64_t point = d->grid_index[row * T + t];
            for (int64_t a = 0; a < A; a++) {
                const int recorded = labels[t * A + a];
                if (recorded < 0) continue;
                const int64_t group = s->groups > 1 ? a : 0;
                const float *Q = d->matrices + ((member * s->groups + group) * s->points + point) * C * C + recorded;
                for (int64_t i = 0; i < C; i++) likelihood[i * ROWS] *= Q[i * C];
            }
            const int known = d->trusted ? d->trusted[row * T + t] : -1;
            for (int64_t i = 0; i < C; i++) {
                float value = known >= 0 && i != known ? 0.0f : likelihood[i * ROWS];
                likelihood[i * ROWS] = value > TINY ? value : TINY;
            }
            if (!d->evidence) continue;
            const float *e = d->evidence + ((d->evidence_of[member] * s->rows + row) * T + t) * C;
            float top = -INFINITY;
            for (int64_t i = 0; i < C; i++) {
                b->evidence[(t * C + i) * ROWS + l] = e[i];
                top = k * e[i] > top ? k * e[i] : top;
            }
            for (int64_t i = 0; i < C; i++) ratio[i * ROWS] = k * e[i] - top;
        }
    }
    if (b->pair) read_all_pairs(s, d, b, member, first);
    for (int64_t x = 0; x < T * C * ROWS; x += LANES)
        store(b->ratio + x, exponential(bounded(load(b->ratio + x), 80.0f)));
}

/* Filtered probabilities of every step; returns in `log_likelihood` the sum over real steps. The product of the scales is
   kept as a mantissa in [1, 2) and a power of two, so that it neither vanishes nor needs a logarithm at every step. */
static void run_forward(const Shape *s, const Tensors *d, Block *b, int64_t member, int64_t first, const float *lengths,
                        double *log_likelihood) {
    const int64_t C = s->classes, T = s->steps;
    const float *start = d->start + member * C, *moves = b->moves;
    float *joint = b->work, *share = b->work + C * ROWS;
    vec mantissa[VECTORS];
    ivec power[VECTORS];
    EACH(v) mantissa[v] = fill(1.0f), power[v] = (ivec){0};
    for (int64_t t = 0; t < T; t++) {
        const float *ratio = b->ratio + t * C * ROWS, *likelihood = b->likelihood + t * C * ROWS;
        float *filtered = b->filtered + t * C * ROWS;
        vec total[VECTORS];
        if (t == 0) {
            EACH(v) total[v] = fill(TINY);
            for (int64_t j = 0; j < C; j++) EACH(v) total[v] += start[j] * at(ratio + j * ROWS, v);
            EACH(v) total[v] = reciprocal(total[v]);
            for (int64_t j = 0; j < C; j++)
                EACH(v) put(joint + j * ROWS, v, start[j] * at(ratio + j * ROWS, v) * total[v] * at(likelihood + j * ROWS, v));
        } else {
            const float *before = filtered - C * ROWS;
            read_moves(s, d, b, member, first, t);
            for (int64_t i = 0; i < C; i++) {
                EACH(v) total[v] = fill(TINY);
                for (int64_t j = 0; j < C; j++)
                    EACH(v) total[v] += at(moves + (i * C + j) * ROWS, v) * at(ratio + j * ROWS, v);
                EACH(v) put(share + i * ROWS, v, at(before + i * ROWS, v) * reciprocal(total[v]));
            }
            for (int64_t j = 0; j < C; j++) {
                vec sum[VECTORS];
                EACH(v) sum[v] = fill(0.0f);
                for (int64_t i = 0; i < C; i++) {
                    const float *pair = b->pair ? b->pair + ((t * C + i) * C + j) * ROWS : likelihood + j * ROWS;
                    EACH(v) sum[v] += at(share + i * ROWS, v) * at(moves + (i * C + j) * ROWS, v) * at(pair, v);
                }
                EACH(v) put(joint + j * ROWS, v, sum[v] * at(ratio + j * ROWS, v));
            }
        }
        EACH(v) total[v] = fill(0.0f);
        for (int64_t j = 0; j < C; j++) EACH(v) total[v] += at(joint + j * ROWS, v);
        EACH(v) {
            const vec scale = at_least(total[v], TINY), inverse = reciprocal(scale);
            for (int64_t j = 0; j < C; j++) put(filtered + j * ROWS, v, at(joint + j * ROWS, v) * inverse);
            put(b->scale + t * ROWS, v, scale);
            const ivec bits = (ivec)(mantissa[v] * choose(fill((float)t) < at(lengths, v), scale, fill(1.0f)));
            power[v] += (bits >> 23) - 127;
            mantissa[v] = (vec)((bits & 0x7fffff) | 0x3f800000);
        }
    }
    EACH(v) for (int l = 0; l < LANES; l++)
        log_likelihood[v * LANES + l] = (double)power[v][l] * LN2 + log((double)mantissa[v][l]);
}

/* The sums of one member while its blocks are run through: lanes are added up at the end. */
typedef struct {
    float *pairs, *exposure, *starts, *start_exposure; /* (classes [, classes], ROWS) */
    float slope[ROWS], curvature[ROWS], kept[ROWS];
} Sums;

INLINE void add_to(float *sum, int v, vec x) { put(sum, v, at(sum, v) + x); }

/* The posterior of one step, and what it adds to the counts of recorded labels. */
static void count_step(const Shape *s, const Tensors *d, const float *gamma, const float *weights, int64_t member, int64_t first,
                       int64_t t) {
    const int64_t C = s->classes, T = s->steps, A = s->annotators;
    for (int l = 0; l < ROWS && first + l < s->rows; l++) {
        const int64_t row = first + l;
        if (t >= d->lengths[row]) continue;
        if (d->posterior) {
            float *out = d->posterior + ((member * s->rows + row) * T + t) * C;
            for (int64_t i = 0; i < C; i++) out[i] = gamma[i * ROWS + l];
        }
        if (weights[l] == 0.0f) continue;
        const int8_t *labels = d->labels + ((d->label_of[member] * s->rows + row) * T + t) * A;
        for (int64_t a = 0; a < A; a++) {
            if (labels[a] < 0) continue;
            const int64_t group = s->groups > 1 ? a : 0;
            float *counts = d->counts +
                            ((member * s->groups + group) * s->points + d->grid_index[row * T + t]) * C * C + labels[a];
            for (int64_t i = 0; i < C; i++) counts[i * C] += weights[l] * gamma[i * ROWS + l];
        }
    }
}

/* What the first step adds to the sums. */
static void end_backward(const Shape *s, const Tensors *d, const Block *b, Sums *sums, const float *start, const float *gamma,
                         const vec *w) {
    const int64_t C = s->classes;
    vec inverse[VECTORS];
    EACH(v) inverse[v] = fill(TINY);
    for (int64_t j = 0; j < C; j++) EACH(v) inverse[v] += start[j] * at(b->ratio + j * ROWS, v);
    EACH(v) inverse[v] = reciprocal(inverse[v]);
    for (int64_t j = 0; j < C; j++) EACH(v) {
        add_to(sums->starts + j * ROWS, v, w[v] * at(gamma + j * ROWS, v));
        add_to(sums->start_exposure + j * ROWS, v, w[v] * at(b->ratio + j * ROWS, v) * inverse[v]);
    }
    if (!d->evidence) return;
    EACH(v) {
        vec average = fill(0.0f), square = fill(0.0f);
        for (int64_t j = 0; j < C; j++) {
            const vec value = at(b->evidence + j * ROWS, v), part = start[j] * at(b->ratio + j * ROWS, v) * inverse[v];
            average += part * value;
            square += part * value * value;
        }
        add_to(sums->slope, v, -w[v] * average);
        add_to(sums->curvature, v, w[v] * (square - average * average));
    }
}

static void run_backward(const Shape *s, const Tensors *d, Block *b, Sums *sums, int64_t member, int64_t first,
                         const float *weights, const float *lengths) {
    const int64_t C = s->classes;
    const float *moves = b->moves;
    float *back = b->work, *gamma = back + C * ROWS, *ahead = gamma + C * ROWS, *flow = ahead + C * ROWS;
    for (int64_t j = 0; j < C; j++) EACH(v) put(back + j * ROWS, v, fill(1.0f));
    for (int64_t t = s->steps - 1; t >= 0; t--) {
        const float *ratio = b->ratio + t * C * ROWS, *likelihood = b->likelihood + t * C * ROWS;
        const float *filtered = b->filtered + t * C * ROWS, *evidence = b->evidence + t * C * ROWS;
        ivec real[VECTORS];
        vec w[VECTORS], inverse_scale[VECTORS];
        EACH(v) real[v] = fill((float)t) < at(lengths, v), w[v] = choose(real[v], at(weights, v), fill(0.0f));
        for (int64_t j = 0; j < C; j++)
            EACH(v) put(gamma + j * ROWS, v, at(filtered + j * ROWS, v) * at(back + j * ROWS, v));
        count_step(s, d, gamma, weights, member, first, t);
        if (d->evidence)
            for (int64_t j = 0; j < C; j++)
                EACH(v) add_to(sums->slope, v, w[v] * at(gamma + j * ROWS, v) * at(evidence + j * ROWS, v));
        if (t == 0) {
            end_backward(s, d, b, sums, d->start + member * C, gamma, w);
            return;
        }
        const float *before = filtered - C * ROWS;
        read_moves(s, d, b, member, first, t);
        EACH(v) inverse_scale[v] = reciprocal(at(b->scale + t * ROWS, v));
        for (int64_t i = 0; i < C; i++) {
            const float *move = moves + i * C * ROWS;
            for (int64_t j = 0; j < C && (i == 0 || b->pair); j++) {
                const float *pair = b->pair ? b->pair + ((t * C + i) * C + j) * ROWS : likelihood + j * ROWS;
                EACH(v) put(ahead + j * ROWS, v, at(ratio + j * ROWS, v) * at(pair, v) * at(back + j * ROWS, v) * inverse_scale[v]);
            }
            EACH(v) {
                vec total = fill(TINY), onward = fill(0.0f);
                for (int64_t j = 0; j < C; j++) {
                    total += at(move + j * ROWS, v) * at(ratio + j * ROWS, v);
                    onward += at(move + j * ROWS, v) * at(ahead + j * ROWS, v);
                }
                const vec inverse = reciprocal(total), next = at(b->next, v);
                onward *= inverse;
                put(flow + i * ROWS, v, onward);
                const vec share = w[v] * at(before + i * ROWS, v) * inverse;
                const vec now = share * onward; /* the posterior of i at the step before, over the normaliser of its moves */
                for (int64_t j = 0; j < C; j++) {
                    add_to(sums->pairs + (i * C + j) * ROWS, v, next * share * at(ahead + j * ROWS, v));
                    add_to(sums->exposure + (i * C + j) * ROWS, v, next * now * at(ratio + j * ROWS, v));
                }
                for (int64_t j = 0; b->pair && j < C; j++)
                    add_to(sums->kept, v, share * at(move + j * ROWS, v) * at(ahead + j * ROWS, v) *
                                              at(b->kept + ((t * C + i) * C + j) * ROWS, v));
                if (!d->evidence) continue;
                vec average = fill(0.0f), square = fill(0.0f);
                for (int64_t j = 0; j < C; j++) {
                    const vec value = at(evidence + j * ROWS, v), part = at(move + j * ROWS, v) * at(ratio + j * ROWS, v);
                    average += part * value;
                    square += part * value * value;
                }
                add_to(sums->slope, v, -now * average);
                add_to(sums->curvature, v, now * (square - average * average * inverse));
            }
        }
        for (int64_t i = 0; i < C; i++)
            EACH(v) put(back + i * ROWS, v, choose(real[v], at(flow + i * ROWS, v), at(back + i * ROWS, v)));
    }
}

static double lanes_of(const float *values) {
    double sum = 0.0;
    for (int l = 0; l < ROWS; l++) sum += values[l];
    return sum;
}

static void add_up(const Shape *s, const Tensors *d, const Sums *sums, int64_t member) {
    const int64_t C = s->classes;
    for (int64_t i = 0; i < C; i++) {
        for (int64_t j = 0; j < C; j++) {
            const double moved = lanes_of(sums->pairs + (i * C + j) * ROWS);
            d->pairs[(member * 2 * C + i) * C + j] = (float)(moved * d->transition[(member * s->gaps * C + i) * C + j]);
            d->pairs[((member * 2 + 1) * C + i) * C + j] = (float)lanes_of(sums->exposure + (i * C + j) * ROWS);
        }
        d->starts[member * 2 * C + i] = (float)lanes_of(sums->starts + i * ROWS);
        d->starts[(member * 2 + 1) * C + i] = (float)lanes_of(sums->start_exposure + i * ROWS);
    }
    d->slope[member * 2] = (float)lanes_of(sums->slope);
    d->slope[member * 2 + 1] = (float)lanes_of(sums->curvature);
    d->kept[member] = (float)lanes_of(sums->kept);
}

EXPORT int labeltide_chain(const Chains *chains, Work *work) {
    const Shape *s = &chains->sizes;
    const Tensors *d = &chains->tensors;
    const int64_t C = s->classes, T = s->steps, size = T * C * ROWS, n_totals = (2 * C * C + 2 * C) * ROWS;
    float *memory = room(4 * size + (T + C * C + 5 * C) * ROWS + n_totals);
    const int64_t padded = (C + LANES - 1) / LANES * LANES;
    float *pairs = d->bursts ? room(2 * size * C + 5 * s->annotators * padded) : NULL;
    Kept *kept_of = d->bursts ? (void *)room(s->annotators * (int64_t)(sizeof(Kept) / sizeof(float))) : NULL;
    if (!memory || (d->bursts && (!pairs || !kept_of))) {
        release(kept_of);
        release(pairs);
        release(memory);
        return 1;
    }
    float *scale = memory + 4 * size, *moves = scale + T * ROWS, *own = moves + C * C * ROWS, *totals = own + 5 * C * ROWS;
    Block block = {.ratio = memory, .likelihood = memory + size, .filtered = memory + 2 * size, .evidence = memory + 3 * size,
                   .scale = scale, .moves = moves, .work = own, .room = pairs ? pairs + 2 * size * C : NULL,
                   .kept_of = kept_of};
    Sums sums = {.pairs = totals, .exposure = totals + C * C * ROWS, .starts = totals + 2 * C * C * ROWS,
                 .start_exposure = totals + (2 * C * C + C) * ROWS};
    if (pairs) memset(block.room, 0, (size_t)(4 * s->annotators * padded) * sizeof(float)); /* lanes beyond the classes */
    for (int64_t member; (member = next_item(work)) < s->members;) {
        memset(totals, 0, (size_t)n_totals * sizeof(float));
        memset(sums.slope, 0, sizeof sums.slope);
        memset(sums.curvature, 0, sizeof sums.curvature);
        memset(sums.kept, 0, sizeof sums.kept);
        const int has_bursts = d->bursts && d->bursts[member] > 0.0f;
        block.pair = has_bursts ? pairs : NULL;
        block.kept = has_bursts ? pairs + size * C : NULL;
        block.jumped = 1; /* the transitions of the member before are still there */
        for (int64_t row = 0; row < s->rows; row += ROWS) {
            float weights[ROWS], lengths[ROWS], weight = 0.0f;
            double log_likelihood[ROWS];
            for (int l = 0; l < ROWS; l++) {
                const int there = row + l < s->rows;
                weights[l] = there ? d->weights[member * s->rows + row + l] : 0.0f;
                lengths[l] = (float)(there ? d->lengths[row + l] : d->lengths[s->rows - 1]);
                weight += weights[l];
            }
            read_block(s, d, &block, member, row);
            run_forward(s, d, &block, member, row, lengths, log_likelihood);
            for (int l = 0; l < ROWS && row + l < s->rows; l++)
                d->log_likelihood[member * s->rows + row + l] = log_likelihood[l];
            if (weight > 0.0f || d->posterior) run_backward(s, d, &block, &sums, member, row, weights, lengths);
        }
        add_up(s, d, &sums, member);
    }
    release(memory);
    release(pairs);
    release(kept_of);
    return 0;
}
