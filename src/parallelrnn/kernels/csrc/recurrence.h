/* The C ABI of the recurrence kernels: one chunk of time steps of K equal blocks, forward or backward.
 *
 * Layout: output and cells (T, B, K*D); projected, gates and grad_gates (T, B, G*K*D); states (B, K*D); all contiguous.
 * The gates are stacked in the order of torch.nn: LSTM input, forget, cell, output; GRU reset, update, new.
 * Nothing is kept between calls. Python mirrors the structures in library.py, field by field.
 */
#ifndef PARALLELRNN_RECURRENCE_H
#define PARALLELRNN_RECURRENCE_H

#include <stdint.h>

enum mode { RNN_TANH, RNN_RELU, RNN_SIGMOID, RNN_LINEAR, LSTM, GRU };

/* The common arguments of forward and backward. */
typedef struct {
    int64_t steps, batch, num_blocks, block_size;
    int64_t inputs; /* columns of x that the kernel projects itself; 0 if `projected` is given */
    int64_t x_step, x_row; /* strides of x, in elements; its columns are contiguous */
    int32_t mode, reverse, threads;
    const int64_t *real_steps; /* (B,) real steps of each row in this chunk, or NULL if all are */
    const void *x, *weight_ih, *bias_ih, *bias_hh, *weight_hh; /* biases may be NULL */
    void *gates; /* forward: where to store the activated gates, or NULL; backward: those, or NULL to recompute them */
    void *output, *cells; /* cells: NULL in inference, and for all but the LSTM */
} chunk;

typedef struct {
    chunk chunk;
    const void *projected; /* may be the memory of `gates` */
    void *h, *c;           /* the state, in and out */
} forward_call;

typedef struct {
    chunk chunk;
    const void *h_before, *c_before;     /* the state before the chunk's first step */
    const void *grad_output;             /* or NULL */
    int64_t grad_output_step, grad_output_row;
    void *grad_h, *grad_c;               /* the gradient of the state, in and out */
    void *grad_gates;                    /* out: gradient of the projected input, or NULL if not needed */
    void *grad_new;                      /* out, large blocks of a GRU: (T, B, K*D) gradient of W_n h + b_n */
    void *grad_weight_ih, *grad_bias_ih, *grad_bias_hh, *grad_weight_hh; /* added to; NULL if not needed */
} backward_call;

/* Attention with narrow heads: q and output (B, queries, heads * width), k and v (B, keys, heads * width), contiguous.
 * Backward if there is a grad_output. */
#define MAX_WIDTH 4
typedef struct {
    int64_t batch, queries, keys, heads, width;
    int64_t threads;
    double factor;                      /* of scores */
    const uint8_t *ignored;             /* (B, keys), not zero where nothing may attend; or NULL */
    const void *q, *k, *v;
    void *output, *top, *inverse;       /* (B, queries, heads): the largest score, and one over the sum; or NULL */
    const void *grad_output;            /* or NULL */
    void *grad_q, *grad_k, *grad_v;     /* the last two zero where ignored */
} attention_call;

/* What one instruction set can do, for float and double. Each function returns 0, or 1 if memory runs out. */
typedef struct {
    const char *name;
    int64_t lanes[2]; /* blocks of at most this many units are small: their weight gradients come from the kernel */
    int (*forward[2])(const forward_call *);
    int (*backward[2])(const backward_call *);
    int (*attention[2])(const attention_call *);
    void (*peak_work[3])(int64_t, int32_t, float *); /* work to measure the machine by: see machine_peak.h */
} instruction_set;

#endif
