/* The interface of the shared library: its instruction sets, and which of them the processor has. */
#include <stddef.h>

#include "recurrence.h"

#define PUBLIC __attribute__((visibility("default")))

#if defined(_OPENMP)
#include <omp.h>
#endif

extern const instruction_set parallelrnn_baseline;
#if defined(__x86_64__)
extern const instruction_set parallelrnn_avx2, parallelrnn_avx512;
#endif

/* The index-th instruction set that this processor has, the best first; NULL past the last. */
PUBLIC const instruction_set *parallelrnn_instruction_set(int32_t index) {
    const instruction_set *usable[3];
    int32_t count = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma"))
        usable[count++] = &parallelrnn_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) usable[count++] = &parallelrnn_avx2;
#endif
    usable[count++] = &parallelrnn_baseline;
    return index >= 0 && index < count ? usable[index] : NULL;
}

/* Whether the library was built with OpenMP; without it, everything runs in one thread. */
PUBLIC int32_t parallelrnn_has_threads(void) {
#if defined(_OPENMP)
    return 1;
#else
    return 0;
#endif
}

/* The sizes of the structures, which have to match those of the caller. */
PUBLIC int64_t parallelrnn_forward_size(void) { return sizeof(forward_call); }
PUBLIC int64_t parallelrnn_backward_size(void) { return sizeof(backward_call); }
PUBLIC int64_t parallelrnn_attention_size(void) { return sizeof(attention_call); }
