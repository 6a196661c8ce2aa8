"""Mutations: one wait, record, poll or other part is taken out of the sources, and a test has to fail.

A mutation is the build of the preset release with one object of it compiled again, from a copy of the source without
that part, and linked before the libraries, which have the same object without the mutation.
"""

import pathlib
import shlex
import shutil
import subprocess

from gpu_proofs import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILT = ROOT / "build/release"
FOLDER = ROOT / "build/mutations"
TESTS = "Nccl*:Devices.*:DeviceRefusals.*:IssuedWork.*:Schedules.*"
SEEDS = 12  # of a mutation, at most: a missing wait shows in some orders only
LIMIT_S = 60  # of tests that take some seconds: a mutation may never end

# Name: the file, the text that is taken out, and what takes its place.
MUTATIONS = {
    "stream does not wait for the inputs": (
        "horo/lane/device_runner.cc",
        "for (const Item& item : *job.items) item.submission.ready->hold_up(group->device(), stream.handle());",
        "",
    ),
    "inputs of the first tensor only": (
        "horo/lane/device_runner.cc",
        "for (const Item& item : *job.items) item.submission.ready->hold_up(",
        "for (const Item& item : {job.first()}) item.submission.ready->hold_up(",
    ),
    "caller's stream does not wait": (
        "horo/session_waits.cc",
        "    event->hold_up(device, stream);\n",
        "",
    ),
    "result is there before the collective is enqueued": (
        "horo/lane/device_runner.cc",
        "  group->enqueue(collective, stream);\n",
        "  result.done = std::make_shared<const DeviceEvent>(stream.device(), stream.handle());\n"
        "  last_[stream.device().number()] = running_.back().done = result.done;\n"
        "  group->enqueue(collective, stream);\n"
        "  if (!context_.retains) stream.copy_rows(places.rows_out, places.is_here);\n"
        "  return result;\n",
    ),
    "NCCL's progress is not looked at": (
        "ring/nccl/nccl_call.cc",
        "  while (result == kNcclInProgress) {",
        "  if (result == kNcclInProgress && name[4] != 'C') return;\n  while (result == kNcclInProgress) {",
    ),
    "members connect when they need each other": (
        "ring/nccl/nccl_group.cc",
        "      run_first(stream);\n",
        "",
    ),
    "memory is freed before the kernels behind an abort have read it": (
        "horo/lane/device_runner.cc",
        "  wait_for_rest();\n  for (auto& [ranks, groups] : groups_) groups.free();\n",
        "  for (auto& [ranks, groups] : groups_) groups.free();\n",
    ),
    "bucket is not packed": (
        "horo/lane/device_runner.cc",
        "  stream.copy_rows(places.rows_in, places.is_here);\n",
        "",
    ),
    "bucket is not unpacked": (
        "horo/lane/device_runner.cc",
        "if (!context_.retains) stream.copy_rows(places.rows_out, places.is_here);",
        "",
    ),
    "own shard is that of another member": (
        "ring/nccl/nccl_group.cc",
        "inputs[me()] = c.in.data + shard.offset * bytes;",
        "",
    ),
    "sums are not handed out": (
        "ring/nccl/nccl_group.cc",
        "    if (is_for_all) {\n      calls_.all_gather(",
        "    if (is_for_all && c.deadline == TimePoint()) {\n      calls_.all_gather(",
    ),
    "rest of a tensor is not reduced": (
        "ring/nccl/nccl_group.cc",
        "if (rest > 0) reduce_at_all(",
        "if (false) reduce_at_all(",
    ),
    "canonical sums by NCCL": (
        "ring/nccl/nccl_types.cc",
        "(!is_integer(*type) && order != Order::kFast)",
        "(!is_integer(*type) && order == Order::kCanonical && size_of(dtype) == 1)",
    ),
    "integers are averaged by NCCL": (
        "ring/nccl/nccl_types.cc",
        "return is_integer(*type) ? std::nullopt : std::optional(NcclOp::kAverage);",
        "return NcclOp::kAverage;",
    ),
    "factors are ignored": (
        "ring/nccl/nccl_group.cc",
        "const bool is_plain = c.prescale == 1.0 && c.postscale == 1.0 &&",
        "const bool is_plain = true &&",
    ),
    "lanes enqueue in any order": (
        "horo/lane/device_turns.cc",
        "while (!turns.is_stopped_ && turns.ended_ + 1 != number)",
        "while (!turns.is_stopped_ && turns.ended_ + 1 != number && number == 0)",
    ),
    "each lane has a stream of its own": (
        "horo/lane/device_turns.cc",
        "return turns_.streams_.try_emplace(device.number(), device).first->second;",
        "static thread_local std::map<int, DeviceStream> own;\n"
        "  return own.try_emplace(device.number(), device).first->second;",
    ),
    "communicator is not aborted": (
        "ring/nccl/nccl_call.cc",
        "  api_->comm_abort(comm_);\n",
        "",
    ),
    "communicator is not finalized": (
        "ring/nccl/nccl_call.cc",
        'finish("ncclCommFinalize", api_->comm_finalize(comm_));',
        "",
    ),
    "issued works are forgotten at the end": (
        "horo/tensors/tensor_table_engine.cc",
        "for (const Item& item : *items) has_issued = item.work->begin_failure(closed_) || has_issued;",
        "(void)items;",
    ),
    "a rank leaves before its last bytes": (
        "horo/engine/engine.cc",
        "in_flight ? epoch_->links.transport->abort(rank(), text) : finish_devices();",
        "if (in_flight) epoch_->links.transport->abort(rank(), text);",
    ),
    "event that is complete too early": (
        "horo/tensors/work.cc",
        "if (!event_->is_complete()) return false;",
        "event_->is_complete();",
    ),
    "error of a device is no failure": (
        "horo/tensors/work.cc",
        "    fail(current_failure());\n    return",
        "    return",
    ),
    "two ranks on one GPU by NCCL": (
        "horo/lane/device_groups.cc",
        "if (offers[i].uuid != offers[j].uuid ||",
        "if (true || offers[i].uuid != offers[j].uuid ||",
    ),
    "staging: inputs are not waited for": (
        "horo/lane/staging.cc",
        "for (const Item& item : items) wait_for(*item.submission.ready);",
        "",
    ),
    "staging: copies are not waited for": (
        "horo/lane/staging.cc",
        "    stream.finish();\n",
        "",
    ),
    "staging: results are not copied": (
        "horo/lane/staging.cc",
        "copies.on(tensor.device).copy_to_device(tensor.device_out, tensor.host_out, bytes);",
        "",
    ),
    "the capture of a stream is not looked at": (
        "ring/cuda/cuda_device.cc",
        "if (!is_capturing) return;",
        "return;",
    ),
    "a set's members count as the world's": (
        "ring/nccl/nccl_group.cc",
        "present.emplace_back(c.contributors[member], inputs[member]);",
        "present.emplace_back(-c.contributors[member] + 1'000, inputs[member]);",
    ),
}


def source_of(name):
    """The file of a mutation with its text replaced. The text stands there once, or the table is out of date."""
    path, old, new = MUTATIONS[name]
    text = (ROOT / path).read_text(encoding="utf-8")
    if (found := text.count(old)) != 1:
        raise SystemExit(f"gpu_proof: the mutation '{name}': {path} has its text {found} times, expected once: {old}")
    return path, text.replace(old, new)


def commands_of(target):
    """The commands that build a target of the release, the last one its linking."""
    command = ["ninja", "-C", str(BUILT), "-t", "commands", target]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def object_with(path, commands):
    """The words of the command that compiles this source, alone or with others, and the source that it compiles."""
    for command in commands:
        words = shlex.split(command)
        if "-c" not in words:
            continue
        source = pathlib.Path(words[words.index("-c") + 1])
        if source == ROOT / path or (source.name.startswith("unity_") and f'"{ROOT / path}"' in source.read_text()):
            return words, source
    raise SystemExit(f"gpu_proof: no object of build/release has {path}: cmake --build --preset release")


def build(name, target, output):
    """Builds the target with this mutation."""
    path, text = source_of(name)
    commands = commands_of(target)
    words, source = object_with(path, commands)
    folder = FOLDER / f"{output.name}_sources"
    shutil.rmtree(folder, ignore_errors=True)
    mutated = folder / path
    mutated.parent.mkdir(parents=True)
    mutated.write_text(text, encoding="utf-8")
    compiled = mutated
    if source != ROOT / path:
        compiled = folder / source.name
        compiled.write_text(source.read_text().replace(f'"{ROOT / path}"', f'"{mutated}"'))
    words[words.index("-c") + 1] = str(compiled)
    words[words.index("-o") + 1] = str(folder / "mutated.o")
    words[words.index("-MF") + 1] = str(folder / "mutated.d")
    run([*words, "-O0", "-w"], name)  # a mutation may leave a variable unused
    link = shlex.split(commands[-1].split("&&")[1])
    first = next(i for i, word in enumerate(link) if word.endswith(".o"))
    link[link.index("-o") + 1] = str(output)
    run([*link[:first], str(folder / "mutated.o"), *link[first:]], name)


class DoesNotBuild(Exception):
    """The table is out of date, or a source has changed since the release was built."""


def run(command, name):
    done = subprocess.run(command, cwd=BUILT, capture_output=True, text=True)
    if done.returncode != 0:
        raise DoesNotBuild(f"the mutation '{name}' does not build:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")


def run_all(word):
    """Runs the mutations whose names have the word. Returns whether all are found."""
    chosen = [name for name in MUTATIONS if word in name]
    for name in chosen:
        source_of(name)  # the table is up to date before minutes are spent
    mutated, missed = FOLDER / "horo_tests", []
    FOLDER.mkdir(parents=True, exist_ok=True)
    programs.check(TESTS, (1, 2))
    for name in chosen:
        try:
            build(name, "tests/horo/horo_tests", mutated)
        except DoesNotBuild as error:
            print(f"gpu_proof: {error}", flush=True)
            missed.append(name)
            continue
        seed = next((seed for seed in range(1, SEEDS + 1) if not programs.passes(mutated, TESTS, seed, LIMIT_S)), None)
        print(f"gpu_proof: {name}: " + (f"found with seed {seed}" if seed else "NOT FOUND"), flush=True)
        if seed is None:
            missed.append(name)
    print(f"gpu_proof: {len(chosen)} mutations, {len(chosen) - len(missed)} found")
    return not missed
