"""What Spark takes for Python: it has a server of programs fork the processes that Spark starts.

    python -IS forked_python.py SERVER PYTHON ARGUMENTS

It ends with the process. A process ends with its standard input or its connection, both of which Spark closes.
"""

import json
import os
import socket
import sys

if __name__ == "__main__":
    server, python, *words = sys.argv[1:]
    if words[0] != "-m":
        os.execv(python, [python, *words])
    request = {"words": words, "environment": dict(os.environ), "directory": os.getcwd(), "is_watched": True}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(f"\0{server}")
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        while connection.recv(4):
            pass
