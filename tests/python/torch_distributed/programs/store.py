"""The store of torch.distributed under `horo run`: closed to strangers, and complete. One program for what needs the
launcher."""

import datetime
import os
import socket
import struct
import threading

import torch
import torch.distributed as dist
from claims_torch import check, close, equal, raises
from torch.nn.parallel import DistributedDataParallel

from horo.torch.distributed.store import Store, own_address
from horo.torch.distributed.store_server import MOST_UNPROVED, Server
from horo.torch.distributed.store_wire import NONCE_BYTES, PROOF_BYTES


def of_torch():
    return dist.distributed_c10d._get_default_store()


def listening(table):
    """The local addresses at which this process listens, in hex."""
    own = {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if has_link(name)}
    with open(f"/proc/self/net/{table}") as lines:
        rows = [line.split() for line in list(lines)[1:]]
    return [row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]


def has_link(name):
    return os.path.lexists(f"/proc/self/fd/{name}")


def no_port_is_open():
    assert listening("tcp") + listening("tcp6") == []
    dist.barrier()


def the_operations_are_those_of_torch():
    store, me = of_torch(), dist.get_rank()
    store.set(f"here {me}", "yes")
    store.wait(["here 0", "here 1"])
    assert store.get(f"here {1 - me}") == b"yes"
    assert store.check(["here 0", "here 1"]) and not store.check(["here 0", "never"])
    assert store.add(f"count {me}", 3) == 3 and store.add(f"count {me}", -1) == 2
    assert store.compare_set(f"swap {me}", "a", "b") == b"a" and not store.check([f"swap {me}"])
    assert store.compare_set(f"swap {me}", "", "b") == b"b"
    assert store.compare_set(f"swap {me}", "a", "c") == b"b"
    assert store.compare_set(f"swap {me}", "b", "c") == b"c"
    before = store.num_keys()
    assert store.delete_key(f"swap {me}") and not store.delete_key(f"swap {me}") and before > 0
    store.append(f"text {me}", "ab")
    store.append(f"text {me}", "cd")
    store.multi_set([f"m {me}", f"n {me}"], ["1", "2"])
    assert store.multi_get([f"text {me}", f"m {me}", f"n {me}"]) == [b"abcd", b"1", b"2"]
    with raises(dist.DistStoreError, "300 ms", "never"):
        store.wait(["never"], datetime.timedelta(seconds=0.3))
    assert store.clone().get(f"m {me}") == b"1"
    store.set("large", bytes(3_000_000))
    assert store.get("large") == bytes(3_000_000)


def a_wait_of_one_thread_delays_no_other():
    store, me, found = of_torch(), dist.get_rank(), []
    thread = threading.Thread(target=lambda: found.append(store.get(f"late {me}")))
    thread.start()
    store.set(f"late {me}", "came")
    thread.join(60)
    assert found == [b"came"]


def a_forked_child_has_its_own_connection():
    store = of_torch()
    child = os.fork()
    if child == 0:
        os._exit(0 if store.get("here 0") == b"yes" else 1)
    assert os.waitpid(child, 0)[1] == 0 and store.get("here 1") == b"yes"


def gloo_meets_in_it():
    group = dist.new_group(backend="gloo")
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    equal(tensor, torch.full((3,), 2.0))


def stranger(address):
    one = socket.socket(socket.AF_UNIX if isinstance(address, bytes) else socket.AF_INET)
    one.settimeout(60)
    one.connect(address)
    return one


def ended(one):
    """Whether the server closes the connection, after its challenge alone."""
    got = b""
    try:
        while part := one.recv(4096):
            got += part
    except ConnectionResetError:
        pass
    return len(got) <= NONCE_BYTES


def strangers_get_a_challenge_and_nothing_else():
    if dist.get_rank() == 0:
        for server in (Server(), Server("127.0.0.1")):
            store = Store(server.address, server.secret, server)
            store.set("a", "1")
            for text in (b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(NONCE_BYTES + PROOF_BYTES), b"\xff" * 100_000):
                one = stranger(server.address)
                try:
                    one.sendall(text)
                except OSError:  # it was closed meanwhile
                    pass
                assert ended(one), text[:10]
            flood = [stranger(server.address) for _ in range(2 * MOST_UNPROVED)]
            assert Store(server.address, server.secret).get("a") == b"1"
            assert all(ended(one) for one in flood[:MOST_UNPROVED])
            with raises(dist.DistNetworkError, "does not answer"):
                Store(server.address, bytes(PROOF_BYTES)).get("a")
            assert store.get("a") == b"1"
            server.close()
            with raises(dist.DistNetworkError, "rank 0, which serves the store, does not answer"):
                while True:  # the thread of the server ends
                    store.get("a")
    dist.barrier()


class Late(Server):
    """Accepts no connection before it is told to."""

    def __init__(self, host=None):
        self.may_accept = threading.Event()
        super().__init__(host)

    def _accept(self):
        assert self.may_accept.wait(60)
        super()._accept()


def strangers_that_leave_at_once_end_no_server():
    for host in (None, "127.0.0.1") if dist.get_rank() == 0 else ():
        server = Late(host)
        for number in range(20):
            one = stranger(server.address)
            if number % 2:  # the end of a TCP connection is a reset
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()
        server.may_accept.set()
        store = Store(server.address, server.secret, server)
        store.set("a", "1")
        assert store.get("a") == b"1"
        server.close()
    dist.barrier()


def gradients_in_half_precision(register):
    torch.manual_seed(3)
    net = torch.nn.Linear(10, 3)
    model = DistributedDataParallel(net)
    register(model)
    torch.manual_seed(dist.get_rank())
    model(torch.randn(4, 10)).sum().backward()
    return net.weight.grad


def the_builtin_hooks_of_ddp_run():
    plain = gradients_in_half_precision(lambda model: None)
    for hook in (dist.BuiltinCommHookType.FP16_COMPRESS, dist.BuiltinCommHookType.ALLREDUCE):
        found = gradients_in_half_precision(lambda model, hook=hook: model._register_builtin_comm_hook(hook))
        close(found, plain, 1e-2)
        assert torch.equal(found, plain) == (hook == dist.BuiltinCommHookType.ALLREDUCE)


def the_address_of_the_store_is_that_of_the_job():
    """Whatever the environment says after the ranks have met, and where the settings of init() have told it."""
    before, os.environ["HORO_ADDR"] = os.environ["HORO_ADDR"], "nowhere.invalid:1"
    assert own_address() == "127.0.0.1"
    os.environ["HORO_ADDR"] = before


def a_second_group_meets_in_a_new_store():
    for device in ("cpu", "meta", "cpu"):
        dist.destroy_process_group()
        with torch.device(device):
            dist.init_process_group("horo")
        assert not of_torch().check(["here 0"])
        dist.barrier()
    names = [thread.name for thread in threading.enumerate()].count("horo_store")
    assert names <= (2 if dist.get_rank() == 0 else 0), f"{names} servers"


check(
    no_port_is_open,
    the_operations_are_those_of_torch,
    a_wait_of_one_thread_delays_no_other,
    a_forked_child_has_its_own_connection,
    gloo_meets_in_it,
    strangers_get_a_challenge_and_nothing_else,
    strangers_that_leave_at_once_end_no_server,
    the_builtin_hooks_of_ddp_run,
    the_address_of_the_store_is_that_of_the_job,
    a_second_group_meets_in_a_new_store,
)
