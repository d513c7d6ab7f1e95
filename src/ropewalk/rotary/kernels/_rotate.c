/* Rotation of pairs, row by row: what ropewalk.rotary.rotate does, at the speed of memory.
 * An optional extension: without it the same is computed in torch, and takes longer.
 *
 * For a row x of D elements at position m, with c_i = amplitude * cos(angle_i) and s_i likewise,
 *
 *     y1_i = x1_i * c_i - x2_i * s_i
 *     y2_i = x2_i * c_i + x1_i * s_i        i = 0 .. R/2 - 1
 *
 * where the two of pair i stand R/2 apart (half) or side by side (interleaved). Arithmetic is in
 * float, in double for double, and not contracted, so that it agrees with the reference bit for bit.
 *
 * Each loop is compiled for several instruction sets, and the loader chooses (target_clones). Threads
 * are started for a call and joined at its end: nothing is left that a fork could break, and for the
 * tensors that are worth several threads their start is a small part.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if !defined(_WIN32)
#include <pthread.h>
#define HAS_THREADS 1
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define CLONED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONED
#endif

enum { FLOAT32, FLOAT64, BFLOAT16, FLOAT16, DTYPES };
static const int64_t SIZE[DTYPES] = {4, 8, 2, 2};

/* One tensor to rotate. Strides are in elements; those of axes that a tensor has not are 0. */
typedef struct {
    const char *x;
    char *out; /* may be x */
    const char *cos, *sin;
    int64_t batch, heads, length, dim;
    int64_t x_stride[3], out_stride[3], table_stride[3]; /* of batch, heads, length */
    int64_t start, pairs;
    int dtype, read_interleaved, write_interleaved, adjoint;
} Work;

/* bfloat16 and float16 as bits: conversions by integer arithmetic are vectorised everywhere. */

static inline float float_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static inline uint32_t bits_of_float(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static inline float from_bfloat16(uint16_t v) { return float_of_bits((uint32_t)v << 16); }

/* To nearest, ties to even; a NaN stays one. */
static inline uint16_t to_bfloat16(float f) {
    uint32_t bits = bits_of_float(f);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}

/* A float16's exponent and fraction stand 13 bits higher in a float, whose exponents begin 112
 * lower; a subnormal one is its fraction times 2^-24. */
static inline float from_float16(uint16_t v) {
    uint32_t sign = (uint32_t)(v & 0x8000u) << 16, rest = v & 0x7fffu;
    uint32_t normal = (rest << 13) + (112u << 23);
    uint32_t special = (rest << 13) | 0x7f800000u;
    uint32_t subnormal = bits_of_float((float)(int32_t)rest * 5.9604644775390625e-8f);
    uint32_t bits = rest >= 0x7c00u ? special : (rest < 0x0400u ? subnormal : normal);
    return float_of_bits(bits | sign);
}

/* To nearest, ties to even. Adding 0.5 aligns a subnormal result's last bit with a float's. */
static inline uint16_t to_float16(float f) {
    uint32_t bits = bits_of_float(f), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;
    uint32_t normal = (rest - (112u << 23) + 0xfffu + ((rest >> 13) & 1u)) >> 13;
    uint32_t subnormal = bits_of_float(float_of_bits(rest) + 0.5f) - 0x3f000000u;
    uint32_t special = rest > 0x7f800000u ? 0x7e00u | ((rest >> 13) & 0x3ffu) : 0x7c00u;
    uint32_t finite = rest < 0x38800000u ? subnormal : normal; /* below 2^-14 */
    return (uint16_t)(sign | (rest >= 0x477ff000u ? special : finite)); /* from 65520: inf */
}

#define SAME(v) (v)

/* Rotates n rows. An element is read before one at its place is written, and no other stands there,
 * in place or not: the loops have no dependences. Where reading and writing pair differently, rows
 * of x and out do not overlap. */
#define LOOP(NAME, T, A, READ, WRITE, X1, X2, Y1, Y2)                                              \
    CLONED static void NAME(const T *x, T *y, const A *c, const A *s, A sign, int64_t pairs,       \
                            int64_t n, int64_t xs, int64_t ys, int64_t ts) {                       \
        for (; n > 0; n--, x += xs, y += ys, c += ts, s += ts) {                                   \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < pairs; i++) {                             \
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
    static void NAME(const Work *w, const char *x, char *out, const char *c, const char *s,        \
                     int64_t n) {                                                                  \
        void (*loop[4])(const T *, T *, const A *, const A *, A, int64_t, int64_t, int64_t,        \
                        int64_t, int64_t) = {NAME##_hh, NAME##_hi, NAME##_ih, NAME##_ii};          \
        loop[2 * w->read_interleaved + w->write_interleaved](                                      \
            (const T *)x, (T *)out, (const A *)c, (const A *)s, w->adjoint ? (A)-1 : (A)1,         \
            w->pairs, n, w->x_stride[2], w->out_stride[2], w->table_stride[2]);                    \
    }

LOOPS(rotate_float32, float, float, SAME, SAME)
LOOPS(rotate_float64, double, double, SAME, SAME)
LOOPS(rotate_bfloat16, uint16_t, float, from_bfloat16, to_bfloat16)
LOOPS(rotate_float16, uint16_t, float, from_float16, to_float16)

static void (*const ROTATE[DTYPES])(const Work *, const char *, char *, const char *, const char *,
                                    int64_t) = {rotate_float32, rotate_float64, rotate_bfloat16,
                                                rotate_float16};

static void copy_rest(const Work *w, const char *x, char *out, int64_t n, int64_t size) {
    int64_t before = w->start * size, turning = 2 * w->pairs * size;
    int64_t after = w->dim * size - before - turning;
    for (; n > 0; n--, x += w->x_stride[2] * size, out += w->out_stride[2] * size) {
        if (before) memcpy(out, x, before);
        if (after) memcpy(out + before + turning, x + before + turning, after);
    }
}

/* So many rows at a time that they and their tables stay in the first cache while every head of a
 * batch row turns by the same tables. */
enum { TILE = 32 };

static void rotate_tiles(const Work *w, int64_t first, int64_t last) {
    int64_t size = SIZE[w->dtype], table_size = w->dtype == FLOAT64 ? 8 : 4;
    int64_t tiles = (w->length + TILE - 1) / TILE;
    int partial = w->out != w->x && 2 * w->pairs < w->dim;
    for (int64_t tile = first; tile < last; tile++) {
        int64_t b = tile / tiles, row = (tile % tiles) * TILE;
        int64_t n = w->length - row < TILE ? w->length - row : TILE;
        for (int64_t h = 0; h < w->heads; h++) {
            const char *x = w->x + size * (b * w->x_stride[0] + h * w->x_stride[1] + row * w->x_stride[2]);
            char *out =
                w->out + size * (b * w->out_stride[0] + h * w->out_stride[1] + row * w->out_stride[2]);
            int64_t t = table_size * (b * w->table_stride[0] + h * w->table_stride[1] +
                                      row * w->table_stride[2]);
            if (partial) copy_rest(w, x, out, n, size);
            ROTATE[w->dtype](w, x + size * w->start, out + size * w->start, w->cos + t, w->sin + t, n);
        }
    }
}

typedef struct {
    const Work *work;
    int count, part, parts;
} Share;

/* Each tensor's tiles are dealt out in runs, as even as they go. */
static void *rotate_share(void *argument) {
    const Share *share = argument;
    for (int i = 0; i < share->count; i++) {
        const Work *w = share->work + i;
        int64_t tiles = w->batch * ((w->length + TILE - 1) / TILE);
        rotate_tiles(w, tiles * share->part / share->parts, tiles * (share->part + 1) / share->parts);
    }
    return NULL;
}

enum { MOST_THREADS = 256 };

static void rotate_all(const Work *work, int count, int threads) {
    Share shares[MOST_THREADS];
    for (int i = 0; i < threads; i++) shares[i] = (Share){work, count, i, threads};
#ifdef HAS_THREADS
    pthread_t started[MOST_THREADS];
    int running[MOST_THREADS] = {0};
    for (int i = 1; i < threads; i++)
        running[i] = pthread_create(&started[i], NULL, rotate_share, &shares[i]) == 0;
    rotate_share(&shares[0]);
    for (int i = 1; i < threads; i++) {
        if (running[i]) pthread_join(started[i], NULL);
        else rotate_share(&shares[i]); /* no thread was to be had: its share is done here */
    }
#else
    for (int i = 0; i < threads; i++) rotate_share(&shares[i]);
#endif
}

enum { FIELDS = 23 };

/* The integers of one tuple, in the order of `described` in cpu.py. */
static int read_work(PyObject *tuple, Work *w) {
    int64_t v[FIELDS];
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != FIELDS) {
        PyErr_SetString(PyExc_TypeError, "each tensor must be described by a tuple of 23 integers");
        return -1;
    }
    for (int i = 0; i < FIELDS; i++) {
        v[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (v[i] == -1 && PyErr_Occurred()) return -1;
    }
    *w = (Work){
        .x = (const char *)(intptr_t)v[0], .out = (char *)(intptr_t)v[1],
        .cos = (const char *)(intptr_t)v[2], .sin = (const char *)(intptr_t)v[3],
        .batch = v[4], .heads = v[5], .length = v[6], .dim = v[7],
        .x_stride = {v[8], v[9], v[10]}, .out_stride = {v[11], v[12], v[13]},
        .table_stride = {v[14], v[15], v[16]},
        .start = v[17], .pairs = v[18], .dtype = (int)v[19],
        .read_interleaved = v[20] != 0, .write_interleaved = v[21] != 0, .adjoint = v[22] != 0,
    };
    if (w->dtype < 0 || w->dtype >= DTYPES) {
        PyErr_SetString(PyExc_ValueError, "dtype must be 0, 1, 2 or 3");
        return -1;
    }
    return 0;
}

enum { MOST_TENSORS = 4 };

/* rotate(threads, tensor, ...): see cpu.py, which alone calls it. */
static PyObject *py_rotate(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    Work work[MOST_TENSORS];
    if (count < 2 || count > 1 + MOST_TENSORS) {
        PyErr_SetString(PyExc_TypeError, "rotate takes threads and 1 to 4 tensors");
        return NULL;
    }
    long threads = PyLong_AsLong(arguments[0]);
    if (threads == -1 && PyErr_Occurred()) return NULL;
    if (threads < 1) threads = 1;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    for (Py_ssize_t i = 1; i < count; i++)
        if (read_work(arguments[i], &work[i - 1]) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    rotate_all(work, (int)count - 1, (int)threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"rotate", (PyCFunction)(void (*)(void))py_rotate, METH_FASTCALL, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_rotate", NULL, -1, METHODS,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__rotate(void) { return PyModule_Create(&MODULE); }
