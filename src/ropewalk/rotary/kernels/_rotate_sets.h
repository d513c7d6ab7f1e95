/* The loops, compiled for several sets of instructions, and the choice of a set. */

#define SET portable
#include "_rotate_loops.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_SETS 1
#include <cpuid.h>
#include <immintrin.h>
#include "_rotate_16_bits.h"
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#define SET avx2
#include "_rotate_loops.h"
#include "_rotate_avx2.h"
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")
#define SET avx512
#include "_rotate_loops.h"
#pragma GCC pop_options
/* Without bfloat16 products, AVX2's conversions are about as fast as the loops, or faster. */
CHOICE_16_BITS(bfloat16_by_avx2_and_512, bfloat16_halves_avx2, bfloat16_pairs_avx2,
               rotate_bfloat16_avx512)
CHOICE_16_BITS(float16_by_avx2_and_512, float16_halves_avx2, float16_pairs_avx2,
               rotate_float16_avx512)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,prefer-vector-width=512")
#include "_rotate_avx512bf16.h"
#pragma GCC pop_options
#endif

/* Sets of instructions; each includes those before it. */
static const struct {
    const char *name;
    Rotate rotate[DTYPES];
} SETS[] = {
    {"portable", {rotate_float32_portable, rotate_float64_portable, rotate_bfloat16_portable,
                  rotate_float16_portable}},
#ifdef HAS_SETS
    {"avx2", {rotate_float32_avx2, rotate_float64_avx2, bfloat16_by_avx2, float16_by_avx2}},
    {"avx512", {rotate_float32_avx512, rotate_float64_avx512, bfloat16_by_avx2_and_512,
                float16_by_avx2_and_512}},
    {"avx512bf16", {rotate_float32_avx512, rotate_float64_avx512, bfloat16_by_avx512,
                    float16_by_avx512}},
#endif
};

/* The last of SETS that the processor has. */
static int best_set(void) {
#ifdef HAS_SETS
    unsigned a, b, c = 0, d; /* __builtin_cpu_supports knows F16C since GCC 11 only */
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C))
        return 0;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return 1;
    return __builtin_cpu_supports("avx512bf16") ? 3 : 2;
#endif
    return 0;
}

static const Rotate *rotate_of_dtype = SETS[0].rotate;

static void use_set(int set) { rotate_of_dtype = SETS[set].rotate; }
