/* The kernels for float and double by vectors of VECTOR_BYTES, and the table that lists them.
 *
 * A template: the file that includes it defines VECTOR_BYTES, TABLE (the name of the table) and INSTRUCTIONS (its
 * label).
 */
#define INLINE inline __attribute__((always_inline))
#define JOIN(x, suffix) x##suffix
#define WITH_SUFFIX(x, suffix) JOIN(x, suffix)
#define NAME(x) WITH_SUFFIX(x, SUFFIX)
#define PRAGMA(text) _Pragma(#text)
#if defined(_OPENMP)
#define FOR_TASKS(n, count) \
    PRAGMA(omp parallel for num_threads(count) schedule(static, 1) if (count > 1)) \
    for (int64_t n = 0; n < count; n++)
#else
#define FOR_TASKS(n, count) for (int64_t n = 0; n < count; n++)
#endif

#define REAL float
#define INTEGER int32_t
#define LANES (VECTOR_BYTES / 4)
#define IS_DOUBLE 0
#define SUFFIX _float
#include "kernels.h"
#include "machine_peak.h"
#undef REAL
#undef INTEGER
#undef LANES
#undef IS_DOUBLE
#undef SUFFIX

#define REAL double
#define INTEGER int64_t
#define LANES (VECTOR_BYTES / 8)
#define IS_DOUBLE 1
#define SUFFIX _double
#include "kernels.h"

const instruction_set TABLE = {
    INSTRUCTIONS,
    {VECTOR_BYTES / 4, VECTOR_BYTES / 8},
    {forward_float, forward_double},
    {backward_float, backward_double},
    {attention_float, attention_double},
    {multiply_add_float, activations_float, triad_float},
};
