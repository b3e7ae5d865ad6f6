"""A machine with control groups of version 2, where this one has version 1: `python -m tests.vm [--only NAME]`.

QEMU boots a kernel with the root of this machine, read-only, and runs `trials.py` there: nothing here changes. Needs
root, `qemu-system-x86`, `busybox-static`, and a kernel with its modules: one that is installed, or what `apt-get
download linux-image-VERSION` and `dpkg -x` unpack into the folder of `--kernel`. Without `--kvm` the processor is
emulated: the trials take half an hour. Not in CI.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.helpers import ROOT

MODULES = ("virtio_pci", "9pnet_virtio", "9p")
FIRST = """#!/bin/busybox sh
busybox mount -t proc none /proc
for module in {modules}; do busybox insmod /$module.ko || exit; done
busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 host /new || exit
for one in proc sysfs:sys devtmpfs:dev tmpfs:dev/shm tmpfs:tmp tmpfs:run cgroup2:sys/fs/cgroup; do
    [ $one = tmpfs:dev/shm ] && busybox mkdir -p /new/dev/shm
    busybox mount -t ${{one%%:*}} none /new/${{one##*:}}
done
busybox ifconfig lo up
busybox hostname guest
cd /new
busybox chroot /new /usr/bin/env -i HOME=/tmp PATH={path} TERM=dumb sh -c 'cd {root} && {words}'
echo "ended: $?"
busybox poweroff -f
"""
"""The program of the first process: it has the busybox and the modules of `archive`."""
LIMIT_S = 3600


def archive(files: dict[str, tuple[int, bytes]]) -> bytes:
    """Return files and directories, with their modes, as the kernel unpacks them at its start (cpio's "newc")."""
    made = bytearray()

    def pad() -> None:
        made.extend(b"\0" * (-len(made) % 4))

    for number, (name, (mode, content)) in enumerate([*files.items(), ("TRAILER!!!", (0, b""))]):
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        made += b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        pad()
        made += content
        pad()
    return bytes(made)


def modules(top: Path) -> dict[str, bytes]:
    """Return the kernel's modules for the shared root, each after those that it depends on."""
    found: dict[str, bytes] = {}

    def add(name: str) -> None:
        path = next(top.rglob(f"{name}.ko"), None)
        if path is None or name in found:
            return  # it is a part of the kernel, or there already
        content = path.read_bytes()
        for needed in re.findall(rb"\0depends=([^\0]*)\0", content):
            for one in filter(None, needed.decode().split(",")):
                add(one)
        found[name] = content

    for name in MODULES:
        add(name)
    return found


def initial(kernel: Path, words: str) -> bytes:
    """Return the files with which the kernel starts."""
    found = modules(kernel / "lib/modules")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin"
    first = FIRST.format(modules=" ".join(found), path=path, root=ROOT, words=words)
    busybox = shutil.which("busybox")
    if busybox is None:
        sys.exit("busybox is missing: apt-get install busybox-static")
    folder, program = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o755
    files = {"bin": (folder, b""), "proc": (folder, b""), "new": (folder, b"")}
    files |= {"bin/busybox": (program, Path(busybox).read_bytes()), "init": (program, first.encode())}
    return archive(files | {f"{name}.ko": (program, content) for name, content in found.items()})


def boot(kernel: Path, words: str, is_fast: bool) -> int:
    """Run a command there, with its output; return its exit code."""
    images = sorted((kernel / "boot").glob("vmlinuz-*"))
    if not images or shutil.which("qemu-system-x86_64") is None:
        sys.exit(f"{'QEMU' if images else f'a kernel in {kernel}/boot'} is missing: see python -m tests.vm --help")
    with tempfile.NamedTemporaryFile() as initrd:
        initrd.write(initial(kernel, words))
        initrd.flush()
        machine = ["qemu-system-x86_64", "-nographic", "-no-reboot", "-nic", "none", "-smp", "2", "-m", "3G"]
        machine += ["-enable-kvm", "-cpu", "host"] if is_fast else ["-accel", "tcg,thread=multi", "-cpu", "max"]
        machine += ["-kernel", str(images[-1]), "-initrd", initrd.name]
        machine += ["-append", "console=ttyS0 quiet panic=-1 nokaslr no_timer_check cgroup_no_v1=all"]
        machine += ["-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"]
        with subprocess.Popen(machine, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            code = 1
            for line in running.stdout:
                print(line.rstrip(), flush=True)
                if ended := re.match(r"ended: (\d+)", line):
                    code = int(ended[1])
    return code


def main() -> int:
    """Boot, and run the trials."""
    parser = argparse.ArgumentParser(prog="python -m tests.vm", description=__doc__)
    parser.add_argument("--kernel", type=Path, default=Path("/"), help="a folder with boot/vmlinuz-* and lib/modules")
    parser.add_argument("--kvm", action="store_true", help="let the processor run it: where /dev/kvm works")
    parser.add_argument("--only", default="", help="trials with names that begin so")
    parser.add_argument("--command", default="", help="instead of the trials")
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("the whole machine is shared with QEMU: run as root")
    words = options.command or f"{sys.executable} -m tests.vm.trials {options.only}"
    return boot(options.kernel, words, options.kvm)


if __name__ == "__main__":
    sys.exit(main())
