"""Horovod's API on two ranks: each of its names, with Horovod's parameters, and what calls of them do."""

import importlib
import inspect
import re
import warnings

import claims
import torch
from claims import raises

import horo.torch as hvd
import horovod.torch as alias
from horo.torch import mpi_ops
from horovod.common import basics, elastic, exceptions, process_sets
from horovod.torch import mpi_ops as alias_ops

WORLD = """
init(comm=None, process_sets=None)
shutdown()
is_initialized()
rank()
size()
local_rank()
local_size()
cross_rank()
cross_size()
is_homogeneous()
mpi_threads_supported()
mpi_enabled()
mpi_built()
gloo_enabled()
gloo_built()
nccl_built()
ddl_built()
ccl_built()
cuda_built()
rocm_built()
start_timeline(file_path, mark_cycles=False)
stop_timeline()
add_process_set(process_set)
remove_process_set(process_set)
"""
SCALED = "prescale_factor=1.0, postscale_factor=1.0, process_set=world"
SET_FIRST = "process_set=world, prescale_factor=1.0, postscale_factor=1.0"
COLLECTIVES = f"""
allreduce(tensor, average=None, name=None, compression=none, op=None, {SCALED})
allreduce_async(tensor, average=None, name=None, op=None, {SCALED})
allreduce_(tensor, average=None, name=None, op=None, {SCALED})
allreduce_async_(tensor, average=None, name=None, op=None, {SCALED})
grouped_allreduce(tensors, average=None, name=None, compression=none, op=None, {SCALED})
grouped_allreduce_async(tensors, average=None, name=None, op=None, {SCALED})
grouped_allreduce_(tensors, average=None, name=None, op=None, {SCALED})
grouped_allreduce_async_(tensors, average=None, name=None, op=None, {SCALED})
sparse_allreduce_async(tensor, name, op, process_set=world)
allgather(tensor, name=None, process_set=world)
allgather_async(tensor, name=None, process_set=world)
grouped_allgather(tensors, name=None, process_set=world)
grouped_allgather_async(tensors, name=None, process_set=world)
broadcast(tensor, root_rank, name=None, process_set=world)
broadcast_async(tensor, root_rank, name=None, process_set=world)
broadcast_(tensor, root_rank, name=None, process_set=world)
broadcast_async_(tensor, root_rank, name=None, process_set=world)
alltoall(tensor, splits=None, name=None, process_set=world)
alltoall_async(tensor, splits=None, name=None, process_set=world)
reducescatter(tensor, name=None, compression=none, op=average, {SET_FIRST})
reducescatter_async(tensor, name=None, op=average, {SET_FIRST})
grouped_reducescatter(tensors, name=None, compression=none, op=average, {SET_FIRST})
grouped_reducescatter_async(tensors, name=None, op=average, {SET_FIRST})
join(device=-1)
barrier(process_set=world)
poll(handle)
synchronize(handle)
"""
HELPERS = """
DistributedOptimizer(optimizer, named_parameters=None, compression=none, backward_passes_per_step=1, op=average,
 gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, process_set=world)
broadcast_parameters(params, root_rank)
broadcast_optimizer_state(optimizer, root_rank, model=None)
broadcast_object(obj, root_rank=0, name=None, process_set=world)
allgather_object(obj, name=None)
"""
# Names that are no functions.
OTHERS = "ProcessSet global_process_set Compression SyncBatchNorm HorovodInternalError elastic mpi_ops".split()
OTHERS += "Average Sum Adasum Min Max Product".split()
NAMED = {"none": hvd.Compression.none, "average": hvd.Average, "world": hvd.global_process_set}


def functions(text):
    """(name, signature) for each line."""
    for name, parameters in re.findall(r"(\w+)\((.*?)\)\n", text, re.S):
        made = {}
        exec(f"def {name}({parameters}): pass", NAMED, made)
        yield name, inspect.signature(made[name])


def check_signature(name, expected, found):
    """Positions, names and defaults are Horovod's; what horo adds is optional."""
    of_horo = list(found.parameters.values())
    for place, parameter in enumerate(expected.parameters.values()):
        mine = of_horo[place]
        assert (mine.name, mine.default) == (parameter.name, parameter.default), f"{name}{found}, expected {expected}"
        assert mine.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD, f"{name}{found}"
    for added in of_horo[len(expected.parameters) :]:
        optional = added.default is not inspect.Parameter.empty
        assert optional or added.kind is inspect.Parameter.VAR_KEYWORD, f"{name}{found}: {added.name}"


def every_function_has_horovods_parameters():
    count = 0
    for name, expected in functions(WORLD + COLLECTIVES + HELPERS):
        check_signature(name, expected, inspect.signature(getattr(hvd, name)))
        count += 1
    assert count == 56, count
    assert not [name for name in OTHERS if not hasattr(hvd, name)]
    assert (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product) == (0, 1, 2, 3, 4, 5)


METHODS = """
step(closure=None)
synchronize()
skip_synchronize()
zero_grad()
set_backward_passes_per_step(passes)
load_state_dict(state_dict)
"""
SET_METHODS = """
size()
rank()
included()
"""
COMPRESSOR_METHODS = """
compress(tensor)
decompress(tensor, ctx)
"""
# By class, with the parameters of its constructor; _ stands for self.
ELASTIC = {
    "ObjectState(bcast_object, get_rank, **kwargs)\n": "",
    "State(bcast_object, get_rank)\n": """
on_reset(_)
on_hosts_updated(_, timestamp, update_res)
commit(_)
check_host_updates(_)
register_reset_callbacks(_, callbacks)
save(_)
restore(_)
sync(_)
reset(_)
""",
    "TorchState(model=None, optimizer=None, **kwargs)\n": "save(_)\nrestore(_)\nsync(_)\nreset(_)\n",
    "ElasticSampler(dataset, shuffle=True, seed=0)\n": """
set_epoch(_, epoch)
record_batch(_, batch_idx, batch_size)
record_indices(_, indices)
get_indices(_, batch_idx, batch_size)
state_dict(_)
load_state_dict(_, state_dict)
reset(_)
""",
}
ELASTIC_FUNCTIONS = """
run(func)
get_handler_registry()
set_handler_registry(registry)
"""
ELASTIC_ALIASES = """torch.elastic.run torch.elastic.TorchState torch.elastic.ElasticSampler torch.elastic.State
torch.elastic.ObjectState torch.elastic.state.TorchState torch.elastic.state.get_handler_registry
torch.elastic.state.set_handler_registry torch.elastic.sampler.ElasticSampler common.elastic.State
common.elastic.ObjectState common.elastic.run_fn"""


def elastic_has_horovods_classes():
    for constructor, methods in ELASTIC.items():
        ((name, expected),) = functions(constructor)
        owner = getattr(hvd.elastic, name)
        own, *parameters = inspect.signature(owner.__init__).parameters.values()
        assert str(inspect.Signature(parameters)) == str(expected), (name, own)
        for method, parameters in functions(methods):
            found = inspect.signature(getattr(owner, method))
            assert list(found.parameters)[1:] == list(parameters.parameters)[1:], f"{name}.{method}{found}"
    for name, expected in functions(ELASTIC_FUNCTIONS):
        check_signature(name, expected, inspect.signature(getattr(hvd.elastic, name)))
    assert issubclass(hvd.elastic.TorchState, hvd.elastic.ObjectState)
    assert issubclass(hvd.elastic.ElasticSampler, torch.utils.data.Sampler)
    for place in ELASTIC_ALIASES.split():
        module, _, name = place.rpartition(".")
        assert getattr(importlib.import_module(f"horovod.{module}"), name) is getattr(hvd.elastic, name), place
    assert alias.elastic.run is hvd.elastic.run and alias.elastic.state.StateHandler is not None
    assert not hasattr(elastic, "NotificationManager")
    with raises(AttributeError, "horovod.common.elastic", "it has ObjectState, State, run_fn"):
        elastic.NotificationManager


NORM = "SyncBatchNorm(num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)\n"


def objects_have_horovods_methods():
    param = torch.nn.Parameter(torch.ones(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=0.1), [("param", param)])
    assert isinstance(optimizer, torch.optim.SGD)
    pairs = [(optimizer, METHODS), (hvd.ProcessSet([0]), SET_METHODS)]
    pairs += [(compressor, COMPRESSOR_METHODS) for compressor in (hvd.Compression.none, hvd.Compression.fp16)]
    for owner, methods in pairs:
        for name, expected in functions(methods):
            found = inspect.signature(getattr(owner, name))
            takes_all = [each.kind for each in found.parameters.values()] == VARIADIC
            assert takes_all or check_signature(name, expected, found) is None
    for name, expected in functions(NORM):
        check_signature(name, expected, inspect.signature(getattr(hvd, name)))
    check_signature("ProcessSet", *(inspect.signature(each) for each in (lambda ranks_or_comm: None, hvd.ProcessSet)))


VARIADIC = [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]


def the_module_mpi_ops_has_the_same_functions():
    for name, _ in functions(WORLD + COLLECTIVES):
        assert getattr(mpi_ops, name) is getattr(hvd, name), name
    for name in (*OTHERS[:3], *OTHERS[7:], "HorovodInternalError"):
        assert name == "SyncBatchNorm" or getattr(mpi_ops, name) is getattr(hvd, name), name


# Their derivatives are Horovod's in the alias (derivatives.py).
DIFFERENTIATED = "allgather grouped_allgather broadcast reducescatter grouped_reducescatter".split()


def the_alias_has_the_same_objects():
    for name, expected in functions(WORLD + COLLECTIVES + HELPERS):
        if name in DIFFERENTIATED:
            assert getattr(alias, name) is getattr(alias_ops, name) is not getattr(hvd, name), name
            check_signature(name, expected, inspect.signature(getattr(alias, name)))
            continue
        assert getattr(alias, name) is getattr(hvd, name), name
    for name, _ in functions(WORLD + COLLECTIVES):
        assert name in DIFFERENTIATED or getattr(alias_ops, name) is getattr(hvd, name), name
    for module, name in re.findall(r"(\w+)\.(\w+)", ALIASES):
        assert getattr(importlib.import_module(f"horovod.torch.{module}"), name) is getattr(hvd, name), name
    assert exceptions.HorovodInternalError is alias.HorovodInternalError
    assert exceptions.HostsUpdatedInterrupt is alias.HostsUpdatedInterrupt


ALIASES = """functions.broadcast_parameters functions.broadcast_optimizer_state functions.broadcast_object
functions.allgather_object optimizer.DistributedOptimizer compression.Compression sync_batch_norm.SyncBatchNorm"""


def horovod_common_answers_about_this_session():
    world = basics.HorovodBasics(__file__, "mpi_lib_v2")
    assert (world.rank(), world.size(), world.cross_size()) == (hvd.rank(), 2, 1) and world.is_homogeneous()
    pair = hvd.add_process_set([1])
    assert process_sets.process_sets() == [hvd.global_process_set, pair]
    assert process_sets.process_set_by_id(0) is hvd.global_process_set
    assert process_sets.process_set_by_id(pair.process_set_id) is pair
    with raises(ValueError, "has the id 7"):
        process_sets.process_set_by_id(7)
    hvd.remove_process_set(pair)


def the_older_argument_average_warns_at_the_line_of_the_caller():
    for average, expected in ((True, 1.5), (False, 3.0)):
        for call in (
            hvd.allreduce,
            hvd.allreduce_,
            lambda t, average: hvd.synchronize(hvd.allreduce_async(t, average)),
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = call(torch.tensor([1.0 + hvd.rank()]), average=average)
            assert result.item() == expected, result
            told = [(each.category, each.filename) for each in caught]
            assert told == [(DeprecationWarning, __file__)], told
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hvd.allreduce(torch.ones(1), op=hvd.Sum)
        hvd.allreduce(torch.ones(1))


def process_sets_are_horovods():
    pair = hvd.ProcessSet([1, 0])
    assert pair.ranks == [0, 1] and pair.mpi_comm is None and pair.process_set_id is None
    assert pair.included() is True and hvd.ProcessSet([1]).included() is (hvd.rank() == 1)
    assert pair.size() is None and pair.rank() is None
    for ranks in (["0"], [0, 1.5], [None]):
        with raises(ValueError, "ProcessSet: rank=", repr(ranks[-1])):
            hvd.ProcessSet(ranks)
    one = hvd.add_process_set([1])
    assert one.included() is (hvd.rank() == 1) and one.process_set_id > 0
    assert hvd.remove_process_set(one) is True and hvd.remove_process_set(one) is False


def errors_after_the_submit_are_horovods_internal_error():
    try:
        hvd.allreduce(torch.ones(2 + hvd.rank()), name="shapes")
        raise AssertionError("no error")
    except hvd.HorovodInternalError as error:
        assert "ranks disagree" in str(error)
    assert issubclass(hvd.HorovodInternalError, RuntimeError)
    interrupt = hvd.HostsUpdatedInterrupt(True)
    assert isinstance(interrupt, RuntimeError) and interrupt.skip_sync and not hvd.HostsUpdatedInterrupt().skip_sync
    assert hvd.synchronize(123456) is None


def a_fresh_optimizer_stays_fresh_when_its_state_is_broadcast():
    param = torch.nn.Parameter(torch.ones(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.AdamW([param], lr=0.1 * (1 + hvd.rank()), weight_decay=0.5))
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.state_dict()["state"] == {} and param.grad is None and param.tolist() == [1.0, 1.0]
    assert optimizer.param_groups[0]["lr"] == 0.1


claims.check(
    every_function_has_horovods_parameters,
    objects_have_horovods_methods,
    the_module_mpi_ops_has_the_same_functions,
    the_alias_has_the_same_objects,
    elastic_has_horovods_classes,
    horovod_common_answers_about_this_session,
    the_older_argument_average_warns_at_the_line_of_the_caller,
    process_sets_are_horovods,
    errors_after_the_submit_are_horovods_internal_error,
    a_fresh_optimizer_stays_fresh_when_its_state_is_broadcast,
)
