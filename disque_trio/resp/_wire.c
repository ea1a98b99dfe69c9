/* Waits for sockets, reads requests from them and writes replies to them: what the compiled form has
 * instead of the functions of the same names in plain.py, which say what they do.
 *
 * A chunk is read into the stack and its requests are cut out there, so that nothing is made but
 * their arguments. Short arguments that come again and again (names of commands and queues,
 * time-outs) are the same object each time, whose hash is known.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define MOST_READ 65536 /* bytes */
#define LONG_WRITE 65536 /* bytes; other threads may run while the kernel copies more */
#define MAX_ARGS (1024 * 1024)
#define MAX_DIGITS 10
#define LEAST_ARGUMENT 6 /* bytes of an empty one: $0, and two line ends */

#define SHORT 16 /* bytes of an argument that may come again and again */
#define RECENT 256

#define MOST_EVENTS 512
#define LOW 1024 /* descriptors below have their usual event at hand */

static PyObject *recent[RECENT];
static PyObject *readable[LOW]; /* the events (descriptor, EPOLLIN) */

/* The argument of `length` bytes at `text`, behind at least eight other bytes of its request. */
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

/* Read the number that `*at` begins with, up to the end of its line, and move `*at` behind that.
 * Returns -1 where there is no such line of at most ten digits. */
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

/* Cut the plain requests that `data` begins with, and add them to `requests`. Returns where the
 * first one begins that was not cut, or NULL with an exception set. */
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

static PyObject *
wire_cut_plain(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
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

static PyObject *
wire_receive(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("receive", nargs, 4) || check_list("receive", args[3]))
        return NULL;
    int fd = (int)PyLong_AsLong(args[0]);
    Py_ssize_t most = PyLong_AsSsize_t(args[1]);
    long long max_bulk = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    char buffer[MOST_READ];
    if (most > MOST_READ)
        most = MOST_READ;
    ssize_t size;
    /* The socket does not block, and what is read is little: the lock is kept. */
    while ((size = read(fd, buffer, most)) < 0 && errno == EINTR)
        if (PyErr_CheckSignals())
            return NULL;
    if (size < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    const char *after = cut_requests(buffer, buffer + size, max_bulk, args[3]);
    if (after == NULL)
        return NULL;
    PyObject *result = PyTuple_New(2);
    if (result == NULL)
        return NULL;
    PyObject *received = PyLong_FromSsize_t(size);
    PyObject *rest = PyBytes_FromStringAndSize(after, buffer + size - after);
    PyTuple_SET_ITEM(result, 0, received);
    PyTuple_SET_ITEM(result, 1, rest);
    if (received == NULL || rest == NULL)
        Py_CLEAR(result);
    return result;
}

static PyObject *
wire_send(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("send", nargs, 2))
        return NULL;
    char *data;
    Py_ssize_t size;
    int fd = (int)PyLong_AsLong(args[0]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(args[1], &data, &size))
        return NULL;
    ssize_t sent;
    do {
        if (size <= LONG_WRITE) {
            sent = write(fd, data, size);
        } else {
            Py_BEGIN_ALLOW_THREADS
            sent = write(fd, data, size);
            Py_END_ALLOW_THREADS
        }
    } while (sent < 0 && errno == EINTR && !PyErr_CheckSignals());
    if (sent >= 0)
        return PyLong_FromSsize_t(sent);
    return PyErr_Occurred() ? NULL : PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *
event_of(const struct epoll_event *event)
{
    int fd = event->data.fd;
    if (event->events != EPOLLIN || fd < 0 || fd >= LOW)
        return Py_BuildValue("iI", fd, event->events);
    if (readable[fd] == NULL)
        readable[fd] = Py_BuildValue("iI", fd, event->events);
    Py_XINCREF(readable[fd]);
    return readable[fd];
}

static PyObject *
wire_poll(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("poll", nargs, 3))
        return NULL;
    int fd = (int)PyLong_AsLong(args[0]);
    double timeout = ceil(PyFloat_AsDouble(args[1]) * 1000);
    int most = (int)PyLong_AsLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (!(timeout >= 0 && timeout <= INT_MAX) || most < 1) {
        PyErr_SetString(PyExc_ValueError, "poll() needs a time-out, and room for an event");
        return NULL;
    }
    struct epoll_event events[MOST_EVENTS];
    if (most > MOST_EVENTS)
        most = MOST_EVENTS;
    int found;
    Py_BEGIN_ALLOW_THREADS
    found = epoll_wait(fd, events, most, (int)timeout);
    Py_END_ALLOW_THREADS
    if (found < 0) {
        if (errno != EINTR)
            return PyErr_SetFromErrno(PyExc_OSError);
        if (PyErr_CheckSignals())
            return NULL;
        found = 0;
    }
    PyObject *result = PyList_New(found);
    for (int i = 0; result != NULL && i < found; i++) {
        PyObject *event = event_of(&events[i]);
        if (event == NULL)
            Py_CLEAR(result);
        else
            PyList_SET_ITEM(result, i, event);
    }
    return result;
}

static PyMethodDef functions[] = {
    {"cut_plain", (PyCFunction)(void (*)(void))wire_cut_plain, METH_FASTCALL,
     "cut_plain(data, start, max_bulk, requests): as in plain.py."},
    {"poll", (PyCFunction)(void (*)(void))wire_poll, METH_FASTCALL,
     "poll(fd, timeout, most): select.epoll.poll of the epoll descriptor fd, but that it may give\n"
     "nothing early."},
    {"receive", (PyCFunction)(void (*)(void))wire_receive, METH_FASTCALL,
     "receive(fd, most, max_bulk, requests): as in plain.py."},
    {"send", (PyCFunction)(void (*)(void))wire_send, METH_FASTCALL,
     "send(fd, data): as in plain.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef wire = {
    PyModuleDef_HEAD_INIT,
    .m_name = "disque_trio.resp._wire",
    .m_doc = "Waits for sockets, reads requests and writes replies; see plain.py.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__wire(void)
{
    return PyModule_Create(&wire);
}
