/* bfloat16 and float16 with AVX-512's own conversion instructions: the inside of the loops of
 * _rotate_16_bits.h. Included by _rotate.c after _rotate_loops.h for AVX-512.
 */

enum { SUBNORMAL = 0x20 /* a class of VFPCLASSPS */ };

typedef struct {
    __m512 cos, sin;
} Tables_avx512;

static inline Tables_avx512 load_16(const float *c, const float *s, float sign) {
    return (Tables_avx512){_mm512_loadu_ps(c), _mm512_mul_ps(_mm512_set1_ps(sign), _mm512_loadu_ps(s))};
}

static inline __m512 floats_of_bfloat16(__m256i v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

/* Rounds subnormal numbers by integer arithmetic, as to_bfloat16 does; others do not change. */
static __attribute__((noinline)) __m256i round_subnormal(__m256i rounded, __m512 f) {
    __m512i bits = _mm512_castps_si512(f);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __m256i right = _mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16));
    return _mm256_mask_mov_epi16(rounded, _mm512_fpclass_ps_mask(f, SUBNORMAL), right);
}

static inline void round_to_bfloat16(__m512 f, __m512 g, __m256i *first, __m256i *second) {
    *first = (__m256i)_mm512_cvtneps_pbh(f);
    *second = (__m256i)_mm512_cvtneps_pbh(g);
    /* The instruction treats subnormal numbers as 0. They are rare. */
    if (_mm512_fpclass_ps_mask(f, SUBNORMAL) | _mm512_fpclass_ps_mask(g, SUBNORMAL)) {
        *first = round_subnormal(*first, f);
        *second = round_subnormal(*second, g);
    }
}

static inline __m512 floats_of_float16(__m256i v) { return _mm512_cvtph_ps(v); }

static inline void round_to_float16(__m512 f, __m512 g, __m256i *first, __m256i *second) {
    *first = _mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    *second = _mm512_cvtps_ph(g, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline void take_apart(__m512i pairs, __m256i *first, __m256i *second) {
    *first = _mm512_cvtepi32_epi16(pairs);
    *second = _mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16));
}

static inline __m512i put_together(__m256i first, __m256i second) {
    return _mm512_or_si512(_mm512_cvtepu16_epi32(first),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), 16));
}

#define TURN_16_BITS(NAME, FLOATS, ROUND)                                                          \
    static inline void turn_##NAME(__m256i *first, __m256i *second, Tables_avx512 t) {             \
        __m512 a = FLOATS(*first), b = FLOATS(*second);                                            \
        ROUND(_mm512_sub_ps(_mm512_mul_ps(a, t.cos), _mm512_mul_ps(b, t.sin)),                     \
              _mm512_add_ps(_mm512_mul_ps(b, t.cos), _mm512_mul_ps(a, t.sin)), first, second);     \
    }                                                                                              \
    static inline void turn_##NAME##_halves_avx512(const uint16_t *x, uint16_t *y, int64_t pairs,  \
                                                   Tables_avx512 t) {                              \
        __m256i first = _mm256_loadu_si256((const __m256i *)x);                                    \
        __m256i second = _mm256_loadu_si256((const __m256i *)(x + pairs));                         \
        turn_##NAME(&first, &second, t);                                                           \
        _mm256_storeu_si256((__m256i *)y, first);                                                  \
        _mm256_storeu_si256((__m256i *)(y + pairs), second);                                       \
    }                                                                                              \
    static inline void turn_##NAME##_pairs_avx512(const uint16_t *x, uint16_t *y, int64_t pairs,   \
                                                  Tables_avx512 t) {                               \
        __m256i first, second;                                                                     \
        take_apart(_mm512_loadu_si512(x), &first, &second);                                        \
        turn_##NAME(&first, &second, t);                                                           \
        _mm512_storeu_si512(y, put_together(first, second));                                       \
    }                                                                                              \
    LOOP_16_BITS(NAME##_halves_avx512, Tables_avx512, load_16, turn_##NAME##_halves_avx512,        \
                 IN_HALVES)                                                                        \
    LOOP_16_BITS(NAME##_pairs_avx512, Tables_avx512, load_16, turn_##NAME##_pairs_avx512,          \
                 INTERLEAVED)                                                                      \
    CHOICE_16_BITS(NAME##_by_avx512, NAME##_halves_avx512, NAME##_pairs_avx512,                    \
                   rotate_##NAME##_avx512)

TURN_16_BITS(bfloat16, floats_of_bfloat16, round_to_bfloat16)
TURN_16_BITS(float16, floats_of_float16, round_to_float16)
