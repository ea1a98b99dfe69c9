/* Waits for sockets, receives requests from them and sends replies to them. The compiled build uses
 * these functions instead of those in sockets.py, which documents them.
 *
 * A chunk is read onto the stack and its requests are cut there, so that no objects are created
 * except their arguments.
 */

#include "../../resp/_cut.h"

#include <errno.h>
#include <math.h>
#include <sys/epoll.h>
#include <unistd.h>

#define MOST_READ 65536 /* bytes */
#define LONG_WRITE 65536 /* bytes; other threads may run while the kernel copies more */
#define MOST_EVENTS 512
#define LOW 1024 /* descriptors below this have their usual event cached */

static PyObject *readable[LOW]; /* the events (descriptor, EPOLLIN) */

static PyObject *
sockets_receive(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("receive", nargs, 4) || check_list("receive", args[3]))
        return NULL;
    int fd = (int)PyLong_AsLong(args[0]);
    Py_ssize_t most = PyLong_AsSsize_t(args[1]);
    long long max_bulk = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (most < 1) {
        PyErr_SetString(PyExc_ValueError, "receive() needs room for a byte");
        return NULL;
    }
    char buffer[MOST_READ];
    if (most > MOST_READ)
        most = MOST_READ;
    ssize_t size;
    /* The socket is non-blocking, and little is read, so keep the lock. */
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
sockets_send(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
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
sockets_poll(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
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
    {"poll", (PyCFunction)(void (*)(void))sockets_poll, METH_FASTCALL,
     "poll(fd, timeout, most): select.epoll.poll of the epoll descriptor fd, but that it may give\n"
     "nothing early."},
    {"receive", (PyCFunction)(void (*)(void))sockets_receive, METH_FASTCALL,
     "receive(fd, most, max_bulk, requests): as in sockets.py."},
    {"send", (PyCFunction)(void (*)(void))sockets_send, METH_FASTCALL,
     "send(fd, data): as in sockets.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef sockets = {
    PyModuleDef_HEAD_INIT,
    .m_name = "disque_trio.respserver.io._sockets",
    .m_doc = "Waits for sockets, reads requests and writes replies; see sockets.py.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__sockets(void)
{
    return PyModule_Create(&sockets);
}
