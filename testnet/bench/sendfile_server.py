"""Serves one folder over HTTP with sendfile(2): a stand-in for nginx. Usage: FOLDER PORT."""
import os
import socket
import sys
import threading

folder, port = sys.argv[1], int(sys.argv[2])


def serve(connection):
    with connection:
        request = b""
        while b"\r\n\r\n" not in request:
            more = connection.recv(4096)
            if not more:
                return
            request += more
        path = os.path.join(folder, os.path.basename(request.split()[1].decode()))
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode())
            connection.sendfile(file)


with socket.create_server(("127.0.0.1", port)) as server:
    while True:
        threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
