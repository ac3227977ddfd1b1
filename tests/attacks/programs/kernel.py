"""System calls that Python does not offer, for hostile programs. A call that the kernel refuses is an `OSError`."""

import ctypes
import os
import platform

LIBC = ctypes.CDLL(None, use_errno=True)

CLONE_NEWUSER = 0x10000000
CORE = 4096
IPC_CREAT = 0o1000
MS_BIND = 4096
OPEN_TREE_CLONE = 1
PTRACE_SEIZE = 0x4206
SIGCHLD = 17

#: The calls from 424 on have the same number everywhere.
OPEN_TREE, IO_URING_SETUP, PIDFD_OPEN, CLONE3, PIDFD_GETFD = 428, 425, 434, 435, 438
CLONE = {"x86_64": 56}.get(platform.machine(), 220)


def checked(result):
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def call(number, *arguments):
    """A system call by its number; its arguments are numbers, or what `ctypes` passes as it is."""
    return checked(LIBC.syscall(number, *[ctypes.c_long(it) if isinstance(it, int) else it for it in arguments]))


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def read_memory(pid, address, length):
    """Reads the memory of another process (`process_vm_readv`)."""
    found = ctypes.create_string_buffer(length)
    here, there = Vector(ctypes.addressof(found), length), Vector(address, length)
    checked(LIBC.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))
    return found.raw


def trace(pid):
    # An attached process would stop.
    checked(LIBC.ptrace(PTRACE_SEIZE, pid, None, None))


def take_descriptor(pid, descriptor):
    """Takes a copy of another process's descriptor."""
    return call(PIDFD_GETFD, call(PIDFD_OPEN, pid, 0), descriptor, 0)


def started(pid):
    """The result of a call that makes a process."""
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def clone(flags):
    started(call(CLONE, flags | SIGCHLD, 0, 0, 0, 0))


def clone3(flags):
    arguments = (ctypes.c_uint64 * 8)(flags, 0, 0, 0, SIGCHLD)
    started(call(CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments)))


def enter(pid, kind):
    """Enters a namespace of another process."""
    checked(LIBC.setns(os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY), 0))


def bind(folder, place):
    """Shows a folder at another place, for a moment."""
    checked(LIBC.mount(os.fsencode(folder), os.fsencode(place), None, MS_BIND, None))
    checked(LIBC.umount2(os.fsencode(place), 0))


def open_tree(folder):
    return call(OPEN_TREE, -100, os.fsencode(folder), OPEN_TREE_CLONE)


class Handle(ctypes.Structure):
    """A file's number on its disk, with which it can be opened without its name."""

    _fields_ = [("length", ctypes.c_uint), ("kind", ctypes.c_int), ("name", ctypes.c_ubyte * 128)]


def handle_of(path):
    """The handle of a file; none where the file system has no handles."""
    handle = Handle(length=128)
    try:
        checked(LIBC.name_to_handle_at(-100, os.fsencode(path), ctypes.byref(handle), ctypes.byref(ctypes.c_int()), 0))
    except OSError:
        return None
    return {"kind": handle.kind, "name": bytes(handle.name[: handle.length]).hex()}


def open_by_handle(beside, handle):
    """Opens a file on the disk on which `beside` lies."""
    name = bytes.fromhex(handle["name"])
    made = Handle(len(name), handle["kind"], (ctypes.c_ubyte * 128)(*name))
    mount = os.open(beside, os.O_RDONLY)
    return checked(LIBC.open_by_handle_at(mount, ctypes.byref(made), os.O_RDONLY))
