/* Attention with very narrow heads: softmax(q k' / scale) v for many heads of a few numbers each. A template like
 * vectors.h.
 *
 * Lanes are heads, so a score is `width` multiply-adds for a whole vector of heads. The matrices of scores, one for
 * each head, never exist in memory: backward recomputes them.
 */
#define vexp NAME(vexp)
/* exp(x) = 2^n e^r with |r| <= ln(2)/2, for x <= 0, by Taylor's series; 0 where the result would be subnormal.
 * Relative error below 2e-7 in float and 1e-15 in double. */
#if IS_DOUBLE
static INLINE vec vexp(vec x) {
    const double shift = 0x1.8p52, least = -708.0; /* adding shift rounds to an integer, which ends up in the low bits */
    vec shifted = at_least(x, least) * broadcast(0x1.71547652b82fep0) + broadcast(shift);
    vec n = shifted - broadcast(shift);
    vec r = at_least(x, least) - n * broadcast(0x1.62e42fefa38p-1); /* ln 2 in two parts; n times the first is exact */
    r = r - n * broadcast(0x1.ef35793c7673p-45);
    vec p = broadcast(1.0 / 6227020800.0);
    const double factorials[] = {479001600, 39916800, 3628800, 362880, 40320, 5040, 720, 120, 24, 6, 2, 1, 1};
    for (int i = 0; i < 13; i++) p = p * r + broadcast(1.0 / factorials[i]);
    vec scale = (vec)(((mask)shifted << 52) + (mask)broadcast(1.0));
    return choose(x < broadcast(least), broadcast(0), scale * p);
}
#else
static INLINE vec vexp(vec x) {
    const float shift = 0x1.8p23f, least = -87.0f;
    vec shifted = at_least(x, least) * broadcast(0x1.715476p0f) + broadcast(shift);
    vec n = shifted - broadcast(shift);
    vec r = at_least(x, least) - n * broadcast(0x1.62e4p-1f);
    r = r - n * broadcast(0x1.7f7d1cp-20f);
    vec p = broadcast(1.0f / 720);
    const float factorials[] = {120, 24, 6, 2, 1, 1};
    for (int i = 0; i < 6; i++) p = p * r + broadcast(1.0f / factorials[i]);
    vec scale = (vec)(((mask)shifted << 23) + (mask)broadcast(1.0f));
    return choose(x < broadcast(least), broadcast(0), scale * p);
}
#endif

#define larger NAME(larger)
static INLINE vec larger(vec a, vec b) { return choose(a < b, b, a); } /* a NaN in b survives in what follows */

/* Load up to LANES heads of one row (..., heads * width): lane i of part d is number d of head first + i, or zero. */
#define load_heads NAME(load_heads)
static INLINE void load_heads(const REAL *row, int64_t first, int64_t heads, int width, vec *parts) {
    REAL lanes[MAX_WIDTH][LANES];
    const int64_t count = heads - first < LANES ? heads - first : LANES;
    for (int d = 0; d < width; d++)
        for (int64_t i = 0; i < LANES; i++) lanes[d][i] = i < count ? row[(first + i) * width + d] : 0;
    for (int d = 0; d < width; d++) parts[d] = load(lanes[d]);
}

#define store_heads NAME(store_heads)
static INLINE void store_heads(REAL *row, int64_t first, int64_t heads, int width, const vec *parts) {
    REAL lanes[LANES];
    const int64_t count = heads - first < LANES ? heads - first : LANES;
    for (int d = 0; d < width; d++) {
        store(lanes, parts[d]);
        for (int64_t i = 0; i < count; i++) row[(first + i) * width + d] = lanes[i];
    }
}

/* The memory of one task: the keys and values of LANES heads that are not ignored, and their scores. */
typedef struct {
    vec *keys, *values, *grad_keys, *grad_values; /* (keys, width) */
    vec *scores;                                  /* (keys,) */
    int64_t *where;                               /* the position of each among all keys */
    int64_t count;
} NAME(key_set);

static INLINE void NAME(load_keys)(
    const attention_call *call, int64_t b, int64_t first, int width, NAME(key_set) *seen) {
    const int64_t size = call->heads * width;
    const REAL *keys = (const REAL *)call->k + b * call->keys * size;
    const REAL *values = (const REAL *)call->v + b * call->keys * size;
    seen->count = 0;
    for (int64_t j = 0; j < call->keys; j++) {
        if (call->ignored && call->ignored[b * call->keys + j]) continue;
        load_heads(keys + j * size, first, call->heads, width, seen->keys + seen->count * width);
        load_heads(values + j * size, first, call->heads, width, seen->values + seen->count * width);
        seen->where[seen->count++] = j;
    }
}

static INLINE vec NAME(dot)(const vec *a, const vec *b, int width) {
    vec sum = a[0] * b[0];
    for (int d = 1; d < width; d++) sum += a[d] * b[d];
    return sum;
}

static INLINE void NAME(attend_forward)(
    const attention_call *call, int64_t b, int64_t first, int width, const NAME(key_set) *seen) {
    const int64_t size = call->heads * width;
    const vec factor = broadcast((REAL)call->factor);
    for (int64_t i = 0; i < call->queries; i++) {
        const int64_t row = b * call->queries + i;
        vec q[MAX_WIDTH], sums[MAX_WIDTH], total = broadcast(0), top = broadcast(-INFINITY);
        load_heads((const REAL *)call->q + row * size, first, call->heads, width, q);
        for (int d = 0; d < width; d++) q[d] *= factor, sums[d] = broadcast(0);
        for (int64_t j = 0; j < seen->count; j++) {
            seen->scores[j] = NAME(dot)(q, seen->keys + j * width, width);
            top = larger(top, seen->scores[j]);
        }
        for (int64_t j = 0; j < seen->count; j++) {
            const vec weight = vexp(seen->scores[j] - top);
            total += weight;
            for (int d = 0; d < width; d++) sums[d] += weight * seen->values[j * width + d];
        }
        const vec inverse = seen->count ? broadcast(1) / total : broadcast(0);
        for (int d = 0; d < width; d++) sums[d] *= inverse;
        store_heads((REAL *)call->output + row * size, first, call->heads, width, sums);
        if (call->top) {
            store_heads((REAL *)call->top + row * call->heads, first, call->heads, 1, &top);
            store_heads((REAL *)call->inverse + row * call->heads, first, call->heads, 1, &inverse);
        }
    }
}

static INLINE void NAME(attend_backward)(
    const attention_call *call, int64_t b, int64_t first, int width, const NAME(key_set) *seen) {
    const int64_t size = call->heads * width;
    const vec factor = broadcast((REAL)call->factor);
    for (int64_t j = 0; j < seen->count * width; j++) seen->grad_keys[j] = seen->grad_values[j] = broadcast(0);
    for (int64_t i = 0; i < call->queries; i++) {
        const int64_t row = b * call->queries + i;
        vec q[MAX_WIDTH], grad[MAX_WIDTH], output[MAX_WIDTH], grad_q[MAX_WIDTH], top, inverse;
        load_heads((const REAL *)call->q + row * size, first, call->heads, width, q);
        load_heads((const REAL *)call->grad_output + row * size, first, call->heads, width, grad);
        load_heads((const REAL *)call->output + row * size, first, call->heads, width, output);
        load_heads((const REAL *)call->top + row * call->heads, first, call->heads, 1, &top);
        load_heads((const REAL *)call->inverse + row * call->heads, first, call->heads, 1, &inverse);
        for (int d = 0; d < width; d++) q[d] *= factor, grad_q[d] = broadcast(0);
        const vec mean = NAME(dot)(grad, output, width);
        for (int64_t j = 0; j < seen->count; j++) {
            const vec *key = seen->keys + j * width, *value = seen->values + j * width;
            vec *grad_key = seen->grad_keys + j * width, *grad_value = seen->grad_values + j * width;
            const vec weight = vexp(NAME(dot)(q, key, width) - top) * inverse;
            const vec grad_score = weight * (NAME(dot)(grad, value, width) - mean);
            for (int d = 0; d < width; d++) {
                grad_value[d] += weight * grad[d];
                grad_key[d] += grad_score * q[d]; /* q holds the factor already */
                grad_q[d] += grad_score * key[d];
            }
        }
        for (int d = 0; d < width; d++) grad_q[d] *= factor;
        store_heads((REAL *)call->grad_q + row * size, first, call->heads, width, grad_q);
    }
    for (int64_t n = 0; n < seen->count; n++) { /* the caller has set those that are ignored to zero */
        const int64_t at = (b * call->keys + seen->where[n]) * size;
        store_heads((REAL *)call->grad_k + at, first, call->heads, width, seen->grad_keys + n * width);
        store_heads((REAL *)call->grad_v + at, first, call->heads, width, seen->grad_values + n * width);
    }
}

/* If the compiler knows the width, parts of heads stay in registers. */
#define FOR_WIDTH(function, ...) \
    switch (call->width) { \
    case 1: function(__VA_ARGS__, 1, &seen); break; \
    case 2: function(__VA_ARGS__, 2, &seen); break; \
    case 3: function(__VA_ARGS__, 3, &seen); break; \
    default: function(__VA_ARGS__, 4, &seen); break; \
    }

static int NAME(attention)(const attention_call *call) {
    const int64_t tiles = (call->heads + LANES - 1) / LANES, items = call->batch * tiles;
    const int64_t threads = call->threads < items ? (call->threads < 1 ? 1 : call->threads) : items;
    const int training = call->grad_output != NULL;
    const size_t parts = (size_t)(call->keys * call->width), vectors = parts * (training ? 4 : 2) + (size_t)call->keys;
    const size_t bytes = round_up(vectors * sizeof(vec)) + round_up((size_t)call->keys * sizeof(int64_t)) + 64;
    if (items == 0) return 0;
    char *memory = aligned_alloc(64, bytes * (size_t)threads);
    if (memory == NULL) return 1;
    FOR_TASKS(n, threads) {
        vec *from = (vec *)(memory + bytes * (size_t)n);
        NAME(key_set) seen = {.keys = from, .values = from + parts, .scores = from + 2 * parts};
        seen.grad_keys = seen.scores + call->keys;
        seen.grad_values = seen.grad_keys + parts;
        seen.where = (int64_t *)((char *)from + round_up(vectors * sizeof(vec)));
        for (int64_t item = items * n / threads; item < items * (n + 1) / threads; item++) {
            const int64_t b = item / tiles, first = item % tiles * LANES;
            FOR_WIDTH(NAME(load_keys), call, b, first)
            if (training) {
                FOR_WIDTH(NAME(attend_backward), call, b, first)
            } else {
                FOR_WIDTH(NAME(attend_forward), call, b, first)
            }
        }
    }
    free(memory);
    return 0;
}
#undef FOR_WIDTH
