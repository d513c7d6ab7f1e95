/* The loops of _attend.c, compiled once for each instruction set; SET is its name, and LANES is how
 * many floats its vectors have.
 */

#define JOINED(name, set) name##_##set
#define NAMED(name, set) JOINED(name, set)
#define OF_SET(name) NAMED(name, SET)

typedef float OF_SET(Floats) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t OF_SET(Ints) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#define FLOATS OF_SET(Floats)
#define INTS OF_SET(Ints)
#define LOAD(address) (*(const FLOATS *)(address))
#define STORE(address, value) (*(FLOATS *)(address) = (value))
#define ALL(value) ((value) - (FLOATS){0}) /* -0.0 stays -0.0 */

#ifdef __GNUC__
#define UNROLLED _Pragma("GCC unroll 8")
#define ALWAYS_INLINE __attribute__((always_inline))
#else
#define UNROLLED
#define ALWAYS_INLINE
#endif

#ifdef __clang__
#define MIXED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define MIXED(a, b, ...) __builtin_shuffle(a, b, (INTS){__VA_ARGS__})
#endif

#if LANES == 4
#define LOWER 0, 4, 1, 5
#define UPPER 2, 6, 3, 7
#else /* within 128 bits, which AVX2 shuffles fastest */
#define LOWER 0, 8, 1, 9, 4, 12, 5, 13
#define UPPER 2, 10, 3, 11, 6, 14, 7, 15
#define FIRST_HALVES 0, 1, 2, 3, 8, 9, 10, 11
#define SECOND_HALVES 4, 5, 6, 7, 12, 13, 14, 15
#endif

static inline FLOATS OF_SET(halved)(FLOATS a, FLOATS b) {
    return MIXED(a, b, LOWER) + MIXED(a, b, UPPER);
}

/* The sums of four vectors, within each 128 bits. */
static inline FLOATS OF_SET(sums_of_four)(const FLOATS *part) {
    return OF_SET(halved)(OF_SET(halved)(part[0], part[2]), OF_SET(halved)(part[1], part[3]));
}

/* The sums of LANES vectors: lane i of the result is the sum of all lanes of part[i]. */
static inline FLOATS OF_SET(sums)(const FLOATS *part) {
    FLOATS first = OF_SET(sums_of_four)(part);
#if LANES == 8
    FLOATS second = OF_SET(sums_of_four)(part + 4);
    first = MIXED(first, second, FIRST_HALVES) + MIXED(first, second, SECOND_HALVES);
#endif
    return first;
}

static inline float OF_SET(sum)(FLOATS x) {
    float lanes[LANES];
    memcpy(lanes, &x, sizeof lanes);
    UNROLLED for (int n = LANES / 2; n; n /= 2)
        UNROLLED for (int i = 0; i < n; i++) lanes[i] += lanes[i + n];
    return lanes[0];
}

/* exp(x) for x <= 0, to 2 units in the last place; 0 below -87, NaN of NaN. x = n ln 2 + r, and exp(r)
 * is a polynomial (Cephes, expf). */
static inline FLOATS OF_SET(exponential)(FLOATS x) {
    const float to_integer = 0x1.8p23f; /* added to a small number, it leaves its nearest integer */
    FLOATS shifted = x * 0x1.715476p0f + to_integer, n = shifted - to_integer;
    FLOATS r = x - n * 0.693359375f + n * 2.12194440e-4f;
    FLOATS p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    INTS power = ((INTS)shifted - (INTS)ALL(to_integer)) << 23;
    INTS found = ((INTS)p + power) & (INTS)(x >= -87.0f);
    INTS is_nan = (INTS)(x != x);
    return (FLOATS)((found & ~is_nan) | ((INTS)x & is_nan));
}

/* Lists the keys that are not hidden, up to a multiple of LANES; lanes after the last key add -inf. */
static inline void OF_SET(list_keys)(const float *added, int64_t keys, Keys *listed) {
    int64_t n = 0;
    for (int64_t t = 0; t < keys; t++) {
        listed->key[n] = (int32_t)t;
        listed->added[n] = added ? added[t] : 0;
        n += !(listed->added[n] <= -FLT_MAX); /* NaN does not hide */
    }
    listed->count = n;
    for (; n && n % LANES; n++) listed->key[n] = listed->key[n - 1], listed->added[n] = -INFINITY;
}

/* Writes the scores of the listed keys; returns the greatest, at least -FLT_MAX. */
static inline float OF_SET(score)(const Work *w, const float *q, const float *k,
                                  const Keys *listed, float *scores) {
    FLOATS greatest = ALL(-FLT_MAX);
    for (int64_t t = 0; t < listed->count; t += LANES) {
        FLOATS part[LANES];
        const float *row[LANES];
        UNROLLED for (int i = 0; i < LANES; i++) {
            row[i] = k + listed->key[t + i] * w->k_stride[ROW];
            part[i] = LOAD(q) * LOAD(row[i]);
        }
        for (int64_t d = LANES; d < w->dim; d += LANES)
            UNROLLED for (int i = 0; i < LANES; i++) part[i] += LOAD(q + d) * LOAD(row[i] + d);
        FLOATS found = OF_SET(sums)(part) * w->scale + LOAD(listed->added + t);
        INTS above = (INTS)(found > greatest);
        greatest = (FLOATS)(((INTS)found & above) | ((INTS)greatest & ~above));
        STORE(scores + t, found);
    }
    float most[LANES];
    memcpy(most, &greatest, sizeof most);
    UNROLLED for (int n = LANES / 2; n; n /= 2)
        UNROLLED for (int i = 0; i < n; i++) most[i] = most[i] > most[i + n] ? most[i] : most[i + n];
    return most[0];
}

/* out = share * sum of p_t v_t over the listed keys, for `vectors` vectors of consecutive dimensions.
 * Even and odd keys are summed apart, since an addition has to wait for the one before. */
static inline ALWAYS_INLINE void OF_SET(add_values)(const float *p, const float *v, int64_t step,
                                                    const Keys *listed, float share, float *out,
                                                    const int vectors) {
    const int32_t *key = listed->key;
    int64_t count = listed->count;
    FLOATS even[4] = {{0}}, odd[4] = {{0}};
    int64_t t = 0;
    for (; t + 1 < count; t += 2) {
        const float *first = v + key[t] * step, *second = v + key[t + 1] * step;
        UNROLLED for (int i = 0; i < vectors; i++) {
            even[i] += p[t] * LOAD(first + i * LANES);
            odd[i] += p[t + 1] * LOAD(second + i * LANES);
        }
    }
    if (t < count)
        UNROLLED for (int i = 0; i < vectors; i++) even[i] += p[t] * LOAD(v + key[t] * step + i * LANES);
    UNROLLED for (int i = 0; i < vectors; i++) STORE(out + i * LANES, (even[i] + odd[i]) * share);
}

/* A query that may not look at any key gets zeros. */
static inline void OF_SET(attend_one)(const Work *w, const float *q, const float *k, const float *v,
                                      const Keys *listed, float *out) {
    float p[MOST_KEYS], greatest = OF_SET(score)(w, q, k, listed, p);
    int64_t step = w->v_stride[ROW], d = 0;
    FLOATS all = {0};
    for (int64_t t = 0; t < listed->count; t += LANES) {
        FLOATS e = OF_SET(exponential)(LOAD(p + t) - greatest);
        STORE(p + t, e);
        all += e;
    }
    float total = OF_SET(sum)(all), share = total == 0 ? 0 : 1 / total;
    for (; d + 4 * LANES <= w->dim; d += 4 * LANES)
        OF_SET(add_values)(p, v + d, step, listed, share, out + d, 4);
    for (; d < w->dim; d += LANES) OF_SET(add_values)(p, v + d, step, listed, share, out + d, 1);
}

static void OF_SET(attend)(const Work *w, int64_t first, int64_t last) {
    Keys listed;
    const float *of_list = NULL;
    OF_SET(list_keys)(NULL, w->keys, &listed);
    for (int64_t n = first; n < last; n++) {
        int64_t h = n % w->heads, s = n / w->heads % w->queries, b = n / w->heads / w->queries;
        const float *added = w->added ? w->added + offset(w->added_stride, b, h, s) : NULL;
        if (added != of_list) OF_SET(list_keys)(of_list = added, w->keys, &listed);
        OF_SET(attend_one)(w, w->q + offset(w->q_stride, b, h, s),
                           w->k + offset(w->k_stride, b, h, 0), w->v + offset(w->v_stride, b, h, 0),
                           &listed, w->out + offset(w->out_stride, b, h, s));
    }
}

#undef JOINED
#undef NAMED
#undef OF_SET
#undef FLOATS
#undef INTS
#undef LOAD
#undef STORE
#undef ALL
#undef LOWER
#undef UPPER
#undef FIRST_HALVES
#undef SECOND_HALVES
#undef MIXED
#undef UNROLLED
#undef ALWAYS_INLINE
#undef LANES
#undef SET
