"""A fork server for these tests: preloads the worker once, then forks a task for each request on its socket."""

import os
import socket
import struct
import sys

from gpucluster.worker import main


def serve(connection: socket.socket) -> None:
    main.preload()
    connection.send(b"ready")
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, 4096, 3)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            connection.close()
            run(request.decode(), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(struct.pack("<i", pid))
        _, status = os.waitpid(pid, 0)
        connection.send(struct.pack("<i", os.waitstatus_to_exitcode(status)))


def run(task_dir: str, messages: int, stdout: int, stderr: int) -> None:
    code = 99
    try:
        os.setsid()
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)
        code = main.run_task(task_dir, messages)
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
