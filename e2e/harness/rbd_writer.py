"""Writes an RBD image, round after round, until it gets an error: a client of Ceph that a test can freeze.

    rbd_writer.py CONF POOL IMAGE

Says its address at first, then a line after each round, and its error at the end.
"""

import os
import sys

import rados
import rbd

BYTES, STEP = 512, 64 << 10  # of each so many bytes of the image, the first ones are written


def connect(conf: str) -> rados.Rados:
    """A client of its own, which waits for nothing for ever."""
    limits = {"rados_osd_op_timeout": "30", "rados_mon_op_timeout": "30"}
    cluster = rados.Rados(conffile=conf, conf=limits)
    cluster.connect()
    return cluster


def write(image: rbd.Image, letter: bytes) -> None:
    for offset in range(0, image.size(), STEP):
        image.write(letter * BYTES, offset)


def main() -> None:
    conf, pool, name = sys.argv[1:]
    cluster = connect(conf)
    print(cluster.get_addrs(), flush=True)
    image = rbd.Image(cluster.open_ioctx(pool), name)
    try:
        while True:
            write(image, b"z")
            print("wrote", flush=True)
    except rbd.Error as error:
        print(f"ended: {error!r}", flush=True)
        os._exit(1)  # not after a client's orderly end, which may hang once it is shut out


if __name__ == "__main__":
    main()
