"""Runs a command where programs for arm64 run like any other, by qemu-user, and so do their children.

    python3 packaging/arm64/emulate.py SYSROOT COMMAND…

The kernel keeps the list of such emulators per user namespace (Linux 6.7), so the command has one of its own
and the machine's list does not change. On an older kernel it needs an emulator that is registered already.
"""

import ctypes
import os
import pathlib
import sys

NAME = "qemu-aarch64"
RULE = pathlib.Path("/usr/lib/binfmt.d") / f"{NAME}.conf"  # of qemu-user-static
EMULATORS = pathlib.Path("/proc/sys/fs/binfmt_misc")
CLONE_NEWNS, CLONE_NEWUSER, MS_REC, MS_PRIVATE = 0x20000, 0x10000000, 0x4000, 0x40000
libc = ctypes.CDLL(None, use_errno=True)


def checked(result, what):
    if result != 0:
        raise SystemExit(f"emulate: {what}: {os.strerror(ctypes.get_errno())}")


def enter_namespace():
    """As the same users: a process outside writes who is who."""
    (ready, entered), (mapped, maps) = os.pipe(), os.pipe()
    if (mapper := os.fork()) == 0:
        os.close(entered)
        os.read(ready, 1)
        for kind in ("uid_map", "gid_map"):
            pathlib.Path(f"/proc/{os.getppid()}/{kind}").write_text("0 0 4294967295\n")
        os._exit(0)
    checked(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "a user namespace")
    os.close(entered)
    if os.waitpid(mapper, 0)[1] != 0:
        raise SystemExit("emulate: the namespace got no users")
    os.close(ready), os.close(mapped), os.close(maps)


def register():
    checked(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mounts of its own")
    checked(libc.mount(b"binfmt_misc", bytes(EMULATORS), b"binfmt_misc", 0, None), str(EMULATORS))
    if not (EMULATORS / NAME).exists():  # an older kernel shows the machine's list
        (EMULATORS / "register").write_text(RULE.read_text())


def main():
    sysroot, *command = sys.argv[1:]
    if not (EMULATORS / NAME).exists():
        enter_namespace()
        register()
    os.environ["QEMU_LD_PREFIX"] = os.path.realpath(sysroot)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
