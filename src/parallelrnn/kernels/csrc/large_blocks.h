/* Blocks larger than a vector: M vectors each, one block after the other. A template like vectors.h.
 *
 * The product W h is a sum of columns: each unit of h, broadcast, times a column of W that lies in M vectors. Four rows
 * share each load of the weights. The last vector of a block ends with the block, so where M vectors are more than the
 * block it repeats units of the vector before: these are computed twice, with the same result. What changes in place is
 * therefore read for all vectors before any of them is written.
 */

#define ROWS_AT_ONCE 4

#define matrices NAME(matrices)
typedef struct {
    int64_t M;                /* vectors in a block */
    vec *columns;             /* [k][g][j][m]: columns of W, for forward */
    vec *rows;                /* [k][g][i][m]: rows of W, for backward */
    vec *bias;                /* [k][g][m]; for a GRU's new gate only the input bias */
    vec *new_bias;            /* [k][m]: its recurrent bias; NULL unless a GRU */
} matrices;

/* Where in a block of D units, at least LANES, the m-th of its M vectors begins. */
#define START(m) ((m) + 1 < M ? (m) * LANES : D - LANES)
#define LOAD_PART(block, m) load((block) + START(m))
#define STORE_PART(block, m, v) store((block) + START(m), v)

static void NAME(free_matrices)(matrices *w) {
    free(w->columns);
    free(w->rows);
    free(w->bias);
    free(w->new_bias);
}

static int NAME(pack_matrices)(const chunk *c, int gates, int backward, matrices *w) {
    const int64_t D = c->block_size, K = c->num_blocks, M = w->M = (D + LANES - 1) / LANES;
    const REAL *weight = c->weight_hh, *bias_ih = c->bias_ih, *bias_hh = c->bias_hh;
    const int64_t bias_size = K * M * (int64_t)sizeof(vec), size = bias_size * gates * D;
    w->columns = aligned_alloc(64, round_up(size));
    w->rows = backward ? aligned_alloc(64, round_up(size)) : NULL;
    w->bias = aligned_alloc(64, round_up(bias_size * gates));
    w->new_bias = gates == 3 ? aligned_alloc(64, round_up(bias_size)) : NULL;
    if (!w->columns || (backward && !w->rows) || !w->bias || (gates == 3 && !w->new_bias)) return 1;
    for (int64_t k = 0; k < K; k++)
        for (int64_t g = 0; g < gates; g++)
            for (int64_t m = 0; m < M; m++) {
                const int64_t block = k * gates + g, unit = (g * K + k) * D, start = START(m);
                const int apart = gates == 3 && g == 2;
                for (int64_t j = 0; j < D; j++) {
                    REAL *column = (REAL *)(w->columns + (block * D + j) * M + m);
                    for (int lane = 0; lane < LANES; lane++) column[lane] = weight[(unit + start + lane) * D + j];
                    if (backward) w->rows[(block * D + j) * M + m] = load(weight + (unit + j) * D + start);
                }
                const vec none = broadcast(0), recurrent = bias_hh ? load(bias_hh + unit + start) : none;
                w->bias[block * M + m] = (bias_ih ? load(bias_ih + unit + start) : none) + (apart ? none : recurrent);
                if (apart) w->new_bias[k * M + m] = recurrent;
            }
    return 0;
}

/* out[n] += sum over j of in[n][j] * weights[j], for `rows` rows and the vectors m to m + columns of weights (J, M). */
static INLINE void NAME(product_tile)(const REAL *const *in, const vec *weights, int64_t J, int64_t M, int64_t m,
                                      vec *const *out, const int rows, const int columns) {
    vec sum[ROWS_AT_ONCE][2];
    for (int n = 0; n < rows; n++)
        for (int q = 0; q < columns; q++) sum[n][q] = out[n][m + q];
    for (int64_t j = 0; j < J; j++)
        for (int n = 0; n < rows; n++)
            for (int q = 0; q < columns; q++) sum[n][q] += broadcast(in[n][j]) * weights[j * M + m + q];
    for (int n = 0; n < rows; n++)
        for (int q = 0; q < columns; q++) out[n][m + q] = sum[n][q];
}

static void NAME(product)(const REAL *const *in, const vec *weights, int64_t J, int64_t M, vec *const *out, int rows) {
    int64_t m = 0;
    for (; m + 2 <= M; m += 2)
        if (rows == ROWS_AT_ONCE) NAME(product_tile)(in, weights, J, M, m, out, ROWS_AT_ONCE, 2);
        else
            for (int n = 0; n < rows; n++) NAME(product_tile)(in + n, weights, J, M, m, out + n, 1, 2);
    if (m < M) {
        if (rows == ROWS_AT_ONCE) NAME(product_tile)(in, weights, J, M, m, out, ROWS_AT_ONCE, 1);
        else
            for (int n = 0; n < rows; n++) NAME(product_tile)(in + n, weights, J, M, m, out + n, 1, 1);
    }
}

/* One step of one block for up to ROWS_AT_ONCE rows. room (rows, 5, M): the gates, and c or a GRU's W_n h + b_n. */
static INLINE void NAME(large_forward_rows)(const forward_call *call, const matrices *w, const row *rows, int count,
                                            int64_t k, vec *room, const int mode, const int gates) {
    const int64_t D = call->chunk.block_size, M = w->M, width = call->chunk.num_blocks * D, from = k * D;
    const REAL *h[ROWS_AT_ONCE];
    vec *out[ROWS_AT_ONCE];
    for (int n = 0; n < count; n++) {
        vec *a = room + n * 5 * M;
        h[n] = rows[n].h_before + from;
        for (int64_t m = 0; m < M; m++) {
            for (int g = 0; g < gates; g++)
                a[g * M + m] = w->bias[(k * gates + g) * M + m] + LOAD_PART(rows[n].projected + g * width + from, m);
            if (gates == 4) a[4 * M + m] = LOAD_PART(rows[n].c_before + from, m);
            if (gates == 3) a[4 * M + m] = w->new_bias[k * M + m];
        }
    }
    for (int g = 0; g < gates; g++) {
        for (int n = 0; n < count; n++) out[n] = room + (n * 5 + (gates == 3 && g == 2 ? 4 : g)) * M;
        NAME(product)(h, w->columns + (k * gates + g) * D * M, D, M, out, count);
    }
    for (int n = 0; n < count; n++) {
        const row at = rows[n];
        const vec *a = room + n * 5 * M;
        for (int64_t m = 0; m < M; m++) {
            vec gate[4];
            for (int g = 0; g < gates; g++) gate[g] = a[g * M + m];
            if (gates == 1) {
                STORE_PART(at.output + from, m, activate(gate[0], mode));
            } else if (gates == 4) {
                NAME(activate_gates)(gate, gates);
                const vec cell = NAME(lstm)(gate, a[4 * M + m]);
                STORE_PART(at.cells + from, m, cell);
                STORE_PART(at.output + from, m, gate[3] * vtanh(cell));
            } else {
                NAME(activate_gates)(gate, gates);
                STORE_PART(at.output + from, m, NAME(gru)(gate, a[4 * M + m], LOAD_PART(h[n], m)));
            }
            if (gates > 1 && call->chunk.gates)
                for (int g = 0; g < gates; g++) STORE_PART(at.gates + g * width + from, m, gate[g]);
        }
    }
}

/* The step's backward. room (rows, 2, M): the gradient that goes back to h; that of c, or a GRU's W_n h + b_n itself;
 * gradients (rows, G * D): those of what the recurrent matrices give. */
static INLINE void NAME(large_backward_rows)(const backward_call *call, const matrices *w, const row *rows, int count,
                                             int64_t k, vec *room, REAL *gradients, const int mode, const int gates) {
    const int64_t D = call->chunk.block_size, M = w->M, width = call->chunk.num_blocks * D, from = k * D;
    const REAL *h[ROWS_AT_ONCE], *in[ROWS_AT_ONCE];
    vec *extra[ROWS_AT_ONCE], *back[ROWS_AT_ONCE];
    for (int n = 0; n < count; n++) {
        h[n] = rows[n].h_before + from;
        in[n] = gradients + n * gates * D;
        back[n] = room + n * 2 * M;
        extra[n] = room + (n * 2 + 1) * M;
        for (int64_t m = 0; m < M; m++) {
            if (gates == 4) extra[n][m] = LOAD_PART(rows[n].grad_c + from, m);
            if (gates == 3) extra[n][m] = w->new_bias[k * M + m];
        }
    }
    if (gates == 3) NAME(product)(h, w->columns + (k * gates + 2) * D * M, D, M, extra, count);
    for (int n = 0; n < count; n++) {
        const row at = rows[n];
        REAL *recurrent = gradients + n * gates * D;
        for (int64_t m = 0; m < M; m++) {
            vec a[4], d[4], grad = LOAD_PART(at.grad_h + from, m);
            back[n][m] = broadcast(0);
            if (call->grad_output) grad += LOAD_PART(at.grad_output + from, m);
            if (gates > 1)
                for (int g = 0; g < gates; g++) a[g] = LOAD_PART(at.gates + g * width + from, m);
            if (gates == 1) {
                d[0] = grad * slope(LOAD_PART(at.output + from, m), mode);
            } else if (gates == 4) {
                vec grad_cell = extra[n][m];
                NAME(lstm_backward)(d, a, vtanh(LOAD_PART(at.cells + from, m)), LOAD_PART(at.c_before + from, m), grad,
                                    &grad_cell);
                STORE_PART(at.grad_c + from, m, grad_cell);
            } else {
                d[3] = NAME(gru_backward)(d, a, extra[n][m], LOAD_PART(h[n], m), grad, &back[n][m]);
                STORE_PART(at.grad_new + from, m, d[3]);
            }
            for (int g = 0; g < gates; g++) {
                STORE_PART(at.grad_gates + g * width + from, m, d[g]);
                STORE_PART(recurrent + g * D, m, gates == 3 && g == 2 ? d[3] : d[g]);
            }
        }
    }
    NAME(product)(in, w->rows + k * gates * D * M, gates * D, M, back, count);
    for (int n = 0; n < count; n++)
        for (int64_t m = 0; m < M; m++) STORE_PART(rows[n].grad_h + from, m, back[n][m]);
}

static void NAME(large_forward_task)(const forward_call *call, const matrices *w, task task, vec *room) {
    const chunk *c = &call->chunk;
    const int64_t width = c->num_blocks * c->block_size, from = task.part * c->block_size, to = task.part_end * c->block_size;
    row rows[MAX_ROWS];
    for (tile tile = first_tile(task, width * sizeof(REAL)); tile.begin < tile.end; tile = next_tile(tile, task)) {
        for (int64_t s = 0; s < c->steps; s++) {
            const int count = NAME(forward_tile)(call, c->reverse ? c->steps - 1 - s : s, tile, from, to, GATES_OF(c->mode), rows);
            for (int64_t k = task.part; k < task.part_end; k++)
                for (int n = 0; n < count; n += ROWS_AT_ONCE) {
                    const int taken = count - n < ROWS_AT_ONCE ? count - n : ROWS_AT_ONCE;
                    switch (c->mode) {
                    case LSTM: NAME(large_forward_rows)(call, w, rows + n, taken, k, room, LSTM, 4); break;
                    case GRU: NAME(large_forward_rows)(call, w, rows + n, taken, k, room, GRU, 3); break;
                    default: NAME(large_forward_rows)(call, w, rows + n, taken, k, room, c->mode, 1);
                    }
                }
        }
        NAME(keep_state)(call, tile, from, to);
    }
}

static void NAME(large_backward_task)(const backward_call *call, const matrices *w, task task, vec *room,
                                      REAL *gradients) {
    const chunk *c = &call->chunk;
    const int64_t width = c->num_blocks * c->block_size, from = task.part * c->block_size, to = task.part_end * c->block_size;
    row rows[MAX_ROWS];
    for (tile tile = first_tile(task, width * sizeof(REAL)); tile.begin < tile.end; tile = next_tile(tile, task))
        for (int64_t s = c->steps - 1; s >= 0; s--) {
            const int count = NAME(backward_tile)(call, c->reverse ? c->steps - 1 - s : s, tile, from, to, GATES_OF(c->mode), rows);
            for (int64_t k = task.part; k < task.part_end; k++)
                for (int n = 0; n < count; n += ROWS_AT_ONCE) {
                    const int taken = count - n < ROWS_AT_ONCE ? count - n : ROWS_AT_ONCE;
                    switch (c->mode) {
                    case LSTM: NAME(large_backward_rows)(call, w, rows + n, taken, k, room, gradients, LSTM, 4); break;
                    case GRU: NAME(large_backward_rows)(call, w, rows + n, taken, k, room, gradients, GRU, 3); break;
                    default: NAME(large_backward_rows)(call, w, rows + n, taken, k, room, gradients, c->mode, 1);
                    }
                }
        }
}

static int NAME(large_forward)(const forward_call *call) {
    const chunk *c = &call->chunk;
    matrices w = {0};
    int failed = NAME(pack_matrices)(c, GATES_OF(c->mode), 0, &w);
    if (!failed) {
        const division d = divide(c, c->num_blocks);
        vec *room = aligned_alloc(64, round_up(d.count * ROWS_AT_ONCE * 5 * w.M * sizeof(vec)));
        failed = !room;
        if (!failed) {
            FOR_TASKS(n, d.count)
                NAME(large_forward_task)(call, &w, take(c, c->num_blocks, d, n), room + n * ROWS_AT_ONCE * 5 * w.M);
        }
        free(room);
    }
    NAME(free_matrices)(&w);
    return failed;
}

static int NAME(large_backward)(const backward_call *call) {
    const chunk *c = &call->chunk;
    matrices w = {0};
    int failed = NAME(pack_matrices)(c, GATES_OF(c->mode), 1, &w);
    if (!failed) {
        const division d = divide(c, c->num_blocks);
        const int64_t gradients = ROWS_AT_ONCE * 4 * c->block_size;
        vec *room = aligned_alloc(64, round_up(d.count * ROWS_AT_ONCE * 2 * w.M * sizeof(vec)));
        REAL *more = malloc(d.count * gradients * sizeof(REAL));
        failed = !room || !more;
        if (!failed) {
            FOR_TASKS(n, d.count)
                NAME(large_backward_task)(call, &w, take(c, c->num_blocks, d, n), room + n * ROWS_AT_ONCE * 2 * w.M,
                                          more + n * gradients);
        }
        free(room);
        free(more);
    }
    NAME(free_matrices)(&w);
    return failed;
}
