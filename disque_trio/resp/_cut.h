/* Cuts plain requests into their arguments, for _cut.c and for respserver/io/_sockets.c. plain.py
 * defines what is plain.
 *
 * Short arguments that repeat (names of commands and queues, time-outs) become the same object each
 * time, whose hash is already known.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#define MAX_ARGS (1024 * 1024)
#define MAX_DIGITS 10
#define LEAST_ARGUMENT 6 /* bytes of an empty argument: $0, and two line ends */

#define SHORT 16 /* bytes of an argument that may be reused */
#define RECENT 256

static PyObject *recent[RECENT];

/* The argument of `length` bytes at `text`, after at least eight other bytes of its request. */
static PyObject *
argument(const char *text, Py_ssize_t length)
{
    if (length == 0 || length > SHORT)
        return PyBytes_FromStringAndSize(text, length);
    uint64_t end;
    memcpy(&end, text + length - sizeof end, sizeof end);
    PyObject **place = &recent[(end * UINT64_C(0x9E3779B97F4A7C15)) >> 56];
    PyObject *known = *place;
    if (known == NULL || PyBytes_GET_SIZE(known) != length
        || memcmp(PyBytes_AS_STRING(known), text, length) != 0) {
        PyObject *made = PyBytes_FromStringAndSize(text, length);
        if (made == NULL)
            return NULL;
        *place = made;
        Py_XDECREF(known);
        known = made;
    }
    Py_INCREF(known);
    return known;
}

/* Read the number at `*at`, up to the end of its line, and move `*at` past that. Returns -1 if there
 * is no such line of at most ten digits. */
static inline int64_t
number(const char **at, const char *end)
{
    const char *p = *at;
    const char *last = end - p > MAX_DIGITS ? p + MAX_DIGITS : end;
    int64_t value = 0;
    while (p < last && *p >= '0' && *p <= '9')
        value = value * 10 + (*p++ - '0');
    if (p == *at || end - p < 2 || p[0] != '\r' || p[1] != '\n')
        return -1;
    *at = p + 2;
    return value;
}

/* Cut the plain requests at the start of `data`, and append them to `requests`. Returns where the
 * first request begins that was not cut, or NULL with an exception set. */
static const char *
cut_requests(const char *data, const char *end, int64_t max_bulk, PyObject *requests)
{
    while (data < end && *data == '*') {
        const char *at = data + 1;
        int64_t count = number(&at, end);
        if (count <= 0 || count > MAX_ARGS || count > (end - at) / LEAST_ARGUMENT)
            break;
        PyObject *request = PyList_New(count);
        if (request == NULL)
            return NULL;
        for (int64_t i = 0; i < count; i++) {
            int64_t length = -1;
            if (at < end && *at == '$') {
                at++;
                length = number(&at, end);
            }
            if (length < 0 || length > max_bulk || length + 2 > end - at) {
                Py_DECREF(request);
                return data;
            }
            PyObject *made = argument(at, length);
            if (made == NULL) {
                Py_DECREF(request);
                return NULL;
            }
            PyList_SET_ITEM(request, i, made);
            at += length + 2;
        }
        int failed = PyList_Append(requests, request);
        Py_DECREF(request);
        if (failed)
            return NULL;
        data = at;
    }
    return data;
}

static int
check_count(const char *name, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments (%zd given)", name, wanted, given);
    return -1;
}

static int
check_list(const char *name, PyObject *requests)
{
    if (PyList_CheckExact(requests))
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() needs a list for the requests", name);
    return -1;
}
