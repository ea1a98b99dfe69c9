/* The compiled build uses this instead of the function of the same name in plain.py. */

#include "_cut.h"

static PyObject *
cut_plain(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("cut_plain", nargs, 4) || check_list("cut_plain", args[3]))
        return NULL;
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(args[0], &data, &size))
        return NULL;
    Py_ssize_t start = PyLong_AsSsize_t(args[1]);
    long long max_bulk = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (start < 0 || start > size) {
        PyErr_SetString(PyExc_ValueError, "cut_plain() has to start inside of the data");
        return NULL;
    }
    const char *after = cut_requests(data + start, data + size, max_bulk, args[3]);
    return after == NULL ? NULL : PyLong_FromSsize_t(after - data);
}

static PyMethodDef functions[] = {
    {"cut_plain", (PyCFunction)(void (*)(void))cut_plain, METH_FASTCALL,
     "cut_plain(data, start, max_bulk, requests): as in plain.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef cut = {
    PyModuleDef_HEAD_INIT,
    .m_name = "disque_trio.resp._cut",
    .m_doc = "Cuts plain requests into their arguments; see plain.py.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__cut(void)
{
    return PyModule_Create(&cut);
}
