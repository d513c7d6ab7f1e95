/* bfloat16 and float16 with AVX-512's own conversion instructions, 16 pairs at a time.
 *
 * Included by _rotate.c after _rotate_loops.h for AVX-512. The loops there handle the other cases: a
 * number of pairs that is not a multiple of 16, and pairs that are written in another order than read.
 */
#include <immintrin.h>

enum { LANES = 16, SUBNORMAL = 0x20 /* a class of VFPCLASSPS */ };

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

#define LOOP_16_BITS(NAME, FLOATS, ROUND)                                                          \
    static void rotate_##NAME##_by_lanes(const Work *w, const Rows *r) {                           \
        if (w->pairs % LANES || w->read_interleaved != w->write_interleaved) {                     \
            rotate_##NAME##_avx512(w, r);                                                          \
            return;                                                                                \
        }                                                                                          \
        const uint16_t *x = (const uint16_t *)r->x;                                                \
        const float *c = (const float *)r->cos, *s = (const float *)r->sin;                        \
        uint16_t *y = (uint16_t *)r->out;                                                          \
        int64_t pairs = w->pairs;                                                                  \
        __m512 sign = _mm512_set1_ps(w->adjoint ? -1.0f : 1.0f);                                   \
        for (int64_t n = r->count; n > 0; n--) {                                                   \
            fetch_ahead(x, 2 * pairs * (int64_t)sizeof(uint16_t));                                 \
            for (int64_t i = 0; i < pairs; i += LANES) {                                           \
                __m256i first, second;                                                             \
                if (w->read_interleaved) {                                                         \
                    take_apart(_mm512_loadu_si512(x + 2 * i), &first, &second);                    \
                } else {                                                                           \
                    first = _mm256_loadu_si256((const __m256i *)(x + i));                          \
                    second = _mm256_loadu_si256((const __m256i *)(x + pairs + i));                 \
                }                                                                                  \
                __m512 a = FLOATS(first), b = FLOATS(second), cosine = _mm512_loadu_ps(c + i);     \
                __m512 sine = _mm512_mul_ps(sign, _mm512_loadu_ps(s + i));                         \
                ROUND(_mm512_sub_ps(_mm512_mul_ps(a, cosine), _mm512_mul_ps(b, sine)),             \
                      _mm512_add_ps(_mm512_mul_ps(b, cosine), _mm512_mul_ps(a, sine)), &first,     \
                      &second);                                                                    \
                if (w->read_interleaved) {                                                         \
                    _mm512_storeu_si512(y + 2 * i, put_together(first, second));                   \
                } else {                                                                           \
                    _mm256_storeu_si256((__m256i *)(y + i), first);                                \
                    _mm256_storeu_si256((__m256i *)(y + pairs + i), second);                       \
                }                                                                                  \
            }                                                                                      \
            x += r->x_stride, y += r->out_stride, c += r->table_stride, s += r->table_stride;      \
        }                                                                                          \
    }

LOOP_16_BITS(bfloat16, floats_of_bfloat16, round_to_bfloat16)
LOOP_16_BITS(float16, floats_of_float16, round_to_float16)

static const Rotate ROTATE_16_bits[DTYPES] = {rotate_float32_avx512, rotate_float64_avx512,
                                              rotate_bfloat16_by_lanes, rotate_float16_by_lanes};
