/* Multilayer perceptron from the clock to Q, for a fleet, forward and backward. The reference implementation in torch is
   noise/functions.py.

   Forward and back through the layers, an item is a tile of ROWS moments of one member. The gradient of the weights is
   taken afterwards, an item being some rows of one member's weights, summed over all moments in their order. */

#include "common.h"
#include <float.h>
#include <math.h>

#define ROWS 8
#define MAX_LAYERS 16
#define FEW 16 /* rows of a weight gradient in one item */
#define SINGLE (2 * LANES) /* values of a layer come in pairs of vectors */

typedef struct {
    int64_t members, copies, points, layers, classes; /* copies: networks of one owner; hidden layers, a head follows */
    int64_t widths[MAX_LAYERS];               /* of the hidden layers: multiples of 32, but the first of any width */
    int64_t weight_strides[MAX_LAYERS + 1], bias_strides[MAX_LAYERS + 1]; /* between owners */
    const float *weights[MAX_LAYERS + 1];     /* (owners, copies, inputs, outputs); the head last */
    const float *biases[MAX_LAYERS + 1];
    float units[MAX_LAYERS + 1]; /* what the weights are multiplied by */
    float scale, shift;          /* position on the clock to the input of the network */
    float bound;                 /* logits z become bound z / (bound + |z|); 0 leaves them as they are */
    const double *clock;         /* (points,) */
    const double *ends;          /* (2,), the clock's first and last moment */
    float *matrices;             /* (members, points, classes, classes) */
    const float *grad_matrices;
    float *values; /* (members, tiles * ROWS, sum of padded widths + classes^2): every layer's output */
    float *deltas; /* of the same shape: their gradients */
    float *turned; /* (members, turned_size): weights transposed; NULL where no gradient is wanted */
    float *gradients; /* weights and biases of every layer, the head last; an owner's lie `gradient_stride` apart */
    int64_t gradient_stride;
} Network;

INLINE int64_t padded(int64_t width) { return (width + 31) / 32 * 32; }
INLINE int64_t tiles_of(const Network *s) { return (s->points + ROWS - 1) / ROWS; }
INLINE int64_t inputs_of(const Network *s, int64_t layer) { return layer ? s->widths[layer - 1] : 1; }
INLINE int64_t outputs_of(const Network *s, int64_t layer) {
    return layer < s->layers ? s->widths[layer] : s->classes * s->classes;
}
INLINE const float *weights_of(const Network *s, int64_t member, int64_t layer) {
    const int64_t size = inputs_of(s, layer) * outputs_of(s, layer);
    return s->weights[layer] + member / s->copies * s->weight_strides[layer] + member % s->copies * size;
}
INLINE const float *biases_of(const Network *s, int64_t member, int64_t layer) {
    return s->biases[layer] + member / s->copies * s->bias_strides[layer] + member % s->copies * outputs_of(s, layer);
}
/* Where a layer's block starts: (tiles * ROWS, padded width) of values; (outputs, padded inputs) of turned weights. */
INLINE int64_t values_before(const Network *s, int64_t layer) {
    int64_t sum = 0;
    for (int64_t l = 0; l < layer; l++) sum += padded(outputs_of(s, l));
    return sum * tiles_of(s) * ROWS;
}
INLINE int64_t turned_before(const Network *s, int64_t layer) {
    int64_t sum = 0;
    for (int64_t l = 1; l < layer; l++) sum += outputs_of(s, l) * padded(inputs_of(s, l));
    return sum;
}
INLINE int64_t gradients_before(const Network *s, int64_t layer) {
    int64_t sum = 0;
    for (int64_t l = 0; l < layer; l++) sum += (inputs_of(s, l) + 1) * outputs_of(s, l);
    return sum;
}

static float input_at(const Network *s, int64_t point) {
    const double low = s->ends[0], length = s->ends[1] - s->ends[0];
    double position = (s->clock[point < s->points ? point : s->points - 1] - low) / (length > DBL_MIN ? length : DBL_MIN);
    position = position < -10.0 ? -10.0 : position > 11.0 ? 11.0 : position;
    return (float)position * s->scale + s->shift;
}

/* One row of the softmax of soft-clipped logits, and the derivative of the clipping. */
static void softmax(const Network *s, const float *logits, float *shares, float *slopes) {
    float largest = -INFINITY, sum = 0.0f;
    for (int64_t j = 0; j < s->classes; j++) {
        const float size = s->bound + fabsf(logits[j]);
        shares[j] = s->bound > 0.0f ? s->bound * logits[j] / size : logits[j];
        slopes[j] = s->bound > 0.0f ? s->bound * s->bound / (size * size) : 1.0f;
        if (!(shares[j] <= largest)) largest = shares[j];
    }
    for (int64_t j = 0; j < s->classes; j++) sum += shares[j] = expf(shares[j] - largest);
    for (int64_t j = 0; j < s->classes; j++) shares[j] /= sum;
}

static void forward_tile(const Network *s, int64_t member, int64_t tile, float *scratch) {
    float *values = s->values + member * values_before(s, s->layers + 1);
    float *first = values + tile * ROWS * padded(s->widths[0]);
    const float *weight = weights_of(s, member, 0), *bias = biases_of(s, member, 0);
    memset(first, 0, (size_t)(ROWS * padded(s->widths[0])) * sizeof(float));
    for (int row = 0; row < ROWS; row++) {
        const float x = input_at(s, tile * ROWS + row) * s->units[0];
        for (int64_t c = 0; c < s->widths[0]; c++) {
            const float value = bias[c] + x * weight[c];
            first[row * padded(s->widths[0]) + c] = value < 0.0f ? 0.0f : value;
        }
    }
    for (int64_t layer = 1; layer < s->layers; layer++) {
        const int64_t inputs = inputs_of(s, layer), width = s->widths[layer], stride = padded(inputs);
        const float *in = values + values_before(s, layer - 1) + tile * ROWS * stride;
        float *out = values + values_before(s, layer) + tile * ROWS * width;
        weight = weights_of(s, member, layer), bias = biases_of(s, member, layer);
        for (int64_t c = 0; c < width; c += SINGLE) {
            vec sum[ROWS][2] = {{{0}}};
            multiply_add(sum, ROWS, in, stride, weight + c, width, inputs);
            for (int row = 0; row < ROWS; row++)
                for (int half = 0; half < 2; half++) {
                    vec value = load(bias + c + half * LANES) + s->units[layer] * sum[row][half];
                    store(out + row * width + c + half * LANES, choose(value < 0.0f, fill(0.0f), value));
                }
        }
    }
    const int64_t inputs = s->widths[s->layers - 1], size = s->classes * s->classes, stride = padded(size);
    const float *in = values + values_before(s, s->layers - 1) + tile * ROWS * padded(inputs);
    float *logits = values + values_before(s, s->layers) + tile * ROWS * stride;
    weight = weights_of(s, member, s->layers), bias = biases_of(s, member, s->layers);
    for (int row = 0; row < ROWS; row++) {
        float *own = logits + row * stride;
        memset(own, 0, (size_t)size * sizeof(float));
        for (int64_t k = 0; k < inputs; k++)
            for (int64_t j = 0; j < size; j++) own[j] += in[row * padded(inputs) + k] * weight[k * size + j];
        for (int64_t j = 0; j < size; j++) own[j] = bias[j] + s->units[s->layers] * own[j];
        if (tile * ROWS + row >= s->points) continue;
        float *matrix = s->matrices + (member * s->points + tile * ROWS + row) * size;
        for (int64_t i = 0; i < s->classes; i++) {
            softmax(s, own + i * s->classes, scratch, scratch + s->classes);
            for (int64_t j = 0; j < s->classes; j++) matrix[i * s->classes + j] = ((i == j) + scratch[j]) / 2;
        }
    }
}

/* Transpose one layer's weights, 16 x 16 at a time, and pad them with zeros. */
static void turn_weights(const Network *s, int64_t member, int64_t layer) {
    const int64_t inputs = inputs_of(s, layer), outputs = outputs_of(s, layer), stride = padded(inputs);
    const float *from = weights_of(s, member, layer);
    float *to = s->turned + member * turned_before(s, s->layers + 1) + turned_before(s, layer);
    if (stride != inputs) memset(to, 0, (size_t)(outputs * stride) * sizeof(float));
    for (int64_t c = 0; c < outputs; c += 16)
        for (int64_t k = 0; k < inputs; k += 16)
            for (int64_t j = c; j < (c + 16 < outputs ? c + 16 : outputs); j++)
                for (int64_t i = k; i < (k + 16 < inputs ? k + 16 : inputs); i++) to[j * stride + i] = from[i * outputs + j];
}

EXPORT int labeltide_network_forward(const Network *s, Work *work) {
    const int64_t tiles = tiles_of(s), each = tiles + (s->turned ? s->layers : 0);
    float *scratch = room(2 * s->classes);
    if (!scratch) return 1;
    for (int64_t item; (item = next_item(work)) < work->items;) {
        const int64_t member = item / each, part = item % each;
        if (part < tiles)
            forward_tile(s, member, part, scratch);
        else
            turn_weights(s, member, part - tiles + 1);
    }
    release(scratch);
    return 0;
}

/* Gradients of every layer's output, from that of Q back to the first. */
static void backward_tile(const Network *s, int64_t member, int64_t tile, float *scratch) {
    const float *values = s->values + member * values_before(s, s->layers + 1);
    float *deltas = s->deltas + member * values_before(s, s->layers + 1);
    const float *turned = s->turned + member * turned_before(s, s->layers + 1);
    const int64_t classes = s->classes, size = classes * classes, stride = padded(size);
    const float *logits = values + values_before(s, s->layers) + tile * ROWS * stride;
    float *grads = deltas + values_before(s, s->layers) + tile * ROWS * stride;
    memset(grads, 0, (size_t)(ROWS * stride) * sizeof(float));
    for (int64_t row = 0; row < ROWS && tile * ROWS + row < s->points; row++) {
        for (int64_t i = 0; i < classes; i++) {
            const float *grad = s->grad_matrices + (member * s->points + tile * ROWS + row) * size + i * classes;
            float *shares = scratch, *slopes = scratch + classes, mean = 0.0f;
            softmax(s, logits + row * stride + i * classes, shares, slopes);
            for (int64_t j = 0; j < classes; j++) mean += shares[j] * grad[j];
            for (int64_t j = 0; j < classes; j++)
                grads[row * stride + i * classes + j] = 0.5f * shares[j] * (grad[j] - mean) * slopes[j];
        }
    }
    for (int64_t layer = s->layers; layer > 0; layer--) {
        const int64_t width = padded(inputs_of(s, layer)), outputs = outputs_of(s, layer), from = padded(outputs);
        const float *grad = deltas + values_before(s, layer) + tile * ROWS * from;
        const float *value = values + values_before(s, layer - 1) + tile * ROWS * width;
        float *out = deltas + values_before(s, layer - 1) + tile * ROWS * width;
        for (int64_t c = 0; c < width; c += SINGLE) {
            vec sum[ROWS][2] = {{{0}}};
            multiply_add(sum, ROWS, grad, from, turned + turned_before(s, layer) + c, width, outputs);
            for (int row = 0; row < ROWS; row++)
                for (int half = 0; half < 2; half++) {
                    const int64_t at = row * width + c + half * LANES;
                    store(out + at, choose(load(value + at) <= 0.0f, fill(0.0f), s->units[layer] * sum[row][half]));
                }
        }
    }
}

EXPORT int labeltide_network_backward(const Network *s, Work *work) {
    float *scratch = room(2 * s->classes);
    if (!scratch) return 1;
    for (int64_t item; (item = next_item(work)) < work->items;)
        backward_tile(s, item / tiles_of(s), item % tiles_of(s), scratch);
    release(scratch);
    return 0;
}

/* How many items the weight gradient of a layer is. */
INLINE int64_t parts_of(const Network *s, int64_t layer) { return (inputs_of(s, layer) + FEW - 1) / FEW; }

static void bias_gradient(const Network *s, const float *deltas, int64_t layer, float *bias) {
    const int64_t width = outputs_of(s, layer), stride = padded(width);
    memset(bias, 0, (size_t)width * sizeof(float));
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES) {
        vec sum = fill(0.0f);
        for (int64_t point = 0; point < s->points; point++) sum += load(deltas + point * stride + c);
        store(bias + c, sum);
    }
    for (; c < width; c++)
        for (int64_t point = 0; point < s->points; point++) bias[c] += deltas[point * stride + c];
}

/* Rows first .. last - 1 of a layer's weight gradient. */
static void weight_gradient(const Network *s, int64_t member, int64_t layer, int64_t first, int64_t last) {
    const int64_t width = outputs_of(s, layer), stride = padded(width), inputs = inputs_of(s, layer);
    const float *deltas = s->deltas + member * values_before(s, s->layers + 1) + values_before(s, layer);
    const int64_t copy = member % s->copies;
    float *all = s->gradients + member / s->copies * s->gradient_stride + s->copies * gradients_before(s, layer);
    float *gradient = all + copy * inputs * width;
    if (first == 0) bias_gradient(s, deltas, layer, all + s->copies * inputs * width + copy * width);
    memset(gradient + first * width, 0, (size_t)((last - first) * width) * sizeof(float));
    if (layer > 0 && width % SINGLE == 0) {
        const float *values = s->values + member * values_before(s, s->layers + 1) + values_before(s, layer - 1) + first;
        for (int64_t c = 0; c < width; c += SINGLE)
            outer_add(gradient + first * width + c, width, last - first, values, padded(inputs), deltas + c, stride, s->points);
    } else { /* the first layer and the head are small */
        const float *values = layer ? s->values + member * values_before(s, s->layers + 1) + values_before(s, layer - 1) : NULL;
        for (int64_t point = 0; point < s->points; point++)
            for (int64_t k = first; k < last; k++) {
                const float value = layer ? values[point * padded(inputs) + k] : input_at(s, point);
                for (int64_t c = 0; c < width; c++) gradient[k * width + c] += value * deltas[point * stride + c];
            }
    }
    int64_t i = first * width;
    for (; i + LANES <= last * width; i += LANES) store(gradient + i, load(gradient + i) * s->units[layer]);
    for (; i < last * width; i++) gradient[i] *= s->units[layer];
}

EXPORT int labeltide_network_gradients(const Network *s, Work *work) {
    for (int64_t item; (item = next_item(work)) < work->items;) {
        int64_t part = item % (work->items / s->members), layer = 0;
        for (; part >= parts_of(s, layer); layer++) part -= parts_of(s, layer);
        const int64_t inputs = inputs_of(s, layer), last = (part + 1) * FEW;
        weight_gradient(s, item / (work->items / s->members), layer, part * FEW, last < inputs ? last : inputs);
    }
    return 0;
}
