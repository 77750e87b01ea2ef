/* The equations of the gated cells, which have to agree with kernels/reference.py; a template like vectors.h. */

#define GATES_OF(mode) ((mode) == LSTM ? 4 : (mode) == GRU ? 3 : 1)

/* Activate the gates in place: input, forget, cell and output of an LSTM; reset and update of a GRU, whose new gate
 * needs the reset gate first. */
static INLINE void NAME(activate_gates)(vec *a, const int gates) {
    a[0] = vsigmoid(a[0]);
    a[1] = vsigmoid(a[1]);
    if (gates == 3) return;
    a[2] = vtanh(a[2]);
    a[3] = vsigmoid(a[3]);
}

/* LSTM: the new cell state from the activated gates, c' = f c + i g. */
static INLINE vec NAME(lstm)(const vec *a, vec c_before) { return a[1] * c_before + a[0] * a[2]; }

/* GRU: activate the new gate in place, n = tanh(a[2] + r new_part) with new_part = W_n h + b_n and the reset gate r;
 * the new state is (1 - z) n + z h with the update gate z. */
static INLINE vec NAME(gru)(vec *a, vec new_part, vec h_before) {
    a[2] = vtanh(a[2] + a[0] * new_part);
    return a[2] + a[1] * (h_before - a[2]);
}

/* d: the gradients of the gates before activation. grad_c: the gradient of the cell state, in after and out before the
 * step. */
static INLINE void NAME(lstm_backward)(vec *d, const vec *a, vec tanh_c, vec c_before, vec grad_h, vec *grad_c) {
    const vec one = broadcast(1);
    const vec dc = *grad_c + grad_h * a[3] * (one - tanh_c * tanh_c);
    d[0] = dc * a[2] * a[0] * (one - a[0]);
    d[1] = dc * c_before * a[1] * (one - a[1]);
    d[2] = dc * a[0] * (one - a[2] * a[2]);
    d[3] = grad_h * tanh_c * a[3] * (one - a[3]);
    *grad_c = dc * a[1];
}

/* d as above. direct: the gradient that reaches the previous h without passing a recurrent matrix. Returns the gradient
 * of W_n h + b_n. */
static INLINE vec NAME(gru_backward)(vec *d, const vec *a, vec new_part, vec h_before, vec grad_h, vec *direct) {
    const vec one = broadcast(1);
    d[2] = grad_h * (one - a[1]) * (one - a[2] * a[2]);
    d[1] = grad_h * (h_before - a[2]) * a[1] * (one - a[1]);
    d[0] = d[2] * new_part * a[0] * (one - a[0]);
    *direct = grad_h * a[1];
    return d[2] * a[0];
}

/* The addresses of one row of the batch at one step. Pointers to what a call does not have must not be used. */
#define row NAME(row)
typedef struct {
    const REAL *x, *projected, *h_before, *c_before;
    REAL *output, *gates, *cells;
    const REAL *grad_output;
    REAL *grad_gates, *grad_new, *grad_h, *grad_c;
} row;

/* Filled in place, field by field: building a structure and copying it costs more than a step. */
static INLINE void NAME(forward_row)(const forward_call *call, int64_t t, int64_t b, const int gates, row *row) {
    const chunk *c = &call->chunk;
    const int64_t width = c->num_blocks * c->block_size;
    const int64_t now = t * c->batch + b, before = now + (c->reverse ? c->batch : -c->batch);
    const int first = is_first(c, t, b);
    REAL *h = call->h, *cell = call->c, *output = c->output, *cells = c->cells;
    row->x = (const REAL *)c->x + t * c->x_step + b * c->x_row;
    row->projected = (const REAL *)call->projected + now * gates * width;
    row->h_before = first ? h + b * width : output + before * width;
    row->output = output + now * width;
    row->gates = (REAL *)c->gates + now * gates * width;
    row->c_before = first || !cells ? cell + b * width : cells + before * width;
    row->cells = cells ? cells + now * width : cell + b * width;
}

static INLINE void NAME(backward_row)(const backward_call *call, int64_t t, int64_t b, const int gates, row *row) {
    const chunk *c = &call->chunk;
    const int64_t width = c->num_blocks * c->block_size;
    const int64_t now = t * c->batch + b, before = now + (c->reverse ? c->batch : -c->batch);
    const int first = is_first(c, t, b);
    REAL *output = c->output, *cells = c->cells;
    row->x = (const REAL *)c->x + t * c->x_step + b * c->x_row;
    row->h_before = first ? (const REAL *)call->h_before + b * width : output + before * width;
    row->c_before = first ? (const REAL *)call->c_before + b * width : cells + before * width;
    row->output = output + now * width;
    row->gates = (REAL *)c->gates + now * gates * width;
    row->cells = cells + now * width;
    row->grad_output = (const REAL *)call->grad_output + t * call->grad_output_step + b * call->grad_output_row;
    row->grad_gates = (REAL *)call->grad_gates + now * gates * width;
    row->grad_new = (REAL *)call->grad_new + now * width;
    row->grad_h = (REAL *)call->grad_h + b * width;
    row->grad_c = (REAL *)call->grad_c + b * width;
}

/* Collect the rows of a tile in which step t is real. In the others, set units `from` to `to` of output and cells to
 * zero. */
static INLINE int NAME(forward_tile)(const forward_call *call, int64_t t, tile tile, int64_t from, int64_t to,
                                     const int gates, row *rows) {
    const chunk *c = &call->chunk;
    int count = 0;
    for (int64_t b = tile.begin; b < tile.end; b++) {
        row *row = rows + count;
        NAME(forward_row)(call, t, b, gates, row);
        if (!c->real_steps || t < c->real_steps[b]) {
            count++;
            continue;
        }
        memset(row->output + from, 0, (to - from) * sizeof(REAL));
        if (c->cells) memset(row->cells + from, 0, (to - from) * sizeof(REAL));
    }
    return count;
}

/* The same for backward: steps that are not real pass no gradient to the input. */
static INLINE int NAME(backward_tile)(const backward_call *call, int64_t t, tile tile, int64_t from, int64_t to,
                                      const int gates, row *rows) {
    const chunk *c = &call->chunk;
    const int64_t width = c->num_blocks * c->block_size;
    int count = 0;
    for (int64_t b = tile.begin; b < tile.end; b++) {
        row *row = rows + count;
        NAME(backward_row)(call, t, b, gates, row);
        if (!c->real_steps || t < c->real_steps[b]) {
            count++;
            continue;
        }
        for (int g = 0; call->grad_gates && g < gates; g++)
            memset(row->grad_gates + g * width + from, 0, (to - from) * sizeof(REAL));
        if (call->grad_new) memset(row->grad_new + from, 0, (to - from) * sizeof(REAL));
    }
    return count;
}

/* After the last step of a tile, copy its state, units `from` to `to`, to the caller's state, which for a single step may
 * be the memory of the output itself. */
static void NAME(keep_state)(const forward_call *call, tile tile, int64_t from, int64_t to) {
    const chunk *c = &call->chunk;
    const int64_t width = c->num_blocks * c->block_size;
    for (int64_t b = tile.begin; b < tile.end; b++) {
        const int64_t steps = c->real_steps ? c->real_steps[b] : c->steps;
        if (steps == 0) continue;
        const int64_t last = ((c->reverse ? 0 : steps - 1) * c->batch + b) * width + from;
        const int64_t size = (to - from) * (int64_t)sizeof(REAL);
        memmove((REAL *)call->h + b * width + from, (REAL *)c->output + last, size);
        if (c->cells) memmove((REAL *)call->c + b * width + from, (REAL *)c->cells + last, size);
    }
}
