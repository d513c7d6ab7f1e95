/* bfloat16 and float16 with AVX2 and F16C: the inside of the loops of _rotate_16_bits.h.
 *
 * Included by _rotate.c after _rotate_loops.h for AVX2. AVX2 has no conversion to bfloat16: integer
 * arithmetic rounds, and the two cases that are rare, ties and NaN, are found together for 32 numbers.
 */

/* 16 elements of each, in the order in which the pairs are converted. */
typedef struct {
    __m256 cos[2], sin[2];
} Tables_avx2;

typedef struct {
    __m256 first[2], second[2];
} Pairs_avx2;

static inline __m256 load_8(const float *t) { return _mm256_loadu_ps(t); }

static inline Tables_avx2 load_in_order(const float *c, const float *s, float sign) {
    __m256 factor = _mm256_set1_ps(sign);
    return (Tables_avx2){{load_8(c), load_8(c + 8)},
                         {_mm256_mul_ps(factor, load_8(s)), _mm256_mul_ps(factor, load_8(s + 8))}};
}

/* Elements 0-3 and 8-11, then 4-7 and 12-15: as unpacking and packing, which keep to 128 bits. */
static inline __m256 load_unpacked(const float *t) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(t)), _mm_loadu_ps(t + 8), 1);
}

static inline Tables_avx2 load_as_unpacked(const float *c, const float *s, float sign) {
    __m256 factor = _mm256_set1_ps(sign);
    return (Tables_avx2){{load_unpacked(c), load_unpacked(c + 4)},
                         {_mm256_mul_ps(factor, load_unpacked(s)),
                          _mm256_mul_ps(factor, load_unpacked(s + 4))}};
}

static inline void turn_pairs(Pairs_avx2 *p, Tables_avx2 t) {
    for (int k = 0; k < 2; k++) {
        __m256 a = p->first[k], b = p->second[k];
        p->first[k] = _mm256_sub_ps(_mm256_mul_ps(a, t.cos[k]), _mm256_mul_ps(b, t.sin[k]));
        p->second[k] = _mm256_add_ps(_mm256_mul_ps(b, t.cos[k]), _mm256_mul_ps(a, t.sin[k]));
    }
}

static inline __m256i load_bits(const uint16_t *x) { return _mm256_loadu_si256((const __m256i *)x); }
static inline void store_bits(uint16_t *y, __m256i v) { _mm256_storeu_si256((__m256i *)y, v); }

/* bfloat16: the upper half of a float's bits */

enum { LOWER_HALVES = 0x33333333 /* of 32 bits each, in a mask of bytes */ };

static inline __m256i add_half(__m256 f) {
    return _mm256_add_epi32(_mm256_castps_si256(f), _mm256_set1_epi32(0x8000));
}

/* As to_bfloat16, into the upper half of each 32 bits. */
static __attribute__((noinline)) __m256i round_any(__m256 f) {
    __m256i bits = _mm256_castps_si256(f);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(sum, _mm256_set1_epi32(0x7fc00000), is_nan);
}

/* Rounds into the upper half of each 32 bits; the lower halves have no meaning.
 * A tie is known by a lower half of 0 after half of the last place was added. A NaN that this addition
 * would carry into the sign comes from x or the tables, and is in `first` too. */
static inline void round_pairs(Pairs_avx2 *p, __m256i first[2], __m256i second[2]) {
    for (int k = 0; k < 2; k++) first[k] = add_half(p->first[k]), second[k] = add_half(p->second[k]);
    __m256i least = _mm256_min_epu16(_mm256_min_epu16(first[0], first[1]),
                                     _mm256_min_epu16(second[0], second[1]));
    __m256i tie = _mm256_cmpeq_epi16(least, _mm256_setzero_si256());
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(p->first[0], p->first[1], _CMP_UNORD_Q));
    int rare = _mm256_movemask_epi8(_mm256_or_si256(tie, is_nan)) & LOWER_HALVES;
    if (__builtin_expect(rare, 0)) {
        for (int k = 0; k < 2; k++)
            first[k] = round_any(p->first[k]), second[k] = round_any(p->second[k]);
    }
}

static inline void store_upper(uint16_t *y, const __m256i v[2]) {
    store_bits(y, _mm256_packus_epi32(_mm256_srli_epi32(v[0], 16), _mm256_srli_epi32(v[1], 16)));
}

static inline void turn_bfloat16_halves(const uint16_t *x, uint16_t *y, int64_t pairs,
                                        Tables_avx2 tables) {
    __m256i a = load_bits(x), b = load_bits(x + pairs), zero = _mm256_setzero_si256();
    Pairs_avx2 p = {{_mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, a)),
                     _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, a))},
                    {_mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, b)),
                     _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, b))}};
    __m256i first[2], second[2];
    turn_pairs(&p, tables);
    round_pairs(&p, first, second);
    store_upper(y, first);
    store_upper(y + pairs, second);
}

static inline void turn_bfloat16_pairs(const uint16_t *x, uint16_t *y, int64_t pairs,
                                       Tables_avx2 tables) {
    __m256i v[2] = {load_bits(x), load_bits(x + LANES)}, first[2], second[2];
    Pairs_avx2 p;
    for (int k = 0; k < 2; k++) {
        p.first[k] = _mm256_castsi256_ps(_mm256_slli_epi32(v[k], 16));
        p.second[k] = _mm256_castsi256_ps(_mm256_and_si256(v[k], _mm256_set1_epi32(-0x10000)));
    }
    turn_pairs(&p, tables);
    round_pairs(&p, first, second);
    for (int k = 0; k < 2; k++)
        store_bits(y + k * LANES,
                   _mm256_blend_epi16(_mm256_srli_epi32(first[k], 16), second[k], 0xaa));
}

/* float16 */

static inline __m128i to_float16(__m256 f) {
    return _mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline __m256 floats_at(const uint16_t *x) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x));
}

static inline void turn_float16_halves(const uint16_t *x, uint16_t *y, int64_t pairs,
                                       Tables_avx2 tables) {
    Pairs_avx2 p = {{floats_at(x), floats_at(x + 8)}, {floats_at(x + pairs), floats_at(x + pairs + 8)}};
    turn_pairs(&p, tables);
    for (int k = 0; k < 2; k++) {
        _mm_storeu_si128((__m128i *)(y + 8 * k), to_float16(p.first[k]));
        _mm_storeu_si128((__m128i *)(y + pairs + 8 * k), to_float16(p.second[k]));
    }
}

static inline void turn_float16_pairs(const uint16_t *x, uint16_t *y, int64_t pairs,
                                      Tables_avx2 tables) {
    __m256i apart = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    Pairs_avx2 p;
    for (int k = 0; k < 2; k++) {
        __m256i v = _mm256_shuffle_epi8(load_bits(x + k * LANES), apart);
        v = _mm256_permute4x64_epi64(v, 0xd8); /* the 8 first ones, then the 8 second ones */
        p.first[k] = _mm256_cvtph_ps(_mm256_castsi256_si128(v));
        p.second[k] = _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1));
    }
    turn_pairs(&p, tables);
    for (int k = 0; k < 2; k++) {
        __m128i first = to_float16(p.first[k]), second = to_float16(p.second[k]);
        _mm_storeu_si128((__m128i *)(y + k * LANES), _mm_unpacklo_epi16(first, second));
        _mm_storeu_si128((__m128i *)(y + k * LANES + 8), _mm_unpackhi_epi16(first, second));
    }
}

LOOP_16_BITS(bfloat16_halves_avx2, Tables_avx2, load_as_unpacked, turn_bfloat16_halves, IN_HALVES)
LOOP_16_BITS(bfloat16_pairs_avx2, Tables_avx2, load_in_order, turn_bfloat16_pairs, INTERLEAVED)
LOOP_16_BITS(float16_halves_avx2, Tables_avx2, load_in_order, turn_float16_halves, IN_HALVES)
LOOP_16_BITS(float16_pairs_avx2, Tables_avx2, load_in_order, turn_float16_pairs, INTERLEAVED)
CHOICE_16_BITS(bfloat16_by_avx2, bfloat16_halves_avx2, bfloat16_pairs_avx2, rotate_bfloat16_avx2)
CHOICE_16_BITS(float16_by_avx2, float16_halves_avx2, float16_pairs_avx2, rotate_float16_avx2)
