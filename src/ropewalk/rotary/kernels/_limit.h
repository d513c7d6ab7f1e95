/* The choice among SETS, the sets of instructions for which a kernel is compiled.
 *
 * Include this after SETS, whose order is that of _instructions.h, and use_set().
 */

/* The last of SETS that the processor has. */
static int best_set(void) {
    int last = sizeof SETS / sizeof SETS[0] - 1, found = instructions();
    return found < last ? found : last;
}

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
