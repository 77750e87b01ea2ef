/* Blocks that fit into a vector: LANES / D of them side by side in each. A template like vectors.h.
 *
 * Units lie in memory as everywhere else, blocks contiguous. The product W h needs every unit of a block in every lane
 * of that block, which takes D exchanges of lanes: (W h)[i] = sum over r of W[i, i ^ r] h[i ^ r]. For D = 2 that is
 * wa * h + wb * swap(h). Block sizes that are not a power of two are padded with empty lanes to the next one.
 *
 * Time is the outer loop over a tile of rows, the vectors of a row the middle one, the rows the inner one. The steps of
 * a row depend on each other, the rows of a tile do not; weights and their gradients stay in registers across rows.
 */

/* A vector's record: weight[g][r], bias[g], new_bias (the recurrent bias of a GRU's new gate), input[column][g]. */
#define BIAS(G, D) ((G) * (D))
#define NEW_BIAS(G, D) ((G) * ((D) + 1))
#define INPUT(G, D) (NEW_BIAS(G, D) + 1)

#define packed NAME(packed)
typedef struct {
    int64_t vectors, full;   /* vectors in a row; the first `full` of them are LANES neighbours in memory */
    int64_t units;           /* units in a full vector */
    int64_t record;          /* vectors in a record */
    vec *records;            /* the weights of each vector, lane by lane */
    int32_t (*lanes)[LANES]; /* where the lanes of each vector lie from its first unit on; -1 for empty ones */
} packed;

static void NAME(free_packed)(packed *w) {
    free(w->records);
    free(w->lanes);
}

static int NAME(pack)(const chunk *c, int gates, int padded, packed *w) {
    const int64_t size = c->block_size, width = c->num_blocks * size;
    const int64_t per_vector = LANES / padded;
    w->vectors = (c->num_blocks + per_vector - 1) / per_vector;
    w->full = padded == size ? c->num_blocks / per_vector : 0;
    w->units = per_vector * size;
    w->record = INPUT(gates, padded) + gates * c->inputs;
    w->records = aligned_alloc(64, round_up(w->vectors * w->record * sizeof(vec)));
    w->lanes = malloc(w->vectors * sizeof *w->lanes);
    if (!w->records || !w->lanes) return 1;

    const REAL *weight = c->weight_hh, *bias_ih = c->bias_ih, *bias_hh = c->bias_hh, *weight_ih = c->weight_ih;
    memset(w->records, 0, w->vectors * w->record * sizeof(vec));
    for (int64_t v = 0; v < w->vectors; v++) {
        vec *record = w->records + v * w->record;
        for (int lane = 0; lane < LANES; lane++) {
            const int64_t k = v * per_vector + lane / padded, i = lane % padded;
            const int empty = k >= c->num_blocks || i >= size;
            w->lanes[v][lane] = empty ? -1 : (int32_t)(lane / padded * size + i);
            if (empty) continue;
            for (int g = 0; g < gates; g++) {
                const int64_t unit = g * width + k * size + i;
                for (int r = 0; r < padded; r++)
                    if ((i ^ r) < size) record[g * padded + r][lane] = weight[unit * size + (i ^ r)];
                const REAL recurrent = bias_hh ? bias_hh[unit] : 0;
                const int apart = gates == 3 && g == 2; /* the reset gate comes between the two biases of the new gate */
                record[BIAS(gates, padded) + g][lane] = (bias_ih ? bias_ih[unit] : 0) + (apart ? 0 : recurrent);
                if (apart) record[NEW_BIAS(gates, padded)][lane] = recurrent;
                for (int64_t j = 0; j < c->inputs; j++)
                    record[INPUT(gates, padded) + j * gates + g][lane] = weight_ih[unit * c->inputs + j];
            }
        }
    }
    return 0;
}

/* Add the sums of one vector's record, over all rows and steps, to the gradients. */
static void NAME(add_gradients)(const backward_call *call, const packed *w, int gates, int padded, int64_t v,
                                const double (*sums)[LANES]) {
    const chunk *c = &call->chunk;
    const int64_t size = c->block_size, width = c->num_blocks * size;
    REAL *weight = call->grad_weight_hh, *bias_ih = call->grad_bias_ih, *bias_hh = call->grad_bias_hh;
    REAL *weight_ih = call->grad_weight_ih;
    for (int lane = 0; lane < LANES; lane++) {
        if (w->lanes[v][lane] < 0) continue;
        const int64_t i = lane % padded;
        for (int g = 0; g < gates; g++) {
            const int64_t unit = g * width + v * w->units + w->lanes[v][lane];
            if (weight)
                for (int r = 0; r < padded; r++)
                    if ((i ^ r) < size) weight[unit * size + (i ^ r)] += (REAL)sums[g * padded + r][lane];
            const int apart = gates == 3 && g == 2;
            if (bias_ih) bias_ih[unit] += (REAL)sums[BIAS(gates, padded) + g][lane];
            if (bias_hh) bias_hh[unit] += (REAL)sums[apart ? NEW_BIAS(gates, padded) : BIAS(gates, padded) + g][lane];
            if (weight_ih)
                for (int64_t j = 0; j < c->inputs; j++)
                    weight_ih[unit * c->inputs + j] += (REAL)sums[INPUT(gates, padded) + j * gates + g][lane];
        }
    }
}

#define GROUP 16 /* vectors */
#define LOAD(row) (full ? load((row) + from) : load_at((row) + from, w->lanes[v]))
#define STORE(row, value) (full ? store((row) + from, value) : store_at((row) + from, w->lanes[v], value))

/* The pre-activations of a vector: a (G,), without the recurrent part of a GRU's new gate, which is new_part. */
static INLINE vec NAME(combine)(const vec *weight, const REAL *x, int64_t inputs, vec h, vec *a, const int gates,
                                const int D) {
    const vec *input = weight + INPUT(gates, D);
    vec new_part = weight[NEW_BIAS(gates, D)];
    for (int g = 0; g < gates; g++) a[g] = weight[BIAS(gates, D) + g];
    for (int64_t j = 0; j < inputs; j++)
        for (int g = 0; g < gates; g++) a[g] += input[j * gates + g] * broadcast(x[j]);
    for (int r = 0; r < D; r++) {
        const vec h_r = exchange(h, r);
        for (int g = 0; g < gates; g++) {
            if (gates == 3 && g == 2) new_part += weight[g * D + r] * h_r;
            else a[g] += weight[g * D + r] * h_r;
        }
    }
    return new_part;
}

/* One step of one row in the vectors v to end. `full`: their lanes are neighbours in memory.
 *
 * A gated cell is a long chain of dependent operations, longer than a processor looks ahead. So it runs in two stages,
 * each over a group of independent vectors. */
static INLINE void NAME(forward_vectors)(const forward_call *call, const packed *w, const row at, int64_t v, int64_t end,
                                         const int64_t inputs, const int mode, const int gates, const int D,
                                         const int full) {
    const int64_t width = call->chunk.num_blocks * call->chunk.block_size;
    const int keep_gates = gates > 1 && call->chunk.gates;
    const int64_t record = w->record, units = w->units;
    const vec *weight = w->records + v * record;
    vec a[GROUP][4], new_part[GROUP];
    for (int64_t from = v * units; v < end;) {
        const int count = end - v < GROUP ? (int)(end - v) : GROUP;
        const int64_t group_v = v, group_from = from;
        for (int n = 0; n < count; n++, v++, from += units, weight += record) {
            new_part[n] = NAME(combine)(weight, at.x, inputs, LOAD(at.h_before), a[n], gates, D);
            if (!inputs)
                for (int g = 0; g < gates; g++) a[n][g] += LOAD(at.projected + g * width);
            if (gates == 1) STORE(at.output, activate(a[n][0], mode));
            else NAME(activate_gates)(a[n], gates);
        }
        if (gates == 1) continue;
        v = group_v;
        from = group_from;
        for (int n = 0; n < count; n++, v++, from += units) {
            if (gates == 4) {
                const vec cell = NAME(lstm)(a[n], LOAD(at.c_before));
                STORE(at.cells, cell);
                STORE(at.output, a[n][3] * vtanh(cell));
            } else {
                STORE(at.output, NAME(gru)(a[n], new_part[n], LOAD(at.h_before)));
            }
            if (keep_gates)
                for (int g = 0; g < gates; g++) STORE(at.gates + g * width, a[n][g]);
        }
    }
}

/* The step's backward, for the same vectors; `sum` collects what is added up over rows and steps. */
static INLINE void NAME(backward_vectors)(const backward_call *call, const packed *w, vec *sum, const row at, int64_t v,
                                          int64_t end, const int64_t inputs, const int mode, const int gates,
                                          const int D, const int full) {
    const int64_t width = call->chunk.num_blocks * call->chunk.block_size;
    const int has_gates = call->chunk.gates != NULL, has_grad_output = call->grad_output != NULL;
    const int needs_gates = call->grad_gates != NULL, needs_inputs = call->grad_weight_ih != NULL;
    const int64_t record = w->record, units = w->units;
    const vec *weight = w->records + v * record;
    vec a[GROUP][4], tanh_c[GROUP];
    for (int64_t from = v * units; v < end;) {
        const int count = end - v < GROUP ? (int)(end - v) : GROUP;
        const int64_t group_v = v, group_from = from;
        if (gates > 1) {
            const vec *group_weight = weight;
            for (int n = 0; n < count; n++, v++, from += units, group_weight += record) {
                if (has_gates) {
                    for (int g = 0; g < gates; g++) a[n][g] = LOAD(at.gates + g * width);
                } else {
                    const vec h_before = LOAD(at.h_before);
                    const vec new_part = NAME(combine)(group_weight, at.x, inputs, h_before, a[n], gates, D);
                    NAME(activate_gates)(a[n], gates);
                    if (gates == 3) NAME(gru)(a[n], new_part, h_before);
                }
                if (gates == 4) tanh_c[n] = vtanh(LOAD(at.cells));
            }
            v = group_v;
            from = group_from;
        }
        for (int n = 0; n < count; n++, v++, from += units, weight += record, sum += record) {
            vec d[4], neighbours[LANES], grad = LOAD(at.grad_h), grad_new = broadcast(0), direct = broadcast(0);
            const vec h_before = LOAD(at.h_before);
            for (int r = 0; r < D; r++) neighbours[r] = exchange(h_before, r);
            if (has_grad_output) grad += LOAD(at.grad_output);

            if (gates == 1) {
                d[0] = grad * slope(LOAD(at.output), mode);
            } else if (gates == 4) {
                vec grad_cell = LOAD(at.grad_c);
                NAME(lstm_backward)(d, a[n], tanh_c[n], LOAD(at.c_before), grad, &grad_cell);
                STORE(at.grad_c, grad_cell);
            } else {
                vec new_part = weight[NEW_BIAS(gates, D)];
                for (int r = 0; r < D; r++) new_part += weight[2 * D + r] * neighbours[r];
                grad_new = NAME(gru_backward)(d, a[n], new_part, h_before, grad, &direct);
            }
            if (!full) { /* an input of infinity times a weight of zero is NaN, which must not leave an empty lane */
                for (int g = 0; g < gates; g++) d[g] = only_at(w->lanes[v], d[g]);
                grad_new = only_at(w->lanes[v], grad_new);
                direct = only_at(w->lanes[v], direct);
            }
            if (needs_gates)
                for (int g = 0; g < gates; g++) STORE(at.grad_gates + g * width, d[g]);
            if (needs_inputs)
                for (int64_t j = 0; j < inputs; j++)
                    for (int g = 0; g < gates; g++) sum[INPUT(gates, D) + j * gates + g] += d[g] * broadcast(at.x[j]);
            for (int g = 0; g < gates; g++) sum[BIAS(gates, D) + g] += d[g];

            if (gates == 3) { /* from here on, the gradients of the recurrent parts */
                sum[NEW_BIAS(gates, D)] += grad_new;
                d[2] = grad_new;
            }
            for (int r = 0; r < D; r++) {
                vec back = broadcast(0);
                for (int g = 0; g < gates; g++) {
                    sum[g * D + r] += d[g] * neighbours[r];
                    back += weight[g * D + r] * d[g];
                }
                direct += exchange(back, r);
            }
            STORE(at.grad_h, direct);
        }
    }
}

/* No input and one input are frequent, and short loops cost more than their bodies. */
#define FOR_INPUTS(run) \
    if (c->inputs == 0) run(0); \
    else if (c->inputs == 1) run(1); \
    else run(c->inputs);

static INLINE void NAME(small_forward_task)(const forward_call *call, const packed *w, task task, const int mode,
                                            const int gates, const int D) {
    const chunk *c = &call->chunk;
    const int64_t width = c->num_blocks * c->block_size;
    const int64_t full = task.part_end < w->full ? task.part_end : w->full > task.part ? w->full : task.part;
    const int64_t from = task.part * w->units, to = task.part_end == w->vectors ? width : task.part_end * w->units;
    row rows[MAX_ROWS];
    for (tile tile = first_tile(task, width * sizeof(REAL)); tile.begin < tile.end; tile = next_tile(tile, task)) {
        for (int64_t s = 0; s < c->steps; s++) {
            const int count = NAME(forward_tile)(call, c->reverse ? c->steps - 1 - s : s, tile, from, to, gates, rows);
            for (int n = 0; n < count; n++) {
#define RUN(inputs) NAME(forward_vectors)(call, w, rows[n], task.part, full, inputs, mode, gates, D, 1)
                FOR_INPUTS(RUN)
#undef RUN
                NAME(forward_vectors)(call, w, rows[n], full, task.part_end, c->inputs, mode, gates, D, 0);
            }
        }
        NAME(keep_state)(call, tile, from, to);
    }
}

/* Sums in REAL lose digits over many steps: every so many steps they are added to sums in double. */
#define STEPS_PER_SUM 32

static INLINE void NAME(small_backward_task)(const backward_call *call, const packed *w, task task, vec *sums,
                                             double (*totals)[LANES], const int mode, const int gates, const int D) {
    const chunk *c = &call->chunk;
    const int64_t width = c->num_blocks * c->block_size;
    const int64_t full = task.part_end < w->full ? task.part_end : w->full > task.part ? w->full : task.part;
    const int64_t from = task.part * w->units, to = task.part_end == w->vectors ? width : task.part_end * w->units;
    const int64_t size = (task.part_end - task.part) * w->record;
    row rows[MAX_ROWS];
    memset(sums, 0, size * sizeof *sums);
    memset(totals, 0, size * sizeof *totals);
    for (tile tile = first_tile(task, width * sizeof(REAL)); tile.begin < tile.end; tile = next_tile(tile, task)) {
        for (int64_t s = c->steps - 1; s >= 0; s--) {
            const int count = NAME(backward_tile)(call, c->reverse ? c->steps - 1 - s : s, tile, from, to, gates, rows);
            for (int n = 0; n < count; n++) {
#define RUN(inputs) NAME(backward_vectors)(call, w, sums, rows[n], task.part, full, inputs, mode, gates, D, 1)
                FOR_INPUTS(RUN)
#undef RUN
                NAME(backward_vectors)(call, w, sums + (full - task.part) * w->record, rows[n], full, task.part_end,
                                       c->inputs, mode, gates, D, 0);
            }
            if (s % STEPS_PER_SUM) continue;
            for (int64_t n = 0; n < size; n++)
                for (int lane = 0; lane < LANES; lane++) totals[n][lane] += sums[n][lane];
            memset(sums, 0, size * sizeof *sums);
        }
    }
}

/* One copy of a task for each cell and padded block size, with both known at compile time. */
#define INSTANCE(cell, mode, gates, D) \
    static void NAME(forward_##cell##_##D)(const forward_call *call, const packed *w, task task) { \
        NAME(small_forward_task)(call, w, task, mode, gates, D); \
    } \
    static void NAME(backward_##cell##_##D)(const backward_call *call, const packed *w, task task, vec *sums, \
                                            double (*totals)[LANES]) { \
        NAME(small_backward_task)(call, w, task, sums, totals, mode, gates, D); \
    }
#define INSTANCES(D) \
    INSTANCE(tanh, RNN_TANH, 1, D) \
    INSTANCE(other, call->chunk.mode, 1, D) \
    INSTANCE(lstm, LSTM, 4, D) \
    INSTANCE(gru, GRU, 3, D)
#define FUNCTIONS(D) \
    { \
        {NAME(forward_tanh_##D), NAME(backward_tanh_##D)}, {NAME(forward_other_##D), NAME(backward_other_##D)}, \
        {NAME(forward_lstm_##D), NAME(backward_lstm_##D)}, {NAME(forward_gru_##D), NAME(backward_gru_##D)}, \
    }

INSTANCES(1)
INSTANCES(2)
#if LANES >= 4
INSTANCES(4)
#endif
#if LANES >= 8
INSTANCES(8)
#endif
#if LANES >= 16
INSTANCES(16)
#endif

#define instance NAME(instance)
typedef struct {
    void (*forward)(const forward_call *, const packed *, task);
    void (*backward)(const backward_call *, const packed *, task, vec *, double (*)[LANES]);
} instance;

static instance NAME(instance_for)(int mode, int padded) {
    static const instance instances[][4] = {
        FUNCTIONS(1),
        FUNCTIONS(2),
#if LANES >= 4
        FUNCTIONS(4),
#endif
#if LANES >= 8
        FUNCTIONS(8),
#endif
#if LANES >= 16
        FUNCTIONS(16),
#endif
    };
    int size = 0;
    while (1 << size < padded) size++;
    return instances[size][mode == RNN_TANH ? 0 : mode == LSTM ? 2 : mode == GRU ? 3 : 1];
}

static int NAME(padded_size)(int64_t block_size) {
    int padded = 1;
    while (padded < block_size) padded *= 2;
    return padded;
}

/* Tasks are divided at pairs of vectors: a pair is a cache line, which two threads should not share. */
#define small_parts(w) (((w)->vectors + 1) / 2)
static task NAME(as_vectors)(task t, const packed *w) {
    t.part *= 2;
    t.part_end = 2 * t.part_end < w->vectors ? 2 * t.part_end : w->vectors;
    return t;
}

static int NAME(small_forward)(const forward_call *call) {
    const chunk *c = &call->chunk;
    const int padded = NAME(padded_size)(c->block_size);
    packed w = {0};
    int failed = NAME(pack)(c, GATES_OF(c->mode), padded, &w);
    if (!failed) {
        const instance run = NAME(instance_for)(c->mode, padded);
        const division d = divide(c, small_parts(&w));
        FOR_TASKS(n, d.count)
            run.forward(call, &w, NAME(as_vectors)(take(c, small_parts(&w), d, n), &w));
    }
    NAME(free_packed)(&w);
    return failed;
}

static int NAME(small_backward)(const backward_call *call) {
    const chunk *c = &call->chunk;
    const int gates = GATES_OF(c->mode), padded = NAME(padded_size)(c->block_size);
    packed w = {0};
    int failed = NAME(pack)(c, gates, padded, &w);
    if (!failed) {
        const instance run = NAME(instance_for)(c->mode, padded);
        const division d = divide(c, small_parts(&w));
        const int64_t most = w.vectors * w.record; /* vectors of sums that a task may have */
        vec *sums = aligned_alloc(64, round_up(d.count * most * sizeof *sums));
        double (*totals)[LANES] = malloc(d.count * most * sizeof *totals);
        failed = !sums || !totals;
        if (!failed) {
            FOR_TASKS(n, d.count)
                run.backward(call, &w, NAME(as_vectors)(take(c, small_parts(&w), d, n), &w), sums + n * most,
                             totals + n * most);
            for (int64_t n = 0; n < d.count; n++) {
                const task t = NAME(as_vectors)(take(c, small_parts(&w), d, n), &w);
                for (int64_t v = t.part; v < t.part_end; v++)
                    NAME(add_gradients)(call, &w, gates, padded, v, totals + n * most + (v - t.part) * w.record);
            }
        }
        free(sums);
        free(totals);
    }
    NAME(free_packed)(&w);
    return failed;
}
