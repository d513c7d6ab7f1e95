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
 * The loops are compiled for several instruction sets, of which the best that the processor has is
 * chosen when the module is loaded. Threads are started for a call and end with it: nothing is left
 * that a fork could break, and for the tensors that are worth several threads their start is a small
 * part.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(_WIN32)
#include <pthread.h>
#include <sched.h>
#define HAS_THREADS 1
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


/* Rows that lie one behind the other along an axis of each tensor. */
typedef struct {
    const char *x;
    char *out;
    const char *cos, *sin;
    int64_t count, x_stride, out_stride, table_stride; /* in elements */
} Rows;

typedef void (*Rotate)(const Work *, const Rows *);

#define SET portable
#include "_rotate_loops.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_SETS 1
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define SET avx2
#include "_rotate_loops.h"
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define SET avx512
#include "_rotate_loops.h"
#pragma GCC pop_options
#endif

static const Rotate *rotate_of_dtype = ROTATE_portable;

static void choose_set(void) {
#ifdef HAS_SETS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        rotate_of_dtype = ROTATE_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        rotate_of_dtype = ROTATE_avx512;
#endif
}

static void copy_rest(const Work *w, const Rows *rows) {
    int64_t size = SIZE[w->dtype], turning = 2 * w->pairs * size, before = w->start * size;
    int64_t after = w->dim * size - before - turning;
    const char *x = rows->x;
    char *out = rows->out;
    for (int64_t n = rows->count; n > 0; n--) {
        if (before) memcpy(out, x, before);
        if (after) memcpy(out + before + turning, x + before + turning, after);
        x += rows->x_stride * size;
        out += rows->out_stride * size;
    }
}

/* Rotates rows first .. last - 1 of all, in the order in which they lie in memory, which is what
 * processors fetch ahead: along the sequence, or along heads where these lie closer. */
static void rotate_rows(const Work *w, int64_t first, int64_t last) {
    int64_t size = SIZE[w->dtype], table_size = w->dtype == FLOAT64 ? 8 : 4;
    int by_head = w->length == 1 || (w->heads > 1 && w->x_stride[1] < w->x_stride[2]);
    int inner = by_head ? 1 : 2, outer = by_head ? 2 : 1;
    int64_t many = by_head ? w->heads : w->length, outers = by_head ? w->length : w->heads;
    int partial = w->out != w->x && 2 * w->pairs < w->dim;
    while (first < last) {
        int64_t i = first % many, o = first / many % outers, b = first / many / outers;
        int64_t count = many - i < last - first ? many - i : last - first;
        int64_t table = table_size * (b * w->table_stride[0] + o * w->table_stride[outer] +
                                      i * w->table_stride[inner]);
        Rows rows = {
            w->x + size * (b * w->x_stride[0] + o * w->x_stride[outer] + i * w->x_stride[inner]),
            w->out + size * (b * w->out_stride[0] + o * w->out_stride[outer] + i * w->out_stride[inner]),
            w->cos + table, w->sin + table,
            count, w->x_stride[inner], w->out_stride[inner], w->table_stride[inner],
        };
        if (partial) copy_rest(w, &rows);
        rows.x += size * w->start;
        rows.out += size * w->start;
        rotate_of_dtype[w->dtype](w, &rows);
        first += count;
    }
}

enum { MOST_TENSORS = 4, MOST_THREADS = 256, CHUNK = 1 << 17 /* bytes of x */ };

/* What threads share: chunks of rows, which each takes as it is free. The last to leave frees it, for
 * a thread may come to run only when all has long been done. */
typedef struct {
    Work work[MOST_TENSORS];
    int64_t rows[MOST_TENSORS], first_chunk[MOST_TENSORS + 1]; /* rows in a chunk of each tensor */
    int count;
    atomic_llong next, done;
    atomic_int users;
} Job;

static void take_chunks(Job *job) {
    int64_t all = job->first_chunk[job->count], chunk;
    while ((chunk = atomic_fetch_add(&job->next, 1)) < all) {
        int i = 0;
        while (chunk >= job->first_chunk[i + 1]) i++;
        const Work *w = &job->work[i];
        int64_t first = (chunk - job->first_chunk[i]) * job->rows[i], last = first + job->rows[i];
        int64_t end = w->batch * w->heads * w->length;
        rotate_rows(w, first, last < end ? last : end);
        atomic_fetch_add(&job->done, 1);
    }
}

static void leave(Job *job) {
    if (atomic_fetch_sub(&job->users, 1) == 1) free(job);
}

#ifdef HAS_THREADS
static void *help(void *job) {
    take_chunks(job);
    leave(job);
    return NULL;
}

/* Starts up to n threads; where none is to be had, the caller does all. */
static void start_helpers(Job *job, int n) {
    pthread_attr_t detached;
    pthread_t thread;
    if (pthread_attr_init(&detached)) return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (; n > 0; n--) {
        atomic_fetch_add(&job->users, 1);
        if (pthread_create(&thread, &detached, help, job)) {
            atomic_fetch_sub(&job->users, 1);
            break;
        }
    }
    pthread_attr_destroy(&detached);
}
#endif

static void rotate_all(const Work *work, int count, int threads) {
    Job *job = threads > 1 ? malloc(sizeof(Job)) : NULL;
    if (!job) {
        for (int i = 0; i < count; i++)
            rotate_rows(&work[i], 0, work[i].batch * work[i].heads * work[i].length);
        return;
    }
    job->count = count;
    job->first_chunk[0] = 0;
    for (int i = 0; i < count; i++) {
        const Work *w = &work[i];
        int64_t bytes = w->dim * SIZE[w->dtype], all = w->batch * w->heads * w->length;
        job->work[i] = *w;
        job->rows[i] = bytes < CHUNK ? CHUNK / bytes : 1;
        job->first_chunk[i + 1] = job->first_chunk[i] + (all + job->rows[i] - 1) / job->rows[i];
    }
    atomic_init(&job->next, 0);
    atomic_init(&job->done, 0);
    atomic_init(&job->users, 1);
#ifdef HAS_THREADS
    start_helpers(job, threads - 1);
#endif
    take_chunks(job);
    /* Not the threads are waited for, which may not run yet, but the chunks that they have taken. */
    while (atomic_load(&job->done) < job->first_chunk[count]) {
#ifdef HAS_THREADS
        sched_yield();
#endif
    }
    leave(job);
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

PyMODINIT_FUNC PyInit__rotate(void) {
    choose_set();
    return PyModule_Create(&MODULE);
}
