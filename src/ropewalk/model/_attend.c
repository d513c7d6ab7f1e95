/* Softmax attention of few queries or to few keys: the steps of generation, and sentences.
 *
 * For a query q of one head, with keys k_t and values v_t,
 *
 *     score_t = scale * q·k_t + added_t,     out = sum_t softmax(score)_t v_t
 *
 * Torch multiplies such small matrices one by one, by general code. The extension is optional: without
 * it, torch computes the same up to rounding, in more time.
 *
 * The loops are compiled with and without AVX2. The best set that the processor has is chosen when the
 * module is loaded; `limit` chooses a lesser one, for tests and benchmarks.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "../rotary/kernels/_instructions.h"
#include "../rotary/kernels/_team.h"
#include "../rotary/kernels/_tensor.h"

enum { BATCH, HEAD, ROW, AXES }; /* the axes before head_dim */
enum { MOST_KEYS = 4096 };       /* a list of them is on the stack; a multiple of LANES */
enum { DIM_STEP = 16 };          /* head_dim is a multiple of this */

/* Strides are in elements; they are 0 along an axis that `added` does not have. */
typedef struct {
    const float *q, *k, *v, *added; /* added may be NULL; -FLT_MAX hides a key */
    float *out;
    int64_t batch, heads, queries, keys, dim;
    int64_t q_stride[AXES], k_stride[AXES], v_stride[AXES], added_stride[AXES], out_stride[AXES];
    float scale;
} Work;

/* The keys that a query may look at, and what is added to their scores. */
typedef struct {
    int64_t count;
    int32_t key[MOST_KEYS];
    float added[MOST_KEYS];
} Keys;

static inline int64_t offset(const int64_t *stride, int64_t batch, int64_t head, int64_t row) {
    return batch * stride[BATCH] + head * stride[HEAD] + row * stride[ROW];
}

/* Attends with queries first .. last - 1 of all, in the order of batch, positions and heads: the heads of
 * a position often look at the same keys. */
typedef void (*Attend)(const Work *, int64_t first, int64_t last);

#define SET portable
#define LANES 4
#include "_attend_loops.h"

#ifdef HAS_SETS
FOR_INSTRUCTIONS("avx2,fma")
#define SET avx2
#define LANES 8
#include "_attend_loops.h"
END_INSTRUCTIONS
#endif

/* Vectors of AVX-512 gain nothing: they take more shuffles for as many keys. */
static const struct {
    const char *name;
    Attend attend;
} SETS[] = {
    {"portable", attend_portable},
#ifdef HAS_SETS
    {"avx2", attend_avx2},
#endif
};

static Attend attend = attend_portable;

static void use_set(int set) { attend = SETS[set].attend; }

/* Queries of all heads, which threads take one part after another. */
typedef struct {
    const Work *work;
    int64_t all, part;
    atomic_llong next;
} Job;

static void take_parts(void *shared) {
    Job *job = shared;
    int64_t first;
    while ((first = atomic_fetch_add(&job->next, job->part)) < job->all)
        attend(job->work, first, first + job->part < job->all ? first + job->part : job->all);
}

enum { WORTH_A_THREAD = 1 << 18, PARTS_OF_A_THREAD = 4 }; /* the first counts multiplications */

static void attend_all(const Work *w, int64_t threads) {
    int64_t all = w->batch * w->queries * w->heads, worth = all * w->keys * w->dim / WORTH_A_THREAD;
    if (threads > worth) threads = worth;
#ifdef HAS_THREADS
    if (threads > 1 && team) {
        Job job = {w, all, all / (threads * PARTS_OF_A_THREAD) + 1, 0};
        team(take_parts, &job, (unsigned)threads, 0);
        return;
    }
#endif
    attend(w, 0, all);
}

/* Reads a float32 tensor of four axes with contiguous rows; returns 0 if it is not one. */
static int read_tensor(PyObject *tensor, View *v) {
    return view(tensor, v) && v->dtype == FLOAT32 && v->axes == AXES + 1;
}

static int has_shape(const View *v, int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
    return v->size[BATCH] == batch && v->size[HEAD] == heads && v->size[ROW] == rows &&
           v->size[AXES] == columns;
}

/* Reads `added`, whose axes before the keys may have size 1; None adds nothing. */
static int read_added(PyObject *tensor, const View *q, Work *w) {
    View added;
    if (tensor == Py_None) return 1;
    if (!read_tensor(tensor, &added) || added.size[AXES] != w->keys) return 0;
    for (int axis = 0; axis < AXES; axis++) {
        if (added.size[axis] != 1 && added.size[axis] != q->size[axis]) return 0;
        w->added_stride[axis] = added.size[axis] == 1 ? 0 : added.stride[axis];
    }
    w->added = (const float *)added.data;
    return 1;
}

enum { Q, K, V, ADDED, OUT, SCALE, THREADS, ARGUMENTS };

static int plan(PyObject *const *given, Work *w) {
    View q, k, v, out;
    if (!read_tensor(given[Q], &q) || !read_tensor(given[K], &k) || !read_tensor(given[V], &v) || !read_tensor(given[OUT], &out))
        return 0;
    *w = (Work){.q = (const float *)q.data,
                .k = (const float *)k.data,
                .v = (const float *)v.data,
                .out = (float *)out.data,
                .batch = q.size[BATCH],
                .heads = q.size[HEAD],
                .queries = q.size[ROW],
                .keys = k.size[ROW],
                .dim = q.size[AXES],
                .scale = (float)PyFloat_AsDouble(given[SCALE])};
    memcpy(w->q_stride, q.stride, sizeof w->q_stride);
    memcpy(w->k_stride, k.stride, sizeof w->k_stride);
    memcpy(w->v_stride, v.stride, sizeof w->v_stride);
    memcpy(w->out_stride, out.stride, sizeof w->out_stride);
    if (w->keys < 1 || w->keys > MOST_KEYS || w->dim < 1 || w->dim % DIM_STEP) return 0;
    return has_shape(&k, w->batch, w->heads, w->keys, w->dim) &&
           has_shape(&v, w->batch, w->heads, w->keys, w->dim) &&
           has_shape(&out, w->batch, w->heads, w->queries, w->dim) &&
           read_added(given[ADDED], &q, w) && !PyErr_Occurred();
}

/* attend(q, k, v, added, out, scale, threads) -> bool; only short_attention.py calls it. Returns False,
 * without side effects, if it cannot read an argument. */
static PyObject *py_attend(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    Work work;
    if (count != ARGUMENTS) {
        PyErr_SetString(PyExc_TypeError, "attend takes 7 arguments");
        return NULL;
    }
    int64_t threads = PyLong_AsLongLong(given[THREADS]);
    int planned = !PyErr_Occurred() && plan(given, &work);
    if (planned) {
        Py_BEGIN_ALLOW_THREADS
        attend_all(&work, threads);
        Py_END_ALLOW_THREADS
    }
    PyErr_Clear();
    return PyBool_FromLong(planned);
}

#include "../rotary/kernels/_limit.h"

static PyMethodDef METHODS[] = {
    {"attend", (PyCFunction)(void (*)(void))py_attend, METH_FASTCALL, NULL},
    {"limit", py_limit, METH_O, NULL},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_attend", NULL, -1, METHODS,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__attend(void) {
    if (find_torch()) return NULL;
    use_set(best_set());
    find_team();
    return PyModule_Create(&MODULE);
}
