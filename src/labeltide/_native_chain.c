/* Forward and backward over label chains, many sequences and many chains at once. The equations are those of
   chain/plain.py, which does the same with torch where this is not built.

   An item is a member. ROWS of its sequences run side by side, one in each lane of the loops over `l`, which the compiler
   turns into vectors. Everything is scaled step by step, so that no product of probabilities can vanish. */

#include "_native.h"
#include <math.h>

#define ROWS 16
#define TINY 1e-30f
#define AT_ONCE 8 /* steps whose scales are multiplied before one logarithm is taken: TINY^8 is still a double */
#define LANES_OF(l) for (int l = 0; l < ROWS; l++)

typedef struct {
    int64_t members, rows, steps, classes, annotators, groups, points, gaps;
} Shape;

typedef struct {
    const int8_t *labels;    /* (sets, rows, steps, annotators) */
    const int64_t *lengths;  /* (rows,) */
    const int64_t *places;   /* (rows, steps), on the clock grid */
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

/* What the steps of ROWS sequences hold, each (steps, classes, ROWS) but scale (steps, ROWS), and the transitions to the
   step at hand (classes, classes, ROWS), with `next` zero in lanes that jump over a gap to it; where errors come in bursts also the likelihood for every pair of labels (steps, classes, classes, ROWS), and the share of it in which the
   draw behind the label was kept. */
typedef struct {
    float *ratio, *likelihood, *filtered, *scale, *evidence, *moves, *pair, *kept;
    float next[ROWS];
    int jumped; /* whether a lane jumps to the step at hand */
} Block;

/* The likelihood of one annotator's label for true labels i, then j, if the draw of the step before is kept with some
   probability: an error goes on as far as the rates of both moments allow, so that every moment keeps its own Q. */
static inline float with_bursts(float bursts, float q, float error, float before, int was_wrong, int is_right, float *kept) {
    const float tiny = 1e-6f;
    float again = was_wrong ? error / (before > tiny ? before : tiny)
                            : (error - before) / (1.0f - before > tiny ? 1.0f - before : tiny);
    again = again < 0.0f ? 0.0f : again > 1.0f ? 1.0f : again;
    const float same = bursts * (is_right ? 1.0f - again : again * q / (error > tiny ? error : tiny));
    const float total = (1.0f - bursts) * q + same;
    *kept += same / (total > TINY ? total : TINY);
    return total;
}

/* The transitions to step t, lane by lane: filled anew only where a lane jumps, or did so the last time. */
static void read_moves(const Shape *s, const Tensors *d, Block *b, int64_t member, int64_t first, int64_t t) {
    const int64_t size = s->classes * s->classes;
    int8_t jump[ROWS] = {0};
    int any = 0;
    for (int l = 0; d->jumps && l < ROWS && first + l < s->rows; l++)
        any |= jump[l] = t < d->lengths[first + l] ? d->jumps[(first + l) * s->steps + t] : 0;
    if (!any && !b->jumped) return;
    for (int64_t x = 0; x < size; x++)
        LANES_OF(l) b->moves[x * ROWS + l] = d->transition[(member * s->gaps + jump[l]) * size + x];
    LANES_OF(l) b->next[l] = jump[l] ? 0.0f : 1.0f;
    b->jumped = any;
}

static void read_pairs(const Shape *s, const Tensors *d, const Block *b, int64_t member, int64_t row, int64_t t, int l) {
    const int64_t C = s->classes, A = s->annotators, size = s->points * C * C;
    const int8_t *now = d->labels + ((d->label_of[member] * s->rows + row) * s->steps + t) * A, *before = now - A;
    const int known = d->trusted ? d->trusted[row * s->steps + t] : -1;
    const int jump = d->jumps && d->jumps[row * s->steps + t];
    for (int64_t i = 0; i < C; i++) {
        for (int64_t j = 0; j < C; j++) {
            float value = known >= 0 && j != known ? 0.0f : 1.0f, kept = 0.0f;
            for (int64_t a = 0; a < A; a++) {
                if (now[a] < 0) continue;
                const float *Q = d->matrices + (member * s->groups + (s->groups > 1 ? a : 0)) * size;
                const float *here = Q + d->places[row * s->steps + t] * C * C;
                const float *there = Q + d->places[row * s->steps + t - 1] * C * C;
                const float q = here[j * C + now[a]];
                value *= jump || before[a] < 0 ? q
                                               : with_bursts(d->bursts[member], q, 1.0f - here[j * C + j],
                                                             1.0f - there[i * C + i], before[a] != i, now[a] == j, &kept);
            }
            const int64_t place = ((t * C + i) * C + j) * ROWS + l;
            b->pair[place] = value > TINY ? value : TINY;
            b->kept[place] = kept;
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
            const int64_t place = d->places[row * T + t];
            for (int64_t a = 0; a < A; a++) {
                const int recorded = labels[t * A + a];
                if (recorded < 0) continue;
                const int64_t group = s->groups > 1 ? a : 0;
                const float *Q = d->matrices + ((member * s->groups + group) * s->points + place) * C * C + recorded;
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
        for (int64_t t = 0; b->pair && t < T; t++) {
            if (t > 0 && t < d->lengths[row]) {
                read_pairs(s, d, b, member, row, t, l);
            } else {
                for (int64_t x = 0; x < C * C; x++) {
                    b->pair[(t * C * C + x) * ROWS + l] = b->likelihood[(t * C + x % C) * ROWS + l];
                    b->kept[(t * C * C + x) * ROWS + l] = 0.0f;
                }
            }
        }
    }
    for (int64_t x = 0; x < T * C * ROWS; x += LANES)
        store(b->ratio + x, exponential(bounded(load(b->ratio + x), 80.0f)));
}

/* Filtered probabilities of every step; returns in `log_likelihood` the sum over real steps. */
static void run_forward(const Shape *s, const Tensors *d, Block *b, int64_t member, int64_t first, const float *lengths,
                        double *log_likelihood) {
    const int64_t C = s->classes, T = s->steps;
    const float *start = d->start + member * C, *moves = b->moves;
    float prior[C][ROWS], share[C][ROWS];
    double product[ROWS];
    LANES_OF(l) product[l] = 1.0;
    for (int64_t t = 0; t < T; t++) {
        const float *ratio = b->ratio + t * C * ROWS, *likelihood = b->likelihood + t * C * ROWS;
        float *filtered = b->filtered + t * C * ROWS, total[ROWS];
        if (t == 0) {
            LANES_OF(l) total[l] = TINY;
            for (int64_t j = 0; j < C; j++) LANES_OF(l) {
                prior[j][l] = start[j] * ratio[j * ROWS + l];
                total[l] += prior[j][l];
            }
            for (int64_t j = 0; j < C; j++) LANES_OF(l) prior[j][l] /= total[l];
        } else {
            const float *before = filtered - C * ROWS;
            read_moves(s, d, b, member, first, t);
            for (int64_t i = 0; i < C; i++) {
                LANES_OF(l) total[l] = TINY;
                for (int64_t j = 0; j < C; j++) 
                    LANES_OF(l) total[l] += moves[(i * C + j) * ROWS + l] * ratio[j * ROWS + l];
                LANES_OF(l) share[i][l] = before[i * ROWS + l] / total[l];
            }
            for (int64_t j = 0; j < C; j++) {
                LANES_OF(l) prior[j][l] = 0.0f;
                for (int64_t i = 0; i < C; i++) {
                    const float *pair = b->pair ? b->pair + ((t * C + i) * C + j) * ROWS : likelihood + j * ROWS;
                    LANES_OF(l) prior[j][l] += share[i][l] * moves[(i * C + j) * ROWS + l] * pair[l];
                }
                LANES_OF(l) prior[j][l] *= ratio[j * ROWS + l];
            }
        }
        if (t == 0)
            for (int64_t j = 0; j < C; j++) LANES_OF(l) prior[j][l] *= likelihood[j * ROWS + l];
        LANES_OF(l) total[l] = 0.0f;
        for (int64_t j = 0; j < C; j++) LANES_OF(l) total[l] += prior[j][l];
        LANES_OF(l) total[l] = total[l] > TINY ? total[l] : TINY;
        for (int64_t j = 0; j < C; j++) LANES_OF(l) filtered[j * ROWS + l] = prior[j][l] / total[l];
        LANES_OF(l) b->scale[t * ROWS + l] = total[l];
        LANES_OF(l) product[l] *= t < lengths[l] ? total[l] : 1.0f;
        if (t % AT_ONCE == AT_ONCE - 1 || t == T - 1)
            LANES_OF(l) log_likelihood[l] += log(product[l]), product[l] = 1.0;
    }
}

/* The sums of one member while its blocks are run through: lanes are added up at the end. */
typedef struct {
    float *pairs, *exposure, *starts, *start_exposure; /* (classes [, classes], ROWS) */
    float slope[ROWS], curvature[ROWS], kept[ROWS];
} Sums;

static void run_backward(const Shape *s, const Tensors *d, Block *b, Sums *sums, int64_t member, int64_t first,
                         const float *weights, const float *lengths) {
    const int64_t C = s->classes, T = s->steps, A = s->annotators;
    const float *moves = b->moves, *start = d->start + member * C;
    float back[C][ROWS], gamma[C][ROWS], ahead[C][ROWS], share[C][ROWS], flow[C][ROWS], w[ROWS];
    for (int64_t j = 0; j < C; j++) LANES_OF(l) back[j][l] = 1.0f;
    for (int64_t t = T - 1; t >= 0; t--) {
        const float *ratio = b->ratio + t * C * ROWS, *likelihood = b->likelihood + t * C * ROWS;
        const float *filtered = b->filtered + t * C * ROWS, *e = b->evidence + t * C * ROWS;
        LANES_OF(l) w[l] = t < lengths[l] ? weights[l] : 0.0f;
        for (int64_t j = 0; j < C; j++) LANES_OF(l) gamma[j][l] = filtered[j * ROWS + l] * back[j][l];
        for (int l = 0; l < ROWS && first + l < s->rows; l++) {
            const int64_t row = first + l;
            if (t >= d->lengths[row]) continue;
            if (d->posterior) {
                float *out = d->posterior + ((member * s->rows + row) * T + t) * C;
                for (int64_t i = 0; i < C; i++) out[i] = gamma[i][l];
            }
            if (w[l] == 0.0f) continue;
            const int8_t *labels = d->labels + ((d->label_of[member] * s->rows + row) * T + t) * A;
            for (int64_t a = 0; a < A; a++) {
                if (labels[a] < 0) continue;
                const int64_t group = s->groups > 1 ? a : 0;
                float *counts = d->counts +
                                ((member * s->groups + group) * s->points + d->places[row * T + t]) * C * C + labels[a];
                for (int64_t i = 0; i < C; i++) counts[i * C] += w[l] * gamma[i][l];
            }
        }
        if (d->evidence)
            for (int64_t j = 0; j < C; j++) LANES_OF(l) sums->slope[l] += w[l] * gamma[j][l] * e[j * ROWS + l];
        if (t == 0) {
            float total[ROWS], average[ROWS], square[ROWS];
            LANES_OF(l) total[l] = TINY, average[l] = 0.0f, square[l] = 0.0f;
            for (int64_t j = 0; j < C; j++) LANES_OF(l) total[l] += start[j] * ratio[j * ROWS + l];
            for (int64_t j = 0; j < C; j++) LANES_OF(l) {
                sums->starts[j * ROWS + l] += w[l] * gamma[j][l];
                sums->start_exposure[j * ROWS + l] += w[l] * ratio[j * ROWS + l] / total[l];
            }
            if (!d->evidence) break;
            for (int64_t j = 0; j < C; j++) LANES_OF(l) {
                const float part = start[j] * ratio[j * ROWS + l] / total[l], value = e[j * ROWS + l];
                average[l] += part * value;
                square[l] += part * value * value;
            }
            LANES_OF(l) sums->slope[l] -= w[l] * average[l];
            LANES_OF(l) sums->curvature[l] += w[l] * (square[l] - average[l] * average[l]);
            break;
        }
        const float *before = filtered - C * ROWS;
        read_moves(s, d, b, member, first, t);
        for (int64_t i = 0; i < C; i++) {
            float total[ROWS], average[ROWS], square[ROWS];
            for (int64_t j = 0; j < C && (i == 0 || b->pair); j++) {
                const float *pair = b->pair ? b->pair + ((t * C + i) * C + j) * ROWS : likelihood + j * ROWS;
                LANES_OF(l) ahead[j][l] = ratio[j * ROWS + l] * pair[l] * back[j][l] / b->scale[t * ROWS + l];
            }
            LANES_OF(l) total[l] = TINY, flow[i][l] = 0.0f;
            for (int64_t j = 0; j < C; j++) LANES_OF(l) {
                total[l] += moves[(i * C + j) * ROWS + l] * ratio[j * ROWS + l];
                flow[i][l] += moves[(i * C + j) * ROWS + l] * ahead[j][l];
            }
            LANES_OF(l) share[i][l] = before[i * ROWS + l] / total[l];
            float now[ROWS]; /* the posterior of i at the step before, over the normaliser of its moves */
            LANES_OF(l) now[l] = w[l] * share[i][l] * flow[i][l] / total[l];
            for (int64_t j = 0; j < C; j++) LANES_OF(l) {
                sums->pairs[(i * C + j) * ROWS + l] += b->next[l] * w[l] * share[i][l] * ahead[j][l];
                sums->exposure[(i * C + j) * ROWS + l] += b->next[l] * now[l] * ratio[j * ROWS + l];
            }
            for (int64_t j = 0; b->pair && j < C; j++) LANES_OF(l) {
                const float both = w[l] * share[i][l] * moves[(i * C + j) * ROWS + l] * ahead[j][l];
                sums->kept[l] += both * b->kept[((t * C + i) * C + j) * ROWS + l];
            }
            if (d->evidence) {
                LANES_OF(l) average[l] = 0.0f, square[l] = 0.0f;
                for (int64_t j = 0; j < C; j++) LANES_OF(l) {
                    const float part = moves[(i * C + j) * ROWS + l] * ratio[j * ROWS + l], value = e[j * ROWS + l];
                    average[l] += part * value;
                    square[l] += part * value * value;
                }
                LANES_OF(l) sums->slope[l] -= now[l] * average[l];
                LANES_OF(l) sums->curvature[l] += now[l] * (square[l] - average[l] * average[l] / total[l]);
            }
            LANES_OF(l) flow[i][l] /= total[l];
        }
        for (int64_t i = 0; i < C; i++) LANES_OF(l) back[i][l] = t < lengths[l] ? flow[i][l] : back[i][l];
    }
}

static void add_up(const Shape *s, const Tensors *d, const Sums *sums, int64_t member) {
    const int64_t C = s->classes;
    for (int64_t i = 0; i < C; i++) {
        for (int64_t j = 0; j < C; j++) {
            double pairs = 0.0, exposure = 0.0;
            LANES_OF(l) pairs += sums->pairs[(i * C + j) * ROWS + l];
            LANES_OF(l) exposure += sums->exposure[(i * C + j) * ROWS + l];
            d->pairs[(member * 2 * C + i) * C + j] = (float)(pairs * d->transition[(member * s->gaps * C + i) * C + j]);
            d->pairs[((member * 2 + 1) * C + i) * C + j] = (float)exposure;
        }
        double starts = 0.0, exposure = 0.0;
        LANES_OF(l) starts += sums->starts[i * ROWS + l];
        LANES_OF(l) exposure += sums->start_exposure[i * ROWS + l];
        d->starts[member * 2 * C + i] = (float)starts;
        d->starts[(member * 2 + 1) * C + i] = (float)exposure;
    }
    double slope = 0.0, curvature = 0.0;
    LANES_OF(l) slope += sums->slope[l], curvature += sums->curvature[l];
    d->slope[member * 2] = (float)slope;
    d->slope[member * 2 + 1] = (float)curvature;
    double kept = 0.0;
    LANES_OF(l) kept += sums->kept[l];
    d->kept[member] = (float)kept;
}

int labeltide_chain(const Chains *chains, Work *work) {
    const Shape *s = &chains->sizes;
    const Tensors *d = &chains->tensors;
    const int64_t C = s->classes, T = s->steps, size = T * C * ROWS;
    float *memory = malloc((size_t)(4 * size + (T + C * C) * ROWS) * sizeof(float));
    float *totals = malloc((size_t)(2 * C * C + 2 * C) * ROWS * sizeof(float));
    float *pairs = d->bursts ? malloc((size_t)(2 * size * C) * sizeof(float)) : NULL;
    if (!memory || !totals || (d->bursts && !pairs)) {
        free(pairs);
        free(memory);
        free(totals);
        return 1;
    }
    Block block = {memory, memory + size, memory + 2 * size, memory + 4 * size, memory + 3 * size,
                   memory + 4 * size + T * ROWS, NULL, NULL, {0}, 0};
    Sums sums = {totals, totals + C * C * ROWS, totals + 2 * C * C * ROWS, totals + (2 * C * C + C) * ROWS, {0}, {0}, {0}};
    for (int64_t member; (member = next_item(work)) < s->members;) {
        memset(totals, 0, (size_t)(2 * C * C + 2 * C) * ROWS * sizeof(float));
        memset(sums.slope, 0, sizeof sums.slope);
        memset(sums.curvature, 0, sizeof sums.curvature);
        memset(sums.kept, 0, sizeof sums.kept);
        const int has_bursts = d->bursts && d->bursts[member] > 0.0f;
        block.pair = has_bursts ? pairs : NULL;
        block.kept = has_bursts ? pairs + size * C : NULL;
        block.jumped = 1; /* the transitions of the member before are still there */
        for (int64_t row = 0; row < s->rows; row += ROWS) {
            float weights[ROWS], lengths[ROWS], weight = 0.0f;
            double log_likelihood[ROWS] = {0};
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
    free(memory);
    free(totals);
    free(pairs);
    return 0;
}
