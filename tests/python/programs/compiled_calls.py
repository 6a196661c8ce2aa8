"""Calls of horo in functions that torch.compile has compiled, with tensors of several sizes: the results are those of
the functions as they are."""

import os
import sys

import claims
import torch
from claims import same_bits

import horo.numpy as hnp
import horo.torch as hvd
import horovod.torch as horovod

assert "torch._dynamo" not in sys.modules, "import horo.torch takes seconds longer"
SIZES = (4, 6, 8) if os.environ.get("LARGE_TESTS") else (4, 6)

layer, norm = torch.nn.Linear(3, 3), None  # norm: of the session


def calls():
    """By name: a function of a tensor, with a call of horo between two operations."""
    results = {
        "allreduce": lambda x: hvd.allreduce(x * 2) + 1,
        "allreduce_": lambda x: hvd.allreduce_(x * 2, name="in place") + 1,
        "allreduce_async": lambda x: hvd.synchronize(hvd.allreduce_async(x * 2, name="async")) + 1,
        "compressed": lambda x: hvd.allreduce(x * 2, compression=hvd.Compression.fp16) + 1,
        "grouped_allreduce": lambda x: sum(hvd.grouped_allreduce([x * 2, x + 1])),
        "allgather": lambda x: hvd.allgather(x * 2) + 1,
        "broadcast": lambda x: hvd.broadcast(x * 2, 0) + 1,
        "alltoall": lambda x: hvd.alltoall(x * 2) + 1,
        "reducescatter": lambda x: hvd.reducescatter(x * 2) + 1,
        "scatter": lambda x: hvd.scatter(x * 2, 0) + 1,
        "gradient": lambda x: torch.autograd.grad(hvd.allreduce(layer(x)).sum(), layer.weight)[0] + 1,
        "sync_batch_norm": lambda x: norm(x * 2) + 1,
        "rank": lambda x: x * hvd.rank() + hvd.size() + hvd.global_process_set.size(),
        "metric_average": lambda x: x * hvd.metric_average(float(x.shape[0]), "metric"),
    }
    return results


def calls_beside_the_tensor():
    """Those whose results do not go on in the function."""
    others = {
        "reduce": lambda x: hvd.reduce(x, 0),
        "gather": lambda x: hvd.gather(x, 0),
        "barrier": lambda x: hvd.barrier(),
        "broadcast_object": lambda x: hvd.broadcast_object({"rows": x.shape[0]}, 0),
        "allgather_object": lambda x: hvd.allgather_object(x.shape[0]),
        "broadcast_parameters": lambda x: hvd.broadcast_parameters(layer.state_dict(), 0),
        "audit": lambda x: hvd.audit(),
        "numpy": lambda x: hnp.allreduce(x.numpy()),
        "process sets": lambda x: hvd.remove_process_set(hvd.add_process_set([0])),
    }
    return {name: (lambda x, call=call: (x * 2, call(x), x + 1)[2]) for name, call in others.items()}


def horovods_calls():
    """Those that horovod.torch has of its own."""
    return {
        "horovod allgather": lambda x: horovod.allgather(x * 2) + 1,
        "horovod grouped_allgather": lambda x: sum(horovod.grouped_allgather([x * 2, x + 1])),
        "horovod broadcast": lambda x: horovod.broadcast(x * 2, 0) + 1,
        "horovod reducescatter": lambda x: horovod.reducescatter(x * 2) + 1,
        "horovod grouped_reducescatter": lambda x: sum(horovod.grouped_reducescatter([x * 2, x + 1])),
        "horovod gradient": lambda x: torch.autograd.grad(horovod.allgather(layer(x)).sum(), layer.weight)[0] + 1,
    }


def any_call_runs_in_a_compiled_function():
    global norm
    norm = hvd.SyncBatchNorm(3)
    beside = calls_beside_the_tensor()
    for name, function in (calls() | horovods_calls() | beside).items():
        torch._dynamo.reset()
        dynamic = True if name in beside else None  # one compilation for all sizes; else the second size is another one
        compiled = torch.compile(function, backend="eager", dynamic=dynamic)
        for rows in SIZES:
            tensor = claims.value(hvd.rank(), torch.float32, (rows, 3), seed=rows)
            try:
                same_bits(compiled(tensor), function(tensor))
            except Exception as error:
                raise AssertionError(f"{name} of {rows} rows: {error}") from error


def a_training_step_may_be_compiled_as_a_whole():
    torch.manual_seed(3)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.1), layer.named_parameters())
    alone = torch.nn.Linear(3, 3)
    alone.load_state_dict(layer.state_dict())
    own = torch.optim.SGD(alone.parameters(), lr=0.1)

    def step(tensor):
        optimizer.zero_grad()
        layer(tensor).square().mean().backward()
        optimizer.step()

    compiled = torch.compile(step, backend="eager")
    for rows in SIZES:
        parts = [claims.value(rank, torch.float32, (rows, 3), seed=rows) for rank in range(hvd.size())]
        compiled(parts[hvd.rank()])
        own.zero_grad()
        (sum(alone(part).square().mean() for part in parts) / hvd.size()).backward()
        own.step()
        assert torch.allclose(layer.weight, alone.weight, atol=1e-6)


def a_compiled_step_compiles_the_step_of_the_user():
    graphs = []

    def count(graph, _):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.1), layer.named_parameters())
    layer(torch.ones(1, 3)).sum().backward()
    torch.compile(optimizer.step, backend=count)()
    assert graphs


def a_graph_without_breaks_is_refused_with_the_reason():
    with claims.raises(torch._dynamo.exc.Unsupported, "calls of horo run outside of compiled graphs", "fullgraph=True"):
        torch.compile(lambda x: hvd.allreduce(x), backend="eager", fullgraph=True)(torch.ones(2))


def no_code_of_horovods_package_is_traced():
    for name, call in horovods_calls().items():
        torch._dynamo.reset()
        reasons = torch._dynamo.explain(call)(torch.ones(2, 3)).break_reasons
        files = {frame.filename for reason in reasons for frame in reason.user_stack}
        assert files == {horovods_calls.__code__.co_filename}, f"{name}: {files}"


claims.check(
    any_call_runs_in_a_compiled_function,
    a_training_step_may_be_compiled_as_a_whole,
    a_compiled_step_compiles_the_step_of_the_user,
    a_graph_without_breaks_is_refused_with_the_reason,
    no_code_of_horovods_package_is_traced,
)
