// horo's driver through its C ABI: driver_abi TENSORS [bucket]. An operation is a step of one tensor, or of the 1,000
// tensors into which the buffer is divided: submit, wait and release, in known plans. Tensors are submitted from the
// last to the first, as gradients become ready, so they have to be packed. With `bucket` they are allocated in a bucket
// in the order of submission.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/peers/harness.h"
#include "bindings/c/horo_c.h"

namespace {

struct Step {
  horo_session* session = nullptr;
  std::size_t tensors = 1;
  bool lives_in_bucket = false;
  horo_memory* bucket = nullptr;
  int tasks = 0;
  std::vector<horo_submission> submissions{};
  std::vector<int64_t> works{};
};

struct Type {
  int32_t number;
  std::size_t bytes;
};

const std::map<std::string, Type> kTypes = {
    {"uint8", {HORO_UINT8, 1}},     {"int8", {HORO_INT8, 1}},         {"int32", {HORO_INT32, 4}},
    {"int64", {HORO_INT64, 8}},     {"float16", {HORO_FLOAT16, 2}},   {"float32", {HORO_FLOAT32, 4}},
    {"float64", {HORO_FLOAT64, 8}}, {"bfloat16", {HORO_BFLOAT16, 2}},
};

int32_t fail(char* error, const std::string& why) {
  std::snprintf(error, HARNESS_ERROR_BYTES, "%s", why.c_str());
  return 1;
}

// Declares a tensor of `count` elements at `at` and stores its submission. False if horo refuses it.
bool declare(Step& step, const Type& type, std::byte* at, std::size_t count) {
  const std::string name = "bench." + std::to_string(step.tasks) + "." + std::to_string(step.submissions.size());
  const int64_t shape = static_cast<int64_t>(count);
  horo_tensor_spec spec{};
  spec.struct_bytes = sizeof(spec);
  spec.kind = HORO_ALL_REDUCE;
  spec.op = HORO_SUM;
  spec.dtype = type.number;
  spec.stepwise = 1;
  spec.prescale = spec.postscale = 1;
  spec.name = name.c_str();
  spec.shape = &shape;
  spec.dims = 1;
  horo_submission submission{};
  submission.struct_bytes = sizeof(submission);
  submission.key = horo_declare(step.session, &spec);
  submission.in = submission.out = at;
  step.submissions.push_back(submission);
  return submission.key >= 0;
}

int32_t prepare(void* user, const harness_task* task, char* error) {
  Step& step = *static_cast<Step*>(user);
  step.submissions.clear();
  ++step.tasks;
  const auto type = kTypes.find(task->dtype);
  if (std::string(task->collective) != "all_reduce") return fail(error, "this driver supports all_reduce only");
  if (type == kTypes.end()) return fail(error, std::string("this driver does not support ") + task->dtype);
  if (task->count < step.tensors) return fail(error, "fewer elements than tensors");
  for (std::size_t i = 0; i < step.tensors; ++i) {
    const std::size_t which = step.lives_in_bucket ? i : step.tensors - 1 - i;
    const std::size_t begin = task->count * which / step.tensors, end = task->count * (which + 1) / step.tensors;
    auto* const at = static_cast<std::byte*>(task->out) + begin * type->second.bytes;
    if (!declare(step, type->second, at, end - begin)) return fail(error, horo_error_text(step.session));
  }
  step.works.resize(step.tensors);
  return 0;
}

int32_t allocate(void* user, harness_task* task) {
  Step& step = *static_cast<Step*>(user);
  step.bucket = horo_allocate(step.session, 0, task->in_bytes, &task->in);
  task->out = task->in;
  if (step.bucket != nullptr) return 0;
  std::fprintf(stderr, "horo: %s\n", horo_error_text(step.session));
  return 1;
}

void finish(void* user) {
  Step& step = *static_cast<Step*>(user);
  horo_free_memory(std::exchange(step.bucket, nullptr));
}

int32_t run(void* user) {
  Step& step = *static_cast<Step*>(user);
  horo_session* const session = step.session;
  const std::size_t count = step.works.size();
  bool is_ok = true;
  if (count == 1) {
    const horo_submission& tensor = step.submissions[0];
    step.works[0] = horo_submit(session, tensor.key, tensor.in, tensor.out);
    is_ok = step.works[0] > 0;
  } else {
    is_ok = horo_submit_many(session, step.submissions.data(), count, step.works.data()) == HORO_OK;
  }
  is_ok = is_ok && horo_wait(session, step.works.data(), count, 60'000) == HORO_OK;
  is_ok = is_ok && horo_release_many(session, step.works.data(), step.works.size()) == HORO_OK;
  is_ok = is_ok && horo_step_end(session, 0) == HORO_OK;
  if (!is_ok) std::fprintf(stderr, "horo: %s\n", horo_error_text(session));
  return is_ok ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Step step;
  step.tensors = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1;
  step.lives_in_bucket = argc > 2 && std::string(argv[2]) == "bucket";
  step.session = horo_init(nullptr, 0);
  horo_topology topology{};
  topology.struct_bytes = sizeof(topology);
  if (step.session == nullptr || horo_get_topology(step.session, &topology) != HORO_OK) {
    std::fprintf(stderr, "horo: %s\n", horo_error_text(step.session));
    return 1;
  }
  const harness_driver driver{.user = &step,
                              .version = horo_version(),
                              .allocate = step.lives_in_bucket ? allocate : nullptr,
                              .prepare = prepare,
                              .run = run,
                              .finish = finish};
  const int result = harness_run(topology.rank, topology.size, &driver);
  horo_free(step.session);
  return result;
}
