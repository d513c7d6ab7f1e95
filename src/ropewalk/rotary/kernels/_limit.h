/* The choice among SETS, the sets of instructions for which a kernel is compiled.
 *
 * Include this after SETS, best_set() and use_set().
 */

/* limit(most) -> name: uses the best set that the processor has, but none after the one named, and
 * returns its name. */
static PyObject *py_limit(PyObject *module, PyObject *most) {
    int set = best_set();
    if (!PyUnicode_Check(most)) {
        PyErr_SetString(PyExc_TypeError, "limit takes the name of a set");
        return NULL;
    }
    for (int i = 0; i < set; i++)
        if (!PyUnicode_CompareWithASCIIString(most, SETS[i].name)) set = i;
    use_set(set);
    return PyUnicode_FromString(SETS[set].name);
}
