/* Calls every kernel at odd sizes, on heap memory of exactly the size that recurrence.h states, which a sanitizer or
 * valgrind watches: stress/sanitizers.py builds it with the kernels and runs it.
 *
 *     kernels [every]      every n-th case only (default: all)
 *
 * What a kernel has to write is not initialised before, and is looked at after: what it left out shows.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recurrence.h"

const instruction_set *parallelrnn_instruction_set(int32_t index);

#if defined(OWN_THREADS)
/* What the compiler makes of an OpenMP loop calls these three. With plain threads in them the thread sanitizer sees who
 * waits for whom, which it cannot in OpenMP's own library. */
#include <pthread.h>

typedef struct {
    void (*run)(void *);
    void *data;
    int number, count;
} share;
static __thread int own_number = 0, own_count = 1;

static void *start(void *given) {
    const share *own = given;
    own_number = own->number;
    own_count = own->count;
    own->run(own->data);
    own_number = 0;
    own_count = 1;
    return NULL;
}

int omp_get_thread_num(void) { return own_number; }
int omp_get_num_threads(void) { return own_count; }
void GOMP_parallel(void (*run)(void *), void *data, unsigned count, unsigned flags) {
    (void)flags;
    pthread_t *threads = malloc(count * sizeof *threads);
    share *shares = malloc(count * sizeof *shares);
    for (unsigned n = 0; n < count; n++) shares[n] = (share){run, data, (int)n, (int)count};
    for (unsigned n = 1; n < count; n++)
        if (pthread_create(&threads[n], NULL, start, &shares[n])) abort();
    start(&shares[0]);
    for (unsigned n = 1; n < count; n++) pthread_join(threads[n], NULL);
    free(threads);
    free(shares);
}
#endif

static uint64_t drawn = 1;
static uint64_t draw(uint64_t below) {
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (drawn >> 33) % below;
}

/* All memory of a case, to be looked at and freed together. */
typedef struct {
    void *memory;
    int64_t count; /* of numbers */
    int size;      /* of a number, in bytes */
} array;
static array arrays[64];
static int num_arrays = 0;

static void *room(int64_t count, int size) {
    void *memory = malloc((size_t)(count * size));
    if (!memory) abort();
    arrays[num_arrays++] = (array){memory, count, size};
    return memory;
}

static void *numbers(int64_t count, int size) {
    void *memory = room(count, size);
    for (int64_t i = 0; i < count; i++) {
        const double number = (double)draw(2001) / 1000 - 1;
        if (size == 4) ((float *)memory)[i] = (float)number;
        else ((double *)memory)[i] = number;
    }
    return memory;
}

static void *copy(const void *from, int64_t count, int size) {
    return from ? memcpy(room(count, size), from, (size_t)(count * size)) : NULL;
}

static void look_and_free(void) {
    for (int n = 0; n < num_arrays; n++) {
        for (int64_t i = 0; i < arrays[n].count && arrays[n].size >= 4; i++) {
            const double number = arrays[n].size == 4 ? ((float *)arrays[n].memory)[i] : ((double *)arrays[n].memory)[i];
            if (!isfinite(number)) {
                fprintf(stderr, "array %d of %d, number %ld: %g is not finite\n", n, num_arrays, (long)i, number);
                exit(1);
            }
        }
        free(arrays[n].memory);
    }
    num_arrays = 0;
}

static void run(int failed) {
    if (failed) abort();
}

static void recurrence(const instruction_set *table, int kind, int mode, int64_t block_size, int64_t batch,
                       int64_t num_blocks, int64_t steps, int32_t threads) {
    const int size = kind ? 8 : 4, gates = mode == LSTM ? 4 : mode == GRU ? 3 : 1;
    const int64_t width = num_blocks * block_size, all = steps * batch * width, columns[] = {0, 1, 3, 8};
    const int small = block_size <= table->lanes[kind], bias = (int)draw(2), training = (int)draw(4) > 0;
    const int64_t inputs = small ? columns[draw(4)] : 0; /* 0: projected before */
    int64_t *real_steps = draw(2) ? malloc((size_t)batch * sizeof *real_steps) : NULL;
    for (int64_t b = 0; real_steps && b < batch; b++) real_steps[b] = (int64_t)draw((uint64_t)steps + 1);

    forward_call forward = {.chunk = {.steps = steps, .batch = batch, .num_blocks = num_blocks, .block_size = block_size}};
    chunk *c = &forward.chunk;
    c->inputs = c->x_row = inputs, c->x_step = batch * inputs;
    c->mode = mode, c->reverse = (int)draw(2), c->threads = threads, c->real_steps = real_steps;
    c->weight_hh = numbers(gates * width * block_size, size);
    if (bias) c->bias_ih = numbers(gates * width, size), c->bias_hh = numbers(gates * width, size);
    if (inputs) c->x = numbers(steps * batch * inputs, size), c->weight_ih = numbers(gates * width * inputs, size);
    else forward.projected = numbers(gates * all, size);
    if (training && gates > 1 && !inputs) c->gates = (void *)forward.projected;
    if (training && mode == LSTM) c->cells = room(all, size);
    c->output = room(all, size);
    forward.h = numbers(batch * width, size);
    forward.c = mode == LSTM ? numbers(batch * width, size) : NULL;
    const void *h_before = copy(forward.h, batch * width, size), *c_before = copy(forward.c, batch * width, size);
    run(table->forward[kind](&forward));

    if (training) {
        backward_call backward = {.chunk = forward.chunk};
        backward.h_before = h_before, backward.c_before = c_before;
        backward.grad_output_step = batch * width, backward.grad_output_row = width;
        if (draw(4)) backward.grad_output = numbers(all, size);
        backward.grad_h = numbers(batch * width, size);
        if (mode == LSTM) backward.grad_c = numbers(batch * width, size);
        if (!inputs || draw(2)) backward.grad_gates = room(gates * all, size);
        if (mode == GRU && !small) backward.grad_new = room(all, size);
        if (small) backward.grad_weight_hh = numbers(gates * width * block_size, size);
        if (small && bias) backward.grad_bias_ih = numbers(gates * width, size);
        if (small && bias) backward.grad_bias_hh = numbers(gates * width, size);
        if (inputs) backward.grad_weight_ih = numbers(gates * width * inputs, size);
        run(table->backward[kind](&backward));
    }
    look_and_free();
    free(real_steps);
}

static void attention(const instruction_set *table, int kind, int64_t width, int64_t heads, int64_t queries, int64_t keys,
                      int64_t threads) {
    const int size = kind ? 8 : 4;
    const int64_t batch = 1 + (int64_t)draw(3), all = batch * queries * heads * width, others = batch * keys * heads * width;
    uint8_t *ignored = draw(2) ? room(batch * keys, 1) : NULL;
    for (int64_t i = 0; ignored && i < batch * keys; i++) ignored[i] = i % keys && draw(2); /* each row has one to see */
    attention_call call = {.batch = batch, .queries = queries, .keys = keys, .heads = heads, .width = width};
    call.threads = threads, call.factor = 1 / sqrt((double)width), call.ignored = ignored;
    call.q = numbers(all, size), call.k = numbers(others, size), call.v = numbers(others, size);
    call.output = room(all, size);
    call.top = room(batch * queries * heads, size), call.inverse = room(batch * queries * heads, size);
    run(table->attention[kind](&call));
    call.grad_output = numbers(all, size);
    call.grad_q = room(all, size), call.grad_k = numbers(others, size), call.grad_v = numbers(others, size);
    run(table->attention[kind](&call));
    look_and_free();
}

static void peak_work(const instruction_set *table, int32_t threads) {
    const int64_t lanes = table->lanes[0];
    table->peak_work[0](3, threads, room(threads * lanes, 4));
    table->peak_work[1](2, threads, room(threads * lanes, 4));
    table->peak_work[2](1001, threads, numbers(3 * 1001, 4));
    look_and_free();
}

int main(int count, char **words) {
    const int64_t every = count > 1 ? atoi(words[1]) : 1;
    const int64_t block_sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 20, 33};
    const int64_t shapes[][2] = {{1, 1}, {2, 3}, {5, 17}, {70, 2}, {3, 8}}; /* batch, blocks */
    long cases = 0, seen = 0;
#define CASE(call) \
    if (seen++ % every == 0) { \
        call; \
        cases++; \
    }
    const instruction_set *table;
    for (int32_t index = 0; (table = parallelrnn_instruction_set(index)); index++) {
        printf("%s ", table->name);
        for (int kind = 0; kind < 2; kind++)
            for (int32_t threads = 1; threads <= 3; threads += 2) {
                for (int mode = RNN_TANH; mode <= GRU; mode++)
                    for (size_t d = 0; d < sizeof block_sizes / sizeof *block_sizes; d++)
                        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                            for (int64_t steps = 1; steps <= 4; steps += 3)
                                CASE(recurrence(table, kind, mode, block_sizes[d], shapes[s][0], shapes[s][1], steps, threads))
                for (int64_t width = 1; width <= MAX_WIDTH; width++)
                    for (int64_t heads = 1; heads <= 17; heads += 4)
                        for (int64_t keys = 1; keys <= 7; keys += 3) CASE(attention(table, kind, width, heads, 5, keys, threads))
                if (!kind) CASE(peak_work(table, threads))
            }
    }
    printf("%ld\n", cases);
    return 0;
}
