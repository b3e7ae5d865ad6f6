"""The server side of a PMIx library, by ctypes: what a launcher calls, and what it is called for.

The library calls in a thread of its own. Each call that needs an answer gets a number; the answer may come at any time.

Source: the headers of OpenPMIx 5 (`pmix_server.h`, `pmix_common.h`). Attributes have the names of the PMIx standard.
"""

from __future__ import annotations

import ctypes
import os
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, c_bool, c_char_p, c_size_t, c_uint16, c_uint32, c_void_p
from functools import wraps
from typing import Any

from mpi_runtime.core.gangs import pmix_messages as messages
from mpi_runtime.core.gangs.pmix_older import supply
from mpi_runtime.core.gangs.pmix_types import (
    BOOL,
    BYTES,
    CALLBACKS,
    DATA_ARRAY,
    DONE,
    ENDPOINTS,
    INFO,
    INFO_BYTES,
    KIND,
    NOT_SUPPORTED,
    PROC,
    RANK,
    REGEX,
    SIZE,
    STREAMS,
    STRING,
    TABLE_SIZE,
    UINT16,
    UINT32,
    VALUE,
    WILDCARD,
    Array,
    Bytes,
    Collected,
    Finished,
    Item,
    Looked,
    PmixError,
    Process,
    Release,
    declare,
)
from mpi_runtime.core.gangs.port_gate import Gate, listening


def _guarded(function: Callable[..., int | None]) -> Callable[..., object]:
    """End this process if a callback fails: ctypes would go back to the library with a random answer."""

    @wraps(function)
    def guarded(*args: object) -> object:
        try:
            return function(*args)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    return guarded


class Server:
    """The one PMIx server of this process."""

    def __init__(self, path: str, directory: str, host: str, report: Callable[[messages.Report], None]) -> None:
        """Load the library and start the server.

        Args:
            path: of the library.
            directory: for files of the server.
            host: the name of this host.
            report: sends the agent a report. A thread of the library calls it, too.

        Raises:
            OSError: there is no such library.
            PmixError: it has another layout, or refuses to start.
        """
        self._report = report
        self._library = library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        declare(library, () if hasattr(library, "PMIx_Info_create") else supply(library))
        self.version: str = library.PMIx_Get_version().decode()
        self._check_layout()
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[int, int]] = {}
        self._number = 0
        self._sizes: dict[str, int] = {}
        """The number of ranks of each gang."""
        self._groups: dict[int, tuple[str, list[int]]] = {}
        """Groups that are being made: the gang and the members."""
        self._held: dict[int, object] = {}
        """Answers that the library still reads."""
        self._release, self._looked_up = Release(_guarded(self._on_read)), Looked(_guarded(self._on_looked_up))
        self._callbacks = self._made()
        self._module = table = (c_void_p * TABLE_SIZE)()
        for name, callback in self._callbacks.items():
            table[CALLBACKS[name][0]] = ctypes.cast(callback, c_void_p)
        settings: list[Item] = [
            ("pmix.srvr.tmpdir", directory, STRING), ("pmix.sys.tmpdir", directory, STRING),
            ("pmix.hname", host, STRING),
        ]  # fmt: skip
        self._directory = directory
        infos = self._infos(settings)
        known = listening()
        self._check(library.PMIx_server_init(table, infos, len(settings)), "does not start")
        library.PMIx_Info_free(infos, len(settings))
        own = [descriptor for address, descriptor in listening().items() if address not in known]
        if len(own) != 1:
            raise PmixError(f"{self.version} listens on {len(own)} ports of IPv4; libraries that were tried have one")
        self._gate = Gate(own[0])

    def _check_layout(self) -> None:
        """Check the layout of attributes in memory, which `pmix_common.h` defines.

        Raises:
            PmixError: the library has another one.
        """
        size = INFO_BYTES
        infos = self._library.PMIx_Info_create(2)
        name = b"pmix.hname"
        self._library.PMIx_Info_load(infos + size, name, ctypes.cast(c_char_p(b"x"), c_void_p), STRING)
        data = ctypes.string_at(infos, 2 * size)
        kind = c_uint16.from_buffer_copy(data, size + KIND).value
        if data[size : size + len(name)] != name or kind != STRING:
            raise PmixError(
                f"{self.version} has another layout of attributes than the library that gangs were made for"
            )
        self._library.PMIx_Info_free(infos, 2)

    def _check(self, code: int, what: str) -> None:
        if code not in (0, DONE):
            text = self._library.PMIx_Error_string(code).decode()
            raise PmixError(f"the PMIx server {what}: {text} ({self.version})")

    # Attributes in the memory of the library

    def _infos(self, items: Sequence[Item]) -> int:
        infos: int = self._library.PMIx_Info_create(len(items))
        for index, item in enumerate(items):
            self._load(infos + index * INFO_BYTES, *item)
        return infos

    def _load(self, at: int, name: str, value: Any, kind: int) -> None:
        array = None
        if kind == STRING:
            data: Any = c_char_p(value.encode())
        elif kind == BYTES:
            buffer = ctypes.create_string_buffer(value, len(value) or 1)
            data = ctypes.byref(Bytes(ctypes.addressof(buffer), len(value)))
        elif kind == DATA_ARRAY:
            array = self._library.PMIx_Data_array_create(len(value), INFO)
            first = ctypes.cast(array, POINTER(Array)).contents.array
            for index, item in enumerate(value):
                self._load((first or 0) + index * INFO_BYTES, *item)
            data = c_void_p(array)
        else:
            types: Mapping[int, Any] = {
                BOOL: c_bool, UINT16: c_uint16, UINT32: c_uint32, RANK: c_uint32, SIZE: c_size_t,
            }  # fmt: skip
            data = c_void_p(value) if kind == REGEX else ctypes.byref(types[kind](value))
        self._library.PMIx_Info_load(at, name.encode(), ctypes.cast(data, c_void_p), kind)
        if array is not None:
            self._library.PMIx_Data_array_free(array)  # its content was copied

    # Gangs

    def register(self, order: messages.Register) -> dict[int, dict[str, str]]:
        """Make a gang known, and return the variables of each member of this node. Its name was never used before.

        Raises:
            PmixError: the library refuses it.
        """
        name, count = order.name, len(order.names)
        nodes = [[rank for rank, host in enumerate(order.hosts) if host == node] for node in range(count)]
        self._sizes[name] = len(order.hosts)
        items = self._job(name, order.names, nodes)
        infos = self._infos(items)
        local = len(nodes[order.own])
        code = self._library.PMIx_server_register_nspace(name.encode(), local, infos, len(items), None, None)
        self._library.PMIx_Info_free(infos, len(items))
        self._check(code, "does not accept a gang")
        return {rank: self._member(name, rank) for rank in nodes[order.own]}

    def _job(self, namespace: str, names: Sequence[str], nodes: Sequence[Sequence[int]]) -> list[Item]:
        library, size = self._library, self._sizes[namespace]
        host_map, rank_map = c_void_p(), c_void_p()
        ranks = ";".join(",".join(map(str, node)) for node in nodes)
        self._check(library.PMIx_generate_regex(",".join(names).encode(), ctypes.byref(host_map)), "has no regex")
        self._check(library.PMIx_generate_ppn(ranks.encode(), ctypes.byref(rank_map)), "has no map")
        items: list[Item] = [
            ("pmix.job.arr", [
                ("pmix.nmap", host_map.value, REGEX), ("pmix.pmap", rank_map.value, REGEX),
                ("pmix.jobid", namespace, STRING), ("pmix.job.size", size, UINT32), ("pmix.univ.size", size, UINT32),
                ("pmix.max.size", size, UINT32), ("pmix.job.napps", 1, UINT32),
                ("pmix.num.nodes", len(names), UINT32), ("pmix.tmpdir", self._directory, STRING),
                ("pmix.nsdir", self._directory, STRING),
            ], DATA_ARRAY)
        ]  # fmt: skip
        for node, members in enumerate(nodes):
            items.append(("pmix.node.arr", [
                ("pmix.hname", names[node], STRING), ("pmix.nodeid", node, UINT32),
                ("pmix.node.size", len(members), UINT32), ("pmix.local.size", len(members), UINT32),
                ("pmix.lpeers", ",".join(map(str, members)), STRING), ("pmix.lldr", members[0], RANK),
            ], DATA_ARRAY))  # fmt: skip
            for local, rank in enumerate(members):
                items.append(("pmix.pdata", [
                    ("pmix.rank", rank, RANK), ("pmix.grank", rank, RANK), ("pmix.apprank", rank, RANK),
                    ("pmix.lrank", local, UINT16), ("pmix.nrank", local, UINT16), ("pmix.nodeid", node, UINT32),
                    ("pmix.hname", names[node], STRING), ("pmix.appnum", 0, UINT32),
                    ("pmix.pdir", self._directory, STRING),
                ], DATA_ARRAY))  # fmt: skip
        return items

    def _member(self, namespace: str, rank: int) -> dict[str, str]:
        library, process = self._library, Process(namespace.encode(), rank)
        code = library.PMIx_server_register_client(ctypes.byref(process), os.getuid(), os.getgid(), None, None, None)
        self._check(code, "does not accept a member")
        words = POINTER(c_char_p)()
        self._check(library.PMIx_server_setup_fork(ctypes.byref(process), ctypes.byref(words)), "has no variables")
        found = {}
        for index in range(1 << 16):
            word = words[index]
            if word is None:
                break
            name, _, value = word.decode().partition("=")
            found[name] = self._gate.at_gate(value)
        library.PMIx_Argv_free(words)
        return found

    def forget(self, namespace: str) -> None:
        """Forget a gang whose members have ended."""
        self._sizes.pop(namespace, None)
        self._library.PMIx_server_deregister_nspace(namespace.encode(), None, None)

    # Answers

    def _keep(self, callback: int, data: int) -> int:
        with self._lock:
            self._number += 1
            self._waiting[self._number] = callback, data
            return self._number

    def collected(self, answer: messages.Collected) -> None:
        """Answer a fence, or a question for the data of a rank."""
        callback, closure = self._waiting.pop(answer.number)
        size = len(answer.data)
        buffer = self._held[answer.number] = ctypes.create_string_buffer(answer.data, size or 1)
        release = ctypes.cast(self._release, c_void_p)
        Collected(callback)(answer.status, ctypes.cast(buffer, c_void_p), size, closure, release, answer.number)

    def grouped(self, answer: messages.Grouped) -> None:
        """Answer a fence that makes a group."""
        callback, closure = self._waiting.pop(answer.number)
        namespace, ranks = self._groups.pop(answer.number)
        library = self._library
        infos = library.PMIx_Info_create(3)
        self._load(infos, "pmix.grp.ctxid", answer.context, SIZE)
        array = library.PMIx_Data_array_create(len(ranks), PROC)
        members = (Process * len(ranks))(*(Process(namespace.encode(), rank) for rank in ranks))
        ctypes.memmove(ctypes.cast(array, POINTER(Array)).contents.array, members, ctypes.sizeof(members))
        library.PMIx_Info_load(infos + INFO_BYTES, b"pmix.grp.mbrs", array, DATA_ARRAY)
        library.PMIx_Data_array_free(array)
        self._load(infos + 2 * INFO_BYTES, ENDPOINTS.decode(), b"".join(answer.parts), BYTES)
        self._held[answer.number] = infos
        Collected(callback)(0, infos, 3, closure, ctypes.cast(self._release, c_void_p), answer.number)

    def look_up(self, order: messages.LookUp) -> None:
        """Find the data of a member of this node, and report it."""
        process = Process(order.name.encode(), order.rank)
        function = ctypes.cast(self._looked_up, c_void_p)
        code = self._library.PMIx_server_dmodex_request(ctypes.byref(process), function, order.number)
        if code:
            self._report(messages.Collected(order.number, code, b""))

    # What the library calls

    def _made(self) -> dict[str, Any]:
        functions: dict[str, Callable[..., int | None]] = {
            "connected": self._on_connected,
            "finalized": self._on_finalized,
            "abort": self._on_abort,
            "fence": self._on_fence,
            "modex": self._on_modex,
            "group": self._on_group,
            "log": self._on_log,
            # With it the library does what members ask for most, without a call: it removes their files in /dev/shm.
            "control": lambda *_: NOT_SUPPORTED,
            "register_events": lambda *_: DONE,
            "deregister_events": lambda *_: DONE,
        }
        return {name: CALLBACKS[name][1](_guarded(function)) for name, function in functions.items()}

    def _on_read(self, number: int | None) -> None:
        """The library has read an answer."""
        held = self._held.pop(number or 0, None)
        if isinstance(held, int):
            self._library.PMIx_Info_free(held, 3)

    def _on_connected(self, process: object, _: int, infos: int, count: int, callback: int, data: int) -> int:
        self._report(messages.Member(*_named(process), is_final=False))
        return DONE

    def _on_finalized(self, process: object, _: int, callback: int, data: int) -> int:
        self._report(messages.Member(*_named(process), is_final=True))
        return DONE

    def _on_abort(
        self, process: object, _: int, code: int, text: bytes | None, procs: int, count: int, callback: int, data: int
    ) -> int:
        self._report(messages.Aborted(*_named(process), code, (text or b"").decode()))
        return DONE

    def _on_fence(
        self, procs: int, count: int, infos: int, infos_count: int, data: int, size: int, callback: int, closure: int
    ) -> int:
        namespace, ranks = _processes(procs, count)
        content = ctypes.string_at(data, size) if size else b""
        self._report(messages.Fence(namespace, self._keep(callback, closure), ranks, content))
        return 0

    def _on_modex(self, process: object, infos: int, count: int, callback: int, closure: int) -> int:
        namespace, rank = _named(process)
        self._report(messages.Wanted(namespace, self._keep(callback, closure), rank))
        return 0

    def _on_group(
        self,
        operation: int,
        name: bytes,
        procs: int,
        count: int,
        infos: int,
        infos_count: int,
        callback: int,
        data: int,
    ) -> int:
        namespace, ranks = _processes(procs, count)
        if operation:  # its end: nobody else need know, and the library calls once for each member
            return DONE
        endpoints = b""
        for at in range(infos, infos + infos_count * INFO_BYTES, INFO_BYTES):
            if ctypes.string_at(at) == ENDPOINTS:
                content = Bytes.from_address(at + VALUE)
                endpoints += ctypes.string_at(content.bytes, content.size)
        number = self._keep(callback, data)
        self._groups[number] = namespace, ranks or list(range(self._sizes[namespace]))
        self._report(messages.Fence(namespace, number, ranks, endpoints, name.decode()))
        return 0

    def _on_log(
        self,
        process: object,
        infos: int,
        count: int,
        directives: int,
        directives_count: int,
        callback: int,
        closure: int,
    ) -> None:
        texts = []
        for at in range(infos, infos + count * INFO_BYTES, INFO_BYTES):
            if ctypes.string_at(at) in STREAMS:
                texts.append(c_char_p.from_address(at + VALUE).value or b"")
                self._report(messages.Logged(*_named(process), texts[-1]))
        status = 0 if texts else NOT_SUPPORTED
        # In another thread: the library holds a lock here that the answer takes.
        threading.Thread(target=Finished(callback), args=(status, closure)).start()

    def _on_looked_up(self, status: int, data: int, size: int, number: int | None) -> None:
        self._report(messages.Collected(number or 0, status, ctypes.string_at(data, size) if size else b""))


def _named(process: Any) -> tuple[str, int]:
    """Return the namespace and the rank of a process."""
    return process[0].namespace.decode(), process[0].rank


def _processes(at: int, count: int) -> tuple[str, list[int]]:
    """Return the namespace of processes and their ranks; no ranks: all."""
    found = ctypes.cast(at, POINTER(Process))
    ranks = [found[index].rank for index in range(count)]
    return found[0].namespace.decode(), [] if WILDCARD in ranks else ranks
