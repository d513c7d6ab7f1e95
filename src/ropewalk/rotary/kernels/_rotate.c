/* Rotation of pairs, row by row, as ropewalk.rotary.rotate does, at the speed of memory.
 * The extension is optional: without it, torch computes the same in more time.
 *
 * For a row x of D elements at position m, with c_i = amplitude * cos(angle_i) and s_i likewise,
 *
 *     y1_i = x1_i * c_i - x2_i * s_i
 *     y2_i = x2_i * c_i + x1_i * s_i        i = 0 .. R/2 - 1
 *
 * where the two of pair i are R/2 apart (half) or next to each other (interleaved). Arithmetic is in
 * float (double for double), without fused multiply-add, so that it equals the reference bit for bit.
 *
 * The loops are compiled for several sets of instructions (_rotate_sets.h). The best one that the
 * processor has is chosen when the module is loaded; `limit` chooses a lesser one, for tests and
 * benchmarks.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_instructions.h"
#include "_tensor.h"

#include "_rotate_work.h"
#include "_rotate_sets.h"

static void copy_rest(const Work *w, const Rows *rows) {
    int64_t size = SIZE[w->dtype], rotated = 2 * w->pairs * size, before = w->start * size;
    int64_t after = w->dim * size - before - rotated;
    for (int64_t n = 0; n < rows->count * rows->heads; n++) {
        int64_t row = n % rows->count, head = n / rows->count;
        const char *x = rows->x + size * (row * rows->x_stride + head * rows->x_head);
        char *out = rows->out + size * (row * rows->out_stride + head * rows->out_head);
        if (before) memcpy(out, x, before);
        if (after) memcpy(out + before + rotated, x + before + rotated, after);
    }
}

/* Whether the heads of a position are closer in memory than the positions of a head. */
static int heads_are_closer(const Work *w) {
    return w->length == 1 || (w->heads > 1 && w->x_stride[1] < w->x_stride[2]);
}

/* Heads that are rotated together, so that the tables are read once for both. Heads that are closer
 * are rotated one after another, with a row of the tables that is still in the nearest cache. */
static int64_t heads_together(const Work *w) {
    return heads_are_closer(w) || w->heads == 1 ? 1 : 2;
}

/* The parts into which the work can be divided: rows of heads that are rotated together. */
static int64_t parts(const Work *w) {
    int64_t together = heads_together(w);
    return w->batch * w->length * ((w->heads + together - 1) / together);
}

/* Rotates parts first .. last - 1 of all, in the order of memory, which processors prefetch: along the
 * sequence, or along heads if these are closer. */
static void rotate_parts(const Work *w, int64_t first, int64_t last) {
    int64_t size = SIZE[w->dtype], table_size = w->dtype == FLOAT64 ? 8 : 4;
    int by_head = heads_are_closer(w), inner = by_head ? 1 : 2, outer = by_head ? 2 : 1;
    int64_t together = heads_together(w), groups = (w->heads + together - 1) / together;
    int64_t many = by_head ? w->heads : w->length, outers = by_head ? w->length : groups;
    int partial = w->out != w->x && 2 * w->pairs < w->dim;
    while (first < last) {
        int64_t i = first % many, o = first / many % outers * together, b = first / many / outers;
        int64_t count = many - i < last - first ? many - i : last - first;
        int64_t heads = together == 2 && o + 1 < w->heads ? 2 : 1;
        int64_t table = table_size * (b * w->table_stride[0] + o * w->table_stride[outer] +
                                      i * w->table_stride[inner]);
        Rows rows = {
            w->x + size * (b * w->x_stride[0] + o * w->x_stride[outer] + i * w->x_stride[inner]),
            w->out + size * (b * w->out_stride[0] + o * w->out_stride[outer] + i * w->out_stride[inner]),
            w->cos + table, w->sin + table,
            count, w->x_stride[inner], w->out_stride[inner], w->table_stride[inner],
            heads, w->x_stride[1], w->out_stride[1],
        };
        if (partial) copy_rest(w, &rows);
        rows.x += size * w->start;
        rows.out += size * w->start;
        rotate_of_dtype[w->dtype](w, &rows);
        first += count;
    }
}

#include "_rotate_threads.h"

/* The places of pairs in x and in out: `Layout` of reference.py. */
typedef struct {
    int64_t read_interleaved, write_interleaved, start, seq_dim, adjoint;
} Layout;

/* The values of the axes batch, heads and sequence, whatever their order in x. */
static void find_axes(int axes, const int64_t *of_axes, int64_t seq_dim, int64_t absent, int64_t *found) {
    int heads_after = seq_dim == -3;
    found[0] = axes == 4 || (axes == 3 && !heads_after) ? of_axes[0] : absent;
    found[1] = heads_after ? of_axes[axes - 2] : axes == 4 ? of_axes[1] : absent;
    found[2] = of_axes[axes + seq_dim];
}

/* The work for x, with row `first` of the tables for its first position; returns 0 if impossible. */
static int plan(const View *x, const View *out, const View *cos, const View *sin, int64_t first,
                const Layout *layout, Work *w) {
    int64_t sizes[3], dim = x->size[x->axes - 1], row = cos->stride[cos->axes - 2];
    int64_t pairs = cos->size[cos->axes - 1], rows = cos->size[cos->axes - 2];
    int64_t batch = cos->axes == 3 ? cos->size[0] : 1;
    if ((layout->seq_dim != -2 && layout->seq_dim != -3) || x->axes < -layout->seq_dim) return 0;
    find_axes(x->axes, x->size, layout->seq_dim, 1, sizes);
    if (batch != 1 && batch != sizes[0]) return 0;
    if (cos->dtype != (x->dtype == FLOAT64 ? FLOAT64 : FLOAT32)) return 0;
    if (first < 0 || first > rows - sizes[2]) return 0;
    if (layout->start < 0 || layout->start > dim - 2 * pairs) return 0;
    if (out->dtype != x->dtype || out->axes != x->axes) return 0;
    if (memcmp(out->size, x->size, x->axes * sizeof(int64_t))) return 0;
    *w = (Work){
        .x = x->data, .out = out->data,
        .cos = cos->data + first * row * SIZE[cos->dtype],
        .sin = sin->data + first * row * SIZE[cos->dtype],
        .batch = sizes[0], .heads = sizes[1], .length = sizes[2], .dim = dim,
        .table_stride = {batch > 1 ? cos->stride[0] : 0, 0, row},
        .start = layout->start, .pairs = pairs, .dtype = x->dtype,
        .read_interleaved = layout->read_interleaved != 0,
        .write_interleaved = layout->write_interleaved != 0,
        .adjoint = layout->adjoint != 0,
    };
    find_axes(x->axes, x->stride, layout->seq_dim, 0, w->x_stride);
    find_axes(out->axes, out->stride, layout->seq_dim, 0, w->out_stride);
    return 1;
}

/* Whether cos and sin are both (S, R/2) or both (B, S, R/2), with the same strides. */
static int same_layout(const View *cos, const View *sin) {
    int n = cos->axes, same = (n == 2 || n == 3) && sin->axes == n && sin->dtype == cos->dtype;
    for (int i = 0; same && i < n; i++)
        same = sin->size[i] == cos->size[i] &&
               (sin->stride[i] == cos->stride[i] || cos->size[i] == 1);
    return same;
}

static int read_layout(PyObject *tuple, Layout *layout) {
    int64_t v[5];
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 5) return 0;
    for (int i = 0; i < 5; i++) v[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    *layout = (Layout){v[0], v[1], v[2], v[3], v[4]};
    return !PyErr_Occurred();
}

/* Plans the rotation of each x into its out, which is created if outs is None. Returns the outs, or NULL
 * if one cannot be planned. */
static PyObject *plan_all(PyObject *xs, PyObject *outs, const View *cos, const View *sin,
                          int64_t first, const Layout *layout, Work *work) {
    Py_ssize_t count = PyTuple_Size(xs);
    PyObject *found = outs == Py_None ? PyTuple_New(count) : PySequence_Tuple(outs);
    int right = found && PyTuple_Size(found) == count && count <= MOST_TENSORS;
    for (Py_ssize_t i = 0; right && i < count; i++) {
        View x, out;
        PyObject *given = PyTuple_GetItem(xs, i);
        right = view(given, &x);
        if (right && outs == Py_None) {
            PyObject *made = PyObject_CallFunctionObjArgs(empty_like, given, NULL);
            right = made && !PyTuple_SetItem(found, i, made);
        }
        right = right && view(PyTuple_GetItem(found, i), &out) &&
                plan(&x, &out, cos, sin, first, layout, &work[i]) &&
                work[i].length == work[0].length;
    }
    if (right) return found;
    Py_XDECREF(found);
    return NULL;
}

enum { XS, OUTS, COS, SIN, FIRST, LAYOUT, THREADS, CHUNK, ARGUMENTS };

/* rotate(xs, outs, cos, sin, first, layout, threads, chunk) -> outs; only cpu.py calls it.
 * Returns None, without side effects, if an argument does not fit; the caller knows the reason. */
static PyObject *py_rotate(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    View cos, sin;
    Layout layout;
    Work work[MOST_TENSORS];
    if (count != ARGUMENTS) {
        PyErr_SetString(PyExc_TypeError, "rotate takes 8 arguments");
        return NULL;
    }
    int64_t first = PyLong_AsLongLong(given[FIRST]), threads = PyLong_AsLongLong(given[THREADS]);
    int64_t chunk = PyLong_AsLongLong(given[CHUNK]);
    PyObject *xs = PySequence_Tuple(given[XS]), *outs = NULL;
    if (xs && !PyErr_Occurred() && read_layout(given[LAYOUT], &layout) && view(given[COS], &cos) &&
        view(given[SIN], &sin) && same_layout(&cos, &sin))
        outs = plan_all(xs, given[OUTS], &cos, &sin, first, &layout, work);
    if (outs) {
        int tensors = (int)PyTuple_Size(outs);
        Py_BEGIN_ALLOW_THREADS
        rotate_all(work, tensors, threads, chunk > 0 ? chunk : 1);
        Py_END_ALLOW_THREADS
    }
    Py_XDECREF(xs);
    if (outs) return outs;
    PyErr_Clear();
    Py_RETURN_NONE;
}

#include "_limit.h"

static PyMethodDef METHODS[] = {
    {"rotate", (PyCFunction)(void (*)(void))py_rotate, METH_FASTCALL, NULL},
    {"limit", py_limit, METH_O, NULL},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_rotate", NULL, -1, METHODS,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__rotate(void) {
    if (find_torch()) return NULL;
    use_set(best_set());
    find_team();
    return PyModule_Create(&MODULE);
}
