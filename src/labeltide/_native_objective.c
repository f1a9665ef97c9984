/* The average loss of recorded labels and its gradient, for a fleet. The equations are those of objectives/objective.py with
   forward_loss or cross_entropy of losses.py, which do the same with torch where this is not built.

   With N the summed weights of all labels, R_t the average loss at step t and l, c the multipliers, a label of weight w
   at step t moves the objective by w (l + c R_t) / N times its loss. An item is some steps of one member. */

#include "_native.h"
#include <float.h>
#include <math.h>

#define STEPS 8 /* steps in one item */

typedef struct {
    int64_t members, batch, steps, classes, annotators, table, points; /* table: sequences that rows may choose from */
    const int64_t *rows;     /* (members, batch), -1 to fill up */
    const int8_t *labels;    /* (members, table, steps, annotators), -1 where none was recorded */
    const uint8_t *mask;     /* (table, steps) */
    const float *weights;    /* (members, table) */
    const int64_t *places;   /* (table, steps), on the clock grid; NULL where step t is point t */
    const float *logits;     /* (members, batch, steps, classes) */
    const float *matrices;   /* (members, points, classes, classes), or NULL to take labels for true */
    const float *linear, *quadratic; /* (members,) or NULL */
    float *losses, *counts;  /* (members, steps): summed weighted losses, summed weights */
    float *grad_logits;      /* of the shape of logits */
    float *grad_matrices;    /* of the shape of matrices */
} Objective;

/* The logarithm of the sum of exponentials; `shares` gets each one's share of the sum. */
INLINE float log_sum(const float *x, float *shares, int64_t count) {
    float largest = x[0], sum = 0.0f;
    for (int64_t i = 1; i < count; i++) largest = x[i] > largest ? x[i] : largest;
    for (int64_t i = 0; i < count; i++) sum += shares[i] = expf(x[i] - largest);
    for (int64_t i = 0; i < count; i++) shares[i] /= sum;
    return largest + logf(sum);
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

/* The weighted loss of the labels of one position and its gradient by the logits. `explained` gets, for every annotator, the
   probability of each true label given the recorded one. */
INLINE float position(const Objective *s, const int8_t *labels, const float *logits, const float *logs, float weight,
                      float *grad_logits, float *explained, float *scratch, float *count) {
    const int64_t classes = s->classes;
    float *shares = scratch, *joint = scratch + classes, loss = 0.0f;
    const float whole = log_sum(logits, shares, classes);
    for (int64_t a = 0; a < s->annotators; a++, explained += classes) {
        const int64_t label = labels[a];
        if (label < 0) continue;
        *count += weight;
        for (int64_t i = 0; i < classes; i++) {
            joint[i] = logs ? logits[i] + logs[i * classes + label] : logits[i];
            explained[i] = i == label ? 1.0f : 0.0f;
        }
        loss += whole - (logs ? log_sum(joint, explained, classes) : logits[label]);
        for (int64_t i = 0; i < classes; i++) grad_logits[i] += weight * (shares[i] - explained[i]);
    }
    return weight * loss;
}

/* One step of one member. Gradients are scaled once the average loss of the step is known. */
static void one_step(const Objective *s, int64_t member, int64_t t, double all, const float *logs, float *explained,
                     float *scratch) {
    const int64_t classes = s->classes, size = classes * classes, each = s->annotators * classes;
    const int64_t *rows = s->rows + member * s->batch;
    float loss = 0.0f, count = 0.0f;
    for (int64_t b = 0; b < s->batch; b++) {
        const int64_t row = rows[b], at = ((member * s->batch + b) * s->steps + t) * classes;
        const float weight = weight_of(s, member, row, t);
        memset(s->grad_logits + at, 0, (size_t)classes * sizeof(float));
        if (weight == 0.0f) continue;
        const int64_t point = s->places ? s->places[row * s->steps + t] : t;
        loss += position(s, labels_of(s, member, row, t), s->logits + at, s->matrices ? logs + point * size : NULL, weight,
                         s->grad_logits + at, explained + b * each, scratch, &count);
    }
    s->losses[member * s->steps + t] = loss, s->counts[member * s->steps + t] = count;
    const float average = count > 0.0f ? loss / count : 0.0f;
    const float pull = s->linear ? s->linear[member] + s->quadratic[member] * average : 1.0f;
    const float scale = all > 1e-12 ? (float)(pull / all) : 0.0f;
    for (int64_t b = 0; b < s->batch; b++) {
        const int64_t row = rows[b], at = ((member * s->batch + b) * s->steps + t) * classes;
        const float weight = weight_of(s, member, row, t);
        if (weight == 0.0f) continue;
        for (int64_t i = 0; i < classes; i++) s->grad_logits[at + i] *= scale;
        const int8_t *labels = labels_of(s, member, row, t);
        const int64_t point = (member * s->points + (s->places ? s->places[row * s->steps + t] : t)) * size;
        for (int64_t a = 0; s->matrices && a < s->annotators; a++)
            for (int64_t i = 0; labels[a] >= 0 && i < classes; i++) {
                const int64_t entry = point + i * classes + labels[a];
                if (s->matrices[entry] >= FLT_MIN) /* a true zero in Q stays one */
                    s->grad_matrices[entry] -= scale * weight * explained[b * each + a * classes + i] / s->matrices[entry];
            }
    }
}

/* Items of a member: parts of its steps, or all of them where sequences have clocks of their own and share its points. */
int labeltide_objective(const Objective *s, Work *work) {
    const int64_t size = s->classes * s->classes, each = work->items / s->members;
    const int64_t points = s->matrices ? s->points : 0;
    float *logs = room(in_lines(points * size) + in_lines(s->batch * s->annotators * s->classes) + 2 * s->classes);
    if (!logs) return 1;
    float *explained = logs + in_lines(points * size);
    float *scratch = explained + in_lines(s->batch * s->annotators * s->classes);
    int64_t holds = -1;
    double all = 0.0;
    for (int64_t item; (item = next_item(work)) < work->items;) {
        const int64_t member = item / each, first = s->places ? 0 : item % each * STEPS;
        const int64_t last = s->places || first + STEPS > s->steps ? s->steps : first + STEPS;
        if (member != holds) all = count_labels(s, member);
        holds = member;
        for (int64_t i = first * size; i < (s->places ? points : s->matrices ? last : 0) * size; i++) {
            const float value = s->matrices[member * points * size + i];
            logs[i] = logf(value < FLT_MIN ? FLT_MIN : value); /* NaN stays NaN */
            s->grad_matrices[member * points * size + i] = 0.0f;
        }
        for (int64_t t = first; t < last; t++) one_step(s, member, t, all, logs, explained, scratch);
    }
    free(logs);
    return 0;
}
