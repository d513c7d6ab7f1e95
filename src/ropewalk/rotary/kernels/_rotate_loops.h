/* The loops of _rotate.c, compiled once for each instruction set; SET is its name. */

#define JOINED(name, set) name##_##set
#define NAMED(name, set) JOINED(name, set)
#define OF_SET(name) NAMED(name, SET)

/* bfloat16 and float16 as bits: conversions by integer arithmetic are vectorized everywhere. */

static inline float OF_SET(float_of_bits)(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static inline uint32_t OF_SET(bits_of_float)(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static inline float OF_SET(from_bfloat16)(uint16_t v) { return OF_SET(float_of_bits)((uint32_t)v << 16); }

/* To nearest, ties to even; any NaN becomes the one that torch returns. */
static inline uint16_t OF_SET(to_bfloat16)(float f) {
    uint32_t bits = OF_SET(bits_of_float)(f);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)(f != f ? 0x7fc0u : rounded);
}

/* Exponent and fraction of a float16 are 13 bits higher in a float, and a float's exponents begin 112
 * lower. A multiplication by 2^112 corrects this, for subnormal numbers too. */
static inline float OF_SET(from_float16)(uint16_t v) {
    uint32_t sign = (uint32_t)(v & 0x8000u) << 16, rest = v & 0x7fffu;
    float finite = OF_SET(float_of_bits)(rest << 13) * 0x1p112f;
    uint32_t special = (rest << 13) | 0x7f800000u;
    uint32_t bits = rest >= 0x7c00u ? special : OF_SET(bits_of_float)(finite);
    return OF_SET(float_of_bits)(bits | sign);
}

/* To nearest, ties to even. Adding 0.5 aligns a subnormal result's last bit with a float's. */
static inline uint16_t OF_SET(to_float16)(float f) {
    uint32_t bits = OF_SET(bits_of_float)(f), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;
    uint32_t normal = (rest - (112u << 23) + 0xfffu + ((rest >> 13) & 1u)) >> 13;
    uint32_t subnormal = OF_SET(bits_of_float)(OF_SET(float_of_bits)(rest) + 0.5f) - 0x3f000000u;
    uint32_t finite = rest < 0x38800000u ? subnormal : normal;  /* below 2^-14 */
    uint32_t most = rest >= 0x477ff000u ? 0x7c00u : finite;     /* from 65520 on */
    return (uint16_t)(sign | (f != f ? 0x7e00u : most));
}

#define SAME(v) (v)

/* Rotates n rows. Each place is read before it is written, and by no other iteration, in place or
 * not: the loops have no dependences. If reading and writing pair differently, rows of x and out do
 * not overlap. */
#define LOOP(NAME, T, A, READ, WRITE, X1, X2, Y1, Y2)                                              \
    static void OF_SET(NAME)(const T *x, T *y, const A *c, const A *s, A sign, int64_t pairs,       \
                            int64_t n, int64_t xs, int64_t ys, int64_t ts) {                       \
        for (; n > 0; n--, x += xs, y += ys, c += ts, s += ts) {                                   \
            fetch_ahead(x, 2 * pairs * (int64_t)sizeof(T));                                        \
            NO_DEPENDENCES for (int64_t i = 0; i < pairs; i++) {                                   \
                A a = READ(x[X1]), b = READ(x[X2]), t = sign * s[i];                               \
                y[Y1] = WRITE(a * c[i] - b * t);                                                   \
                y[Y2] = WRITE(b * c[i] + a * t);                                                   \
            }                                                                                      \
        }                                                                                          \
    }

#define LOOPS(NAME, T, A, READ, WRITE)                                                             \
    LOOP(NAME##_hh, T, A, READ, WRITE, i, i + pairs, i, i + pairs)                                 \
    LOOP(NAME##_hi, T, A, READ, WRITE, i, i + pairs, 2 * i, 2 * i + 1)                             \
    LOOP(NAME##_ih, T, A, READ, WRITE, 2 * i, 2 * i + 1, i, i + pairs)                             \
    LOOP(NAME##_ii, T, A, READ, WRITE, 2 * i, 2 * i + 1, 2 * i, 2 * i + 1)                         \
    static void OF_SET(NAME)(const Work *w, const Rows *r) {                                       \
        void (*loop[4])(const T *, T *, const A *, const A *, A, int64_t, int64_t, int64_t,        \
                        int64_t, int64_t) = {OF_SET(NAME##_hh), OF_SET(NAME##_hi),                 \
                                             OF_SET(NAME##_ih), OF_SET(NAME##_ii)};                \
        for (int64_t h = 0; h < r->heads; h++)                                                     \
            loop[2 * w->read_interleaved + w->write_interleaved](                                  \
                (const T *)r->x + h * r->x_head, (T *)r->out + h * r->out_head, (const A *)r->cos, \
                (const A *)r->sin, w->adjoint ? (A)-1 : (A)1, w->pairs, r->count, r->x_stride,     \
                r->out_stride, r->table_stride);                                                   \
    }

LOOPS(rotate_float32, float, float, SAME, SAME)
LOOPS(rotate_float64, double, double, SAME, SAME)
LOOPS(rotate_bfloat16, uint16_t, float, OF_SET(from_bfloat16), OF_SET(to_bfloat16))
LOOPS(rotate_float16, uint16_t, float, OF_SET(from_float16), OF_SET(to_float16))

#undef JOINED
#undef NAMED
#undef OF_SET
#undef SAME
#undef LOOP
#undef LOOPS
#undef SET
