/* The loops, compiled for several sets of instructions, and the choice of a set. */

#define SET portable
#include "_rotate_loops.h"

#ifdef HAS_SETS
#include <immintrin.h>
#include "_rotate_16_bits.h"
FOR_INSTRUCTIONS("avx2,fma,f16c")
#define SET avx2
#include "_rotate_loops.h"
#include "_rotate_avx2.h"
END_INSTRUCTIONS
FOR_512_BITS("avx512f,avx512bw,avx512vl,avx512dq")
#define SET avx512
#include "_rotate_loops.h"
END_INSTRUCTIONS
/* Without bfloat16 products, AVX2's conversions are about as fast as the loops, or faster. */
CHOICE_16_BITS(bfloat16_by_avx2_and_512, bfloat16_halves_avx2, bfloat16_pairs_avx2,
               rotate_bfloat16_avx512)
CHOICE_16_BITS(float16_by_avx2_and_512, float16_halves_avx2, float16_pairs_avx2,
               rotate_float16_avx512)
FOR_512_BITS("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
#include "_rotate_avx512bf16.h"
END_INSTRUCTIONS
#endif

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

static const Rotate *rotate_of_dtype = SETS[0].rotate;

static void use_set(int set) { rotate_of_dtype = SETS[set].rotate; }
