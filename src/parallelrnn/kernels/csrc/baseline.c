/* What every processor of the family has: SSE2 on x86-64, NEON on AArch64. */
#include "tasks.h"

#define VECTOR_BYTES 16
#define TABLE parallelrnn_baseline
#if defined(__aarch64__)
#define INSTRUCTIONS "neon"
#else
#define INSTRUCTIONS "baseline"
#endif
#include "instruction_set.h"
