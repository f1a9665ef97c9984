/* Forward-corrected cross-entropy (Patrini and others 2017), averaged over recorded labels, and its gradient, for a fleet. The
   reference implementation in torch is training/objective.py with forward_loss or cross_entropy of losses.py. Trusted labels
   are annotators after those whose labels go through Q. Targets come with one annotator, whose labels are -1 where there is
   no target.

   With N the summed weights of all labels, R_t the average loss at step t and l, c the multipliers, a label of weight w
   at step t moves the objective by w (l + c R_t) / N times its loss. An item is some steps of one member. */

#include "common.h"
#include <float.h>
#include <math.h>

#define STEPS 8 /* steps in one item */

typedef struct {
    int64_t members, batch, steps, classes, annotators;
    int64_t groups;        /* of annotators who share one Q: 1, or one for each whose labels go through Q */
    int64_t table, points; /* table: sequences that rows may choose from */
    int64_t noisy;           /* annotators, from the first, whose labels go through Q; the Q of the others is the identity */
    const int64_t *rows;     /* (members, batch), -1 for filler rows */
    const int8_t *labels;    /* (members, table, steps, annotators), -1 where none was recorded */
    const uint8_t *mask;     /* (table, steps) */
    const float *weights;    /* (members, table) */
    const float *targets;    /* (members, table, steps, classes), soft labels in place of the labels, or NULL */
    const int64_t *grid_index; /* (table, steps), on the clock grid; NULL where step t is point t */
    const float *logits;     /* (members, batch, steps, classes) */
    const float *matrices;   /* (members, groups, points, classes, classes), or NULL for Q = I */
    const float *linear, *quadratic; /* (members,) or NULL */
    float *losses, *counts;  /* (members, steps): summed weighted losses, summed weights */
    float *grad_logits;      /* of the shape of logits */
    float *grad_matrices;    /* of the shape of matrices */
} Objective;

/* Log-sum-exp and softmax of each of `count` columns of x (classes, width). */
static void log_sums(const float *x, float *shares, float *sums, int64_t classes, int64_t width, int64_t count) {
    for (int64_t j = 0; j < count; j += LANES) {
        vec largest = load(x + j), sum = fill(0.0f);
        for (int64_t i = 1; i < classes; i++) {
            vec value = load(x + i * width + j);
            largest = choose(value > largest, value, largest);
        }
        for (int64_t i = 0; i < classes; i++) {
            vec power = exponential(bounded(load(x + i * width + j) - largest, 80.0f));
            store(shares + i * width + j, power);
            sum += power;
        }
        for (int64_t i = 0; i < classes; i++) store(shares + i * width + j, load(shares + i * width + j) / sum);
        store(sums + j, largest + logarithm(sum));
    }
}

INLINE float weight_of(const Objective *s, int64_t member, int64_t row, int64_t t) {
    return row < 0 || !s->mask[row * s->steps + t] ? 0.0f : s->weights[member * s->table + row];
}

/* The summed weights of a member's labels in this batch. */
static double count_labels(const Objective *s, int64_t member) {
    double count = 0.0;
    for (int64_t t = 0; t < s->steps; t++) {
        float here = 0.0f;
        for (int64_t b = 0; b < s->batch; b++) {
            const int64_t row = s->rows[member * s->batch + b];
            const float weight = weight_of(s, member, row, t);
            if (weight == 0.0f) continue;
            const int8_t *labels = s->labels + ((member * s->table + row) * s->steps + t) * s->annotators;
            for (int64_t a = 0; a < s->annotators; a++) here += labels[a] >= 0 ? weight : 0.0f;
        }
        count += here;
    }
    return count;
}

INLINE const int8_t *labels_of(const Objective *s, int64_t member, int64_t row, int64_t t) {
    return s->labels + ((member * s->table + row) * s->steps + t) * s->annotators;
}

/* The sequences with a nonzero weight at one step, stored as columns: (..., width). */
typedef struct {
    int64_t width, count;
    int64_t *rows, *positions;                 /* in the table, and in the batch */
    float *weights, *x, *shares, *whole, *joint; /* logits, softmax and log-sum; logits plus log Q of the recorded label */
    float *mass; /* the summed target; 1 for labels */
    float *explained, *parts; /* (annotators, classes, width), (width,): the true label given the recorded; its log-sum */
} Column;

static int64_t column_size(const Objective *s) { return in_lines(s->batch) * (8 + (3 + s->annotators) * s->classes); }
static void place_column(Column *c, const Objective *s, float *memory) {
    const int64_t width = in_lines(s->batch), classes = s->classes * width;
    c->width = width, c->rows = (int64_t *)memory, c->positions = c->rows + width;
    c->weights = (float *)(c->positions + width), c->x = c->weights + width, c->shares = c->x + classes;
    c->whole = c->shares + classes, c->joint = c->whole + width, c->parts = c->joint + classes;
    c->mass = c->parts + width, c->explained = c->mass + width;
}

static void take_column(const Objective *s, Column *c, int64_t member, int64_t t) {
    const int64_t classes = s->classes, width = c->width;
    c->count = 0;
    for (int64_t b = 0; b < s->batch; b++) {
        const int64_t row = s->rows[member * s->batch + b], at = ((member * s->batch + b) * s->steps + t) * classes;
        const float weight = weight_of(s, member, row, t);
        if (weight == 0.0f) {
            memset(s->grad_logits + at, 0, (size_t)classes * sizeof(float));
            continue;
        }
        c->rows[c->count] = row, c->positions[c->count] = at, c->weights[c->count] = weight, c->mass[c->count] = 1.0f;
        for (int64_t i = 0; i < classes; i++) c->x[i * width + c->count] = s->logits[at + i];
        c->count++;
    }
    for (int64_t j = c->count; j < (c->count + LANES - 1) / LANES * LANES; j++)
        for (int64_t i = 0; i < classes; i++) c->x[i * width + j] = c->joint[i * width + j] = 0.0f;
    log_sums(c->x, c->shares, c->whole, classes, width, c->count);
}

/* The posterior of the true label given each recorded label of one annotator, and the summed loss. */
static float explain(const Objective *s, Column *c, int64_t member, int64_t t, int64_t annotator, const float *logs,
                     float *count) {
    const int64_t classes = s->classes, width = c->width, size = classes * classes;
    const int through = s->matrices && annotator < s->noisy;
    if (through && s->groups > 1) logs += annotator * s->points * size;
    float *explained = c->explained + annotator * classes * width, loss = 0.0f;
    for (int64_t j = 0; j < c->count; j++) {
        const int64_t row = c->rows[j], label = labels_of(s, member, row, t)[annotator];
        const float *log = logs + (s->grid_index ? s->grid_index[row * s->steps + t] : t) * size;
        for (int64_t i = 0; i < classes; i++) {
            if (through)
                c->joint[i * width + j] = c->x[i * width + j] + (label < 0 ? 0.0f : log[i * classes + label]);
            else
                explained[i * width + j] = i == label ? 1.0f : 0.0f;
        }
        if (!through) c->parts[j] = label < 0 ? 0.0f : c->x[label * width + j];
    }
    if (through) log_sums(c->joint, explained, c->parts, classes, width, c->count);
    for (int64_t j = 0; j < c->count; j++) {
        if (labels_of(s, member, c->rows[j], t)[annotator] < 0) continue;
        loss += c->weights[j] * (c->whole[j] - c->parts[j]), *count += c->weights[j];
    }
    return loss;
}

/* The same for targets, which are their own posterior. */
static float follow(const Objective *s, Column *c, int64_t member, int64_t t, float *count) {
    const int64_t classes = s->classes, width = c->width;
    float loss = 0.0f;
    for (int64_t j = 0; j < c->count; j++) {
        const float *target = s->targets + ((member * s->table + c->rows[j]) * s->steps + t) * classes;
        float own = 0.0f, mass = 0.0f;
        for (int64_t i = 0; i < classes; i++) {
            c->explained[i * width + j] = target[i], mass += target[i];
            own += target[i] * (c->whole[j] - c->x[i * width + j]);
        }
        c->mass[j] = mass;
        if (labels_of(s, member, c->rows[j], t)[0] >= 0) loss += c->weights[j] * own, *count += c->weights[j];
    }
    return loss;
}

/* One step of one member. Gradients are scaled once the average loss of the step is known. */
static void one_step(const Objective *s, Column *c, int64_t member, int64_t t, double all, const float *logs) {
    const int64_t classes = s->classes, size = classes * classes, width = c->width;
    float loss = 0.0f, count = 0.0f;
    take_column(s, c, member, t);
    for (int64_t a = 0; a < s->annotators; a++)
        loss += s->targets ? follow(s, c, member, t, &count) : explain(s, c, member, t, a, logs, &count);
    s->losses[member * s->steps + t] = loss, s->counts[member * s->steps + t] = count;
    const float average = count > 0.0f ? loss / count : 0.0f;
    const float pull = s->linear ? s->linear[member] + s->quadratic[member] * average : 1.0f;
    const float scale = all > 1e-12 ? (float)(pull / all) : 0.0f;
    for (int64_t j = 0; j < c->count; j++) {
        const int64_t row = c->rows[j];
        const int8_t *labels = labels_of(s, member, row, t);
        const int64_t at = s->grid_index ? s->grid_index[row * s->steps + t] : t;
        const int64_t point = (member * s->groups * s->points + at) * size;
        const int64_t apart = s->groups > 1 ? s->points * size : 0; /* from one annotator's Q to the next */
        const float weight = scale * c->weights[j];
        for (int64_t i = 0; i < classes; i++) {
            float grad = 0.0f;
            for (int64_t a = 0; a < s->annotators; a++) {
                if (labels[a] < 0) continue;
                const float share = c->explained[(a * classes + i) * width + j];
                const int64_t entry = point + a * apart + i * classes + labels[a];
                grad += c->mass[j] * c->shares[i * width + j] - share;
                if (s->matrices && a < s->noisy && s->matrices[entry] >= FLT_MIN) /* the gradient is zero where Q is exactly zero */
                    s->grad_matrices[entry] -= weight * share / s->matrices[entry];
            }
            s->grad_logits[c->positions[j] + i] = weight * grad;
        }
    }
}

/* Items of a member: parts of its steps, or all of them where sequences have clocks of their own and share its points. */
EXPORT int labeltide_objective(const Objective *s, Work *work) {
    const int64_t size = s->classes * s->classes, each = work->items / s->members;
    const int64_t points = s->matrices ? s->points : 0, logged = in_lines(s->groups * points * size);
    Column column;
    float *logs = room(logged + column_size(s));
    if (!logs) return 1;
    place_column(&column, s, logs + logged);
    int64_t holds = -1;
    double all = 0.0;
    for (int64_t item; (item = next_item(work)) < work->items;) {
        const int64_t member = item / each, first = s->grid_index ? 0 : item % each * STEPS;
        const int64_t last = s->grid_index || first + STEPS > s->steps ? s->steps : first + STEPS;
        if (member != holds) all = count_labels(s, member);
        holds = member;
        for (int64_t group = 0; group < (s->matrices ? s->groups : 0); group++) {
            const int64_t from = group * points * size, own = member * s->groups * points * size;
            for (int64_t i = from + first * size; i < from + (s->grid_index ? points : last) * size; i++) {
                const float value = s->matrices[own + i];
                logs[i] = logf(value < FLT_MIN ? FLT_MIN : value); /* NaN stays NaN */
                s->grad_matrices[own + i] = 0.0f;
            }
        }
        for (int64_t t = first; t < last; t++) one_step(s, &column, member, t, all, logs);
    }
    release(logs);
    return 0;
}
