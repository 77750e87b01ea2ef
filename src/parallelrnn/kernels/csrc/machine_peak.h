/* Work of known size, which the caller times to find peak rates. A template like vectors.h, for float. */

/* `rounds` times 12 independent multiply-adds per thread. */
static void NAME(multiply_add)(int64_t rounds, int32_t threads, float *result) {
    FOR_TASKS(n, (int64_t)threads) {
        vec a[12], factor = broadcast(0.999f), term = broadcast(0.001f);
        for (int i = 0; i < 12; i++) a[i] = broadcast((float)(n + i));
        for (int64_t round = 0; round < rounds; round++)
            for (int i = 0; i < 12; i++) a[i] = a[i] * factor + term;
        for (int i = 1; i < 12; i++) a[0] += a[i];
        store(result + n * LANES, a[0]);
    }
}

/* `rounds` times tanh of 1024 numbers per thread, which stay in the first-level cache. */
static void NAME(activations)(int64_t rounds, int32_t threads, float *result) {
    FOR_TASKS(n, (int64_t)threads) {
        float values[1024];
        for (int i = 0; i < 1024; i++) values[i] = (float)(i % 17) - 8;
        for (int64_t round = 0; round < rounds; round++)
            for (int i = 0; i < 1024; i += LANES) store(values + i, vtanh(load(values + i)));
        store(result + n * LANES, load(values));
    }
}

/* a = b + 3 c over `size` numbers, a part for each thread: 12 bytes per number, or 16 with the read before a write. */
static void NAME(triad)(int64_t size, int32_t threads, float *memory) {
    float *a = memory, *b = memory + size, *c = memory + 2 * size;
    FOR_TASKS(n, (int64_t)threads)
        for (int64_t i = size * n / threads; i < size * (n + 1) / threads; i++) a[i] = b[i] + 3 * c[i];
}
