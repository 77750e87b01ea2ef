/* How a chunk is divided among threads: by rows of the batch, or by the units of a row, whichever is more even. */
#ifndef PARALLELRNN_TASKS_H
#define PARALLELRNN_TASKS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "recurrence.h"

/* aligned_alloc takes multiples of its alignment. */
static inline size_t round_up(size_t size) { return (size + 63) / 64 * 64; }

/* Whether step t is the first that is computed for row b of the chunk, which continues from the given state. */
static inline int is_first(const chunk *c, int64_t t, int64_t b) {
    return c->reverse ? t + 1 == (c->real_steps ? c->real_steps[b] : c->steps) : t == 0;
}

typedef struct {
    int64_t row, row_end;   /* of the batch */
    int64_t part, part_end; /* of a row: vectors of small blocks, or large blocks */
} task;

typedef struct {
    int64_t count;
    int by_rows;
} division;

static inline int64_t largest_share(int64_t items, int64_t tasks) { return (items + tasks - 1) / tasks; }

/* The division depends on shapes and on the requested number of threads, never on how many actually run, so that sums
 * are always added in the same order. With rows of unequal length, equal numbers of rows are unequal work: prefer
 * parts. */
static inline division divide(const chunk *c, int64_t parts) {
    int64_t threads = c->threads < 1 ? 1 : c->threads;
    int64_t rows = c->batch < threads ? c->batch : threads;
    int64_t by_parts = parts < threads ? parts : threads;
    double rows_time = (double)largest_share(c->batch, rows) / (double)c->batch;
    double parts_time = (double)largest_share(parts, by_parts) / (double)parts;
    int by_rows = c->real_steps ? rows_time < parts_time : rows_time <= parts_time;
    return (division){by_rows ? rows : by_parts, by_rows};
}

static inline task take(const chunk *c, int64_t parts, division d, int64_t index) {
    int64_t items = d.by_rows ? c->batch : parts;
    int64_t begin = items * index / d.count, end = items * (index + 1) / d.count;
    return d.by_rows ? (task){begin, end, 0, parts} : (task){0, c->batch, begin, end};
}

/* Rows that a task takes through all steps together: enough to hide latency, few enough that their states stay in the
 * first-level cache. */
#define MAX_ROWS 64
typedef struct {
    int64_t begin, end;
} tile;

static inline tile first_tile(task task, int64_t row_bytes) {
    int64_t rows = 8192 / row_bytes;
    rows = rows < 4 ? 4 : rows > MAX_ROWS ? MAX_ROWS : rows;
    return (tile){task.row, task.row + rows < task.row_end ? task.row + rows : task.row_end};
}

static inline tile next_tile(tile previous, task task) {
    const int64_t end = 2 * previous.end - previous.begin;
    return (tile){previous.end, end < task.row_end ? end : task.row_end};
}

#endif
