#if defined(__x86_64__)
#include "tasks.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define VECTOR_BYTES 32
#define TABLE parallelrnn_avx2
#define INSTRUCTIONS "avx2"
#include "instruction_set.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
