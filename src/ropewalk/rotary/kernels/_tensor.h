/* The facts of a torch tensor that the kernel needs, without torch's headers: from DLPack's table of
 * functions if torch has it (2.10 and later), else from the tensor's attributes, as in Python.
 */

enum { FLOAT32, FLOAT64, BFLOAT16, FLOAT16, DTYPES };
static const int64_t SIZE[DTYPES] = {4, 8, 2, 2};

enum { MOST_AXES = 4 };

typedef struct {
    char *data;
    int dtype, axes;
    int64_t size[MOST_AXES], stride[MOST_AXES]; /* strides in elements */
} View;

/* The parts of DLPack's dlpack.h, major version 1, that are needed here. */

typedef struct {
    uint32_t major, minor;
} DLPackVersion;

typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct DLPackExchangeAPI {
    DLPackVersion version;
    struct DLPackExchangeAPI *older;
    void (*managed[3])(void); /* these three make tensors that own their memory */
    int (*dltensor_from_py_object_no_sync)(void *object, DLTensor *out);
} DLPackExchangeAPI;

enum { DLPACK_MAJOR = 1, DLPACK_CPU = 1, DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4 };

static int (*describe)(void *, DLTensor *); /* NULL if torch has none */
static PyObject *dtype_of_torch[DTYPES], *empty_like;
static PyObject *is_cpu_name, *dtype_name, *data_ptr_name, *shape_name, *stride_name;

static int find_describe(PyObject *torch) {
    PyObject *tensor = PyObject_GetAttrString(torch, "Tensor");
    PyObject *capsule = tensor ? PyObject_GetAttrString(tensor, "__dlpack_c_exchange_api__") : NULL;
    DLPackExchangeAPI *api =
        capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    PyErr_Clear();
    while (api && api->version.major > DLPACK_MAJOR) api = api->older;
    if (api && api->version.major == DLPACK_MAJOR) describe = api->dltensor_from_py_object_no_sync;
    Py_XDECREF(capsule);
    Py_XDECREF(tensor);
    return tensor ? 0 : -1;
}

/* Called once, when the module is loaded; returns -1 with an error set if torch lacks a name. */
static int find_torch(void) {
    static const char *const names[DTYPES] = {"float32", "float64", "bfloat16", "float16"};
    PyObject *torch = PyImport_ImportModule("torch");
    if (!torch) return -1;
    empty_like = PyObject_GetAttrString(torch, "empty_like");
    is_cpu_name = PyUnicode_InternFromString("is_cpu");
    dtype_name = PyUnicode_InternFromString("dtype");
    data_ptr_name = PyUnicode_InternFromString("data_ptr");
    shape_name = PyUnicode_InternFromString("shape");
    stride_name = PyUnicode_InternFromString("stride");
    for (int i = 0; i < DTYPES; i++) dtype_of_torch[i] = PyObject_GetAttrString(torch, names[i]);
    find_describe(torch);
    Py_DECREF(torch);
    return PyErr_Occurred() ? -1 : 0;
}

static int view_by_dlpack(PyObject *tensor, View *v) {
    DLTensor t;
    if (describe(tensor, &t) || t.device_type != DLPACK_CPU || t.lanes != 1) return 0;
    if (t.ndim < 1 || t.ndim > MOST_AXES) return 0;
    if (t.code == DLPACK_FLOAT && t.bits == 32) v->dtype = FLOAT32;
    else if (t.code == DLPACK_FLOAT && t.bits == 64) v->dtype = FLOAT64;
    else if (t.code == DLPACK_BFLOAT && t.bits == 16) v->dtype = BFLOAT16;
    else if (t.code == DLPACK_FLOAT && t.bits == 16) v->dtype = FLOAT16;
    else return 0;
    v->data = (char *)t.data + t.byte_offset;
    v->axes = t.ndim;
    memcpy(v->size, t.shape, t.ndim * sizeof(int64_t));
    memcpy(v->stride, t.strides, t.ndim * sizeof(int64_t));
    return 1;
}

/* Reads the integers of a tuple, and releases it. Returns their number, 0 if none or too many. */
static int integers_of(PyObject *tuple, int64_t *into) {
    Py_ssize_t n = tuple && PyTuple_Check(tuple) ? PyTuple_Size(tuple) : 0;
    if (n > MOST_AXES) n = 0;
    for (Py_ssize_t i = 0; i < n; i++) into[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    Py_XDECREF(tuple);
    return PyErr_Occurred() ? 0 : (int)n;
}

static int view_by_attributes(PyObject *tensor, View *v) {
    PyObject *is_cpu = PyObject_GetAttr(tensor, is_cpu_name);
    PyObject *dtype = PyObject_GetAttr(tensor, dtype_name);
    int there = is_cpu == Py_True;
    for (v->dtype = 0; v->dtype < DTYPES && dtype != dtype_of_torch[v->dtype];) v->dtype++;
    Py_XDECREF(is_cpu);
    Py_XDECREF(dtype);
    if (!there || v->dtype == DTYPES) return 0;
    v->axes = integers_of(PyObject_GetAttr(tensor, shape_name), v->size);
    if (integers_of(PyObject_CallMethodObjArgs(tensor, stride_name, NULL), v->stride) != v->axes)
        return 0;
    PyObject *address = PyObject_CallMethodObjArgs(tensor, data_ptr_name, NULL);
    if (!address) return 0;
    v->data = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    return v->axes > 0 && !PyErr_Occurred();
}

static int is_empty(const View *v) {
    for (int i = 0; i < v->axes; i++)
        if (!v->size[i]) return 1;
    return 0;
}

/* Whether the tensor is on the CPU, with a known dtype and number of axes, and contiguous rows. */
static int view(PyObject *tensor, View *v) {
    if (!(describe ? view_by_dlpack(tensor, v) : view_by_attributes(tensor, v))) return 0;
    if (!v->data && !is_empty(v)) return 0; /* torch has no memory for tensors that it knows to be zeros */
    return v->stride[v->axes - 1] == 1 || v->size[v->axes - 1] == 1;
}
