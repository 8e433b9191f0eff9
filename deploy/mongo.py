#!/usr/bin/env python3
"""The few MongoDB commands the scripts need where no mongosh is installed. Standard library only.

    mongo.py HOST:PORT initiate SET              make the node a replica set of one, wait until it is primary
    mongo.py HOST:PORT count DATABASE COLLECTION print the number of documents
    mongo.py HOST:PORT find DATABASE COLLECTION [LIMIT]   print the latest documents, one JSON object a line
"""
import datetime
import json
import socket
import struct
import sys
import time

OP_MSG = 2013
ALREADY_INITIALIZED = 23


def encode(document):
    """BSON for the types our commands use: bool, int, str, dict, list."""
    body = b""
    for key, value in document.items():
        name = key.encode() + b"\0"
        if isinstance(value, bool):
            body += b"\x08" + name + bytes([value])
        elif isinstance(value, int):
            body += b"\x12" + name + struct.pack("<q", value)
        elif isinstance(value, str):
            text = value.encode() + b"\0"
            body += b"\x02" + name + struct.pack("<i", len(text)) + text
        elif isinstance(value, dict):
            body += b"\x03" + name + encode(value)
        elif isinstance(value, list):
            body += b"\x04" + name + encode({str(i): v for i, v in enumerate(value)})
        else:
            raise TypeError(f"no BSON encoding here for {type(value).__name__}")
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def decode(data, at=0):
    """One BSON document at an offset, as a dict."""
    end = at + struct.unpack_from("<i", data, at)[0] - 1
    at += 4
    document = {}
    while at < end:
        kind = data[at]
        stop = data.index(b"\0", at + 1)
        key, at = data[at + 1:stop].decode(), stop + 1
        if kind == 0x01:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif kind == 0x02:
            size = struct.unpack_from("<i", data, at)[0]
            value, at = data[at + 4:at + 3 + size].decode(), at + 4 + size
        elif kind in (0x03, 0x04):
            value = decode(data, at)
            at += struct.unpack_from("<i", data, at)[0]
            if kind == 0x04:
                value = list(value.values())
        elif kind == 0x05:
            size = struct.unpack_from("<i", data, at)[0]
            value, at = data[at + 5:at + 5 + size].hex(), at + 5 + size
        elif kind == 0x07:
            value, at = data[at:at + 12].hex(), at + 12
        elif kind == 0x08:
            value, at = bool(data[at]), at + 1
        elif kind == 0x09:
            millis, at = struct.unpack_from("<q", data, at)[0], at + 8
            value = (datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=millis)).isoformat() + "Z"
        elif kind == 0x0A:
            value = None
        elif kind == 0x10:
            value, at = struct.unpack_from("<i", data, at)[0], at + 4
        elif kind in (0x11, 0x12):
            value, at = struct.unpack_from("<q", data, at)[0], at + 8
        else:
            raise ValueError(f"BSON type {kind:#04x} of {key!r} is not decoded here")
        document[key] = value
    return document


def receive(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the server closed the connection")
        data += part
    return data


def command(address, database, document):
    """Runs one command over a connection of its own and returns the reply, whatever `ok` says."""
    host, _, port = address.rpartition(":")
    message = struct.pack("<IB", 0, 0) + encode({**document, "$db": database})
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack("<iiii", 16 + len(message), 1, 0, OP_MSG) + message)
        size = struct.unpack("<i", receive(connection, 4))[0]
        return decode(receive(connection, size - 4), 12 + 5)


def must(reply):
    if reply.get("ok") != 1:
        sys.exit(f"mongo.py: {reply.get('codeName')} ({reply.get('code')}): {reply.get('errmsg')}")
    return reply


def initiate(address, name, patience_seconds=60):
    deadline = time.monotonic() + patience_seconds
    config = {"_id": name, "members": [{"_id": 0, "host": address}]}
    asked = False
    while True:
        try:
            if not asked:
                reply = command(address, "admin", {"replSetInitiate": config})
                if reply.get("code") != ALREADY_INITIALIZED:
                    must(reply)
                asked = True
            if command(address, "admin", {"hello": 1}).get("isWritablePrimary"):
                return
        except OSError as error:  # not listening yet
            if time.monotonic() > deadline:
                sys.exit(f"mongo.py: {address} cannot be reached: {error}")
        if time.monotonic() > deadline:
            sys.exit(f"mongo.py: {address} is not primary after {patience_seconds} s")
        time.sleep(0.1)


def main(arguments):
    if len(arguments) == 3 and arguments[1] == "initiate":
        initiate(arguments[0], arguments[2])
    elif len(arguments) == 4 and arguments[1] == "count":
        print(int(must(command(arguments[0], arguments[2], {"count": arguments[3]}))["n"]))
    elif len(arguments) in (4, 5) and arguments[1] == "find":
        limit = int(arguments[4]) if len(arguments) == 5 else 3
        query = {"find": arguments[3], "sort": {"_id": -1}, "limit": limit, "singleBatch": True}
        for document in must(command(arguments[0], arguments[2], query))["cursor"]["firstBatch"]:
            print(json.dumps(document))
    else:
        sys.exit(__doc__.strip())


if __name__ == "__main__":
    main(sys.argv[1:])
