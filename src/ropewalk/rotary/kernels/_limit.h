/* The choice among SETS, the sets of instructions for which a kernel is compiled.
 *
 * Include this after SETS and best_set().
 */

/* Return the index of the best set that the processor has, but none after the one named `most`; -1
 * with an exception if that is no name. */
static int limited_set(PyObject *most) {
    int set = best_set();
    if (!PyUnicode_Check(most)) {
        PyErr_SetString(PyExc_TypeError, "limit takes the name of a set");
        return -1;
    }
    for (int i = 0; i < set; i++)
        if (!PyUnicode_CompareWithASCIIString(most, SETS[i].name)) set = i;
    return set;
}
