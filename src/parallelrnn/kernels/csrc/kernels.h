/* All kernels for one type of number and one instruction set: a template, see vectors.h. */
#include "vectors.h"

#include "activations.h"
#include "cells.h"
#include "small_blocks.h"
#include "large_blocks.h"
#include "attention.h"

static int NAME(forward)(const forward_call *call) {
    if (call->chunk.batch == 0) return 0;
    return call->chunk.block_size <= LANES ? NAME(small_forward)(call) : NAME(large_forward)(call);
}

static int NAME(backward)(const backward_call *call) {
    if (call->chunk.batch == 0) return 0;
    return call->chunk.block_size <= LANES ? NAME(small_backward)(call) : NAME(large_backward)(call);
}

#undef LANES_XOR
#undef SHUFFLE
