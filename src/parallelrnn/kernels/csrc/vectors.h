/* Vectors of LANES numbers of type REAL by the compiler's vector extensions: one source for every instruction set.
 *
 * A template: the file that includes it defines REAL, INTEGER (of the same size), LANES, IS_DOUBLE and NAME(x), which
 * makes x unique.
 */
#define vec NAME(vec)
#define mask NAME(mask)

typedef REAL vec __attribute__((vector_size(LANES * sizeof(REAL))));
typedef INTEGER mask __attribute__((vector_size(LANES * sizeof(REAL))));
typedef REAL NAME(unaligned) __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

#define load NAME(load)
static INLINE vec load(const REAL *from) { return *(const NAME(unaligned) *)from; }

#define store NAME(store)
static INLINE void store(REAL *to, vec v) { *(NAME(unaligned) *)to = v; }

#define broadcast NAME(broadcast)
static INLINE vec broadcast(REAL a) { return a - (vec){0}; }

/* at: the positions of the lanes in a row, -1 for empty lanes. */
#define load_at NAME(load_at)
static INLINE vec load_at(const REAL *row, const int32_t *at) {
    REAL lanes[LANES];
    for (int i = 0; i < LANES; i++) lanes[i] = at[i] < 0 ? 0 : row[at[i]];
    return load(lanes);
}

#define store_at NAME(store_at)
static INLINE void store_at(REAL *row, const int32_t *at, vec v) {
    REAL lanes[LANES];
    store(lanes, v);
    for (int i = 0; i < LANES; i++)
        if (at[i] >= 0) row[at[i]] = lanes[i];
}

/* Zero in the empty lanes. */
#define only_at NAME(only_at)
static INLINE vec only_at(const int32_t *at, vec v) {
    for (int i = 0; i < LANES; i++)
        if (at[i] < 0) v[i] = 0;
    return v;
}

/* Lane i gets lane i ^ r: neighbours for r = 1. Within aligned groups of D lanes it visits every lane for r < D. */
#define exchange NAME(exchange)
#if LANES == 2
#define LANES_XOR(r) 0 ^ r, 1 ^ r
#elif LANES == 4
#define LANES_XOR(r) 0 ^ r, 1 ^ r, 2 ^ r, 3 ^ r
#elif LANES == 8
#define LANES_XOR(r) 0 ^ r, 1 ^ r, 2 ^ r, 3 ^ r, 4 ^ r, 5 ^ r, 6 ^ r, 7 ^ r
#elif LANES == 16
#define LANES_XOR(r) \
    0 ^ r, 1 ^ r, 2 ^ r, 3 ^ r, 4 ^ r, 5 ^ r, 6 ^ r, 7 ^ r, \
    8 ^ r, 9 ^ r, 10 ^ r, 11 ^ r, 12 ^ r, 13 ^ r, 14 ^ r, 15 ^ r
#endif
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(v, r) __builtin_shufflevector(v, v, LANES_XOR(r))
#else
#define SHUFFLE(v, r) __builtin_shuffle(v, (mask){LANES_XOR(r)})
#endif
static INLINE vec exchange(vec v, int r) {
    switch (r) {
    case 1: return SHUFFLE(v, 1);
#if LANES >= 4
    case 2: return SHUFFLE(v, 2);
    case 3: return SHUFFLE(v, 3);
#endif
#if LANES >= 8
    case 4: return SHUFFLE(v, 4);
    case 5: return SHUFFLE(v, 5);
    case 6: return SHUFFLE(v, 6);
    case 7: return SHUFFLE(v, 7);
#endif
#if LANES >= 16
    case 8: return SHUFFLE(v, 8);
    case 9: return SHUFFLE(v, 9);
    case 10: return SHUFFLE(v, 10);
    case 11: return SHUFFLE(v, 11);
    case 12: return SHUFFLE(v, 12);
    case 13: return SHUFFLE(v, 13);
    case 14: return SHUFFLE(v, 14);
    case 15: return SHUFFLE(v, 15);
#endif
    default: return v;
    }
}

#define choose NAME(choose)
static INLINE vec choose(mask which, vec yes, vec no) {
    return (vec)((which & (mask)yes) | (~which & (mask)no));
}

/* The processor's own min and max, with the operands in the order that keeps NaN; compilers do not emit them. */
#define at_most NAME(at_most)
#define at_least NAME(at_least)
#if defined(__x86_64__)
#if VECTOR_BYTES == 16
#define X86(operation) _mm_##operation
#elif VECTOR_BYTES == 32
#define X86(operation) _mm256_##operation
#else
#define X86(operation) _mm512_##operation
#endif
#if IS_DOUBLE
static INLINE vec at_most(vec v, REAL bound) { return (vec)X86(min_pd)(broadcast(bound), v); }
static INLINE vec at_least(vec v, REAL bound) { return (vec)X86(max_pd)(broadcast(bound), v); }
#else
static INLINE vec at_most(vec v, REAL bound) { return (vec)X86(min_ps)(broadcast(bound), v); }
static INLINE vec at_least(vec v, REAL bound) { return (vec)X86(max_ps)(broadcast(bound), v); }
#endif
#undef X86
#else
static INLINE vec at_most(vec v, REAL bound) { return choose(v > broadcast(bound), broadcast(bound), v); }
static INLINE vec at_least(vec v, REAL bound) { return choose(v < broadcast(bound), broadcast(bound), v); }
#endif
