"""The yardstick of models in Python and TypeScript: sends back what comes, a length and so many bytes."""

import socket
import sys


def read_fully(connection, view):
    count = 0
    while count < len(view):
        got = connection.recv_into(view[count:])
        if got == 0:
            sys.exit(0)
        count += got


def main():
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(sys.argv[1])
    message = memoryview(bytearray(16 << 20))
    while True:
        read_fully(connection, message[:4])
        length = int.from_bytes(message[:4], "little")
        read_fully(connection, message[4 : 4 + length])
        connection.sendall(message[: 4 + length])


if __name__ == "__main__":
    main()
