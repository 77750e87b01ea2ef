#if defined(__x86_64__)
#include "tasks.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,fma,prefer-vector-width=512")
#endif
#define VECTOR_BYTES 64
#define TABLE parallelrnn_avx512
#define INSTRUCTIONS "avx512"
#include "instruction_set.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
