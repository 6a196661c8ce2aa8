// The C ABI: checkpoints.
#include <algorithm>

#include "bindings/c/handles.h"
#include "horo/checkpoint/catalog.h"
#include "horo/checkpoint/load.h"
#include "horo/checkpoint/save.h"

using horo::checkpoint::CheckpointTensor;
using horo::checkpoint::RowRange;
using horo::checkpoint::TensorKind;
using horo_c::check_struct;
using horo_c::checked;
using horo_c::guarded;
using horo_c::thread_state;

struct horo_saver {
  horo::checkpoint::Saver saver;
};

struct horo_checkpoint {
  horo::checkpoint::Checkpoint checkpoint;
};

namespace {

horo::checkpoint::Saver& saver_of(horo_saver* saver) {
  if (saver == nullptr) throw std::invalid_argument("the saver is a null pointer");
  if (!saver->saver.is_here())
    throw horo::ShutDown("this process was forked: the saver belongs to the process that made it");
  return saver->saver;
}

horo::checkpoint::Checkpoint& checkpoint_of(horo_checkpoint* checkpoint) {
  if (checkpoint == nullptr) throw std::invalid_argument("the checkpoint is a null pointer");
  return checkpoint->checkpoint;
}

horo::Session* session_or_none(horo_session* session) {
  return session == nullptr ? nullptr : &checked(session).session;
}

const char* required(const char* text, const char* what) {
  if (text == nullptr) throw std::invalid_argument(std::string(what) + " is a null pointer");
  return text;
}

TensorKind kind_from(int32_t number, const std::string& name) {
  if (number < HORO_REPLICATED || number > HORO_SHARDED)
    throw std::invalid_argument("the kind of " + name + " is " + std::to_string(number) + ", expected 0, 1 or 2");
  return static_cast<TensorKind>(number);
}

CheckpointTensor tensor_from(const horo_checkpoint_tensor& given) {
  if (given.struct_bytes != sizeof(horo_checkpoint_tensor)) {  // they are elements of an array
    throw std::invalid_argument("horo_checkpoint_tensor has " + std::to_string(given.struct_bytes) +
                                " bytes, expected " + std::to_string(sizeof(horo_checkpoint_tensor)));
  }
  CheckpointTensor tensor;
  tensor.name = required(given.name, "the name of a tensor");
  tensor.dtype = required(given.dtype, "the dtype of a tensor");
  tensor.kind = kind_from(given.kind, tensor.name);
  if ((given.shape == nullptr && given.dims > 0) || (given.intervals == nullptr && given.interval_count > 0))
    throw std::invalid_argument("shape or intervals of " + tensor.name + " is a null pointer");
  tensor.shape.assign(given.shape, given.shape + given.dims);
  for (std::size_t i = 0; i < given.interval_count; ++i)
    tensor.ranges.push_back({given.intervals[2 * i], given.intervals[2 * i + 1]});
  tensor.alias_of = given.alias_of;
  tensor.data = static_cast<std::byte*>(given.data);
  tensor.is_new = given.is_new != 0;
  return tensor;
}

horo::checkpoint::SaveOptions options_from(const horo_save_options* given) {
  check_struct(given, "horo_save_options");
  horo::checkpoint::SaveOptions options;
  options.path = required(given->path, "the path of a checkpoint");
  if (given->rest != nullptr) options.rest = given->rest;
  options.step = given->step;
  options.seed = given->seed;
  options.keep = given->keep;
  options.locks = given->lock != 0;
  return options;
}

// The text of a bad argument: the other ranks, which are in the collective, are to be told.
template <class Call>
std::string fault_in(Call call) {
  try {
    call();
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

std::vector<CheckpointTensor> tensors_from(const horo_checkpoint_tensor* tensors, size_t count) {
  if (tensors == nullptr && count > 0) throw std::invalid_argument("tensors is a null pointer");
  std::vector<CheckpointTensor> all;
  for (size_t i = 0; i < count; ++i) all.push_back(tensor_from(tensors[i]));
  return all;
}

}  // namespace

horo_saver* horo_saver_make(void) {
  horo_saver* made = nullptr;
  guarded([&]() -> std::int32_t {
    made = new horo_saver();
    return HORO_OK;
  });
  return made;
}

void horo_saver_free(horo_saver* saver) {
  delete saver;
}

int32_t horo_saver_lock(horo_saver* saver, const char* folder) {
  return guarded([&]() -> std::int32_t {
    saver_of(saver).lock(required(folder, "the folder"));
    return HORO_OK;
  });
}

int32_t horo_saver_unlock(horo_saver* saver) {
  return guarded([&]() -> std::int32_t {
    saver_of(saver).unlock();
    return HORO_OK;
  });
}

int32_t horo_save_begin(horo_saver* saver, horo_session* session, const horo_save_options* options,
                        const horo_checkpoint_tensor* tensors, size_t count) {
  return guarded([&]() -> std::int32_t {
    horo::Session* const own_session = session_or_none(session);
    horo::checkpoint::Saver* own_saver = nullptr;
    horo::checkpoint::SaveOptions own;
    std::vector<CheckpointTensor> own_tensors;
    const std::string fault = fault_in([&] {
      own_saver = &saver_of(saver);
      own = options_from(options);
      own_tensors = tensors_from(tensors, count);
    });
    if (!fault.empty()) horo::checkpoint::refuse_save(own_session, fault);
    if (!begin_save(*own_saver, own_session, own, own_tensors)) return HORO_SAVE_SKIPPED;
    return HORO_OK;
  });
}

int32_t horo_save_part(horo_saver* saver, size_t i, uint64_t* first_row, uint64_t* rows) {
  return guarded([&]() -> std::int32_t {
    if (first_row == nullptr || rows == nullptr) throw std::invalid_argument("first_row or rows is a null pointer");
    const RowRange part = saver_of(saver).part(i);
    *first_row = static_cast<std::uint64_t>(part.start);
    *rows = static_cast<std::uint64_t>(part.stop - part.start);
    return HORO_OK;
  });
}

int32_t horo_save_take(horo_saver* saver, size_t i, const void* data) {
  return guarded([&]() -> std::int32_t {
    saver_of(saver).take(i, static_cast<const std::byte*>(data));
    return HORO_OK;
  });
}

int32_t horo_save_start(horo_saver* saver) {
  return guarded([&]() -> std::int32_t {
    saver_of(saver).start();
    return HORO_OK;
  });
}

int32_t horo_save_wait(horo_saver* saver, int32_t timeout_ms) {
  return guarded([&]() -> std::int32_t {
    const auto until =
        timeout_ms < 0 ? horo::TimePoint::max() : horo::Clock::now() + std::chrono::milliseconds(timeout_ms);
    return saver_of(saver).wait_until(until) ? HORO_OK : HORO_TIMEOUT;
  });
}

int32_t horo_save_progress_of(horo_saver* saver, horo_save_progress* progress) {
  return guarded([&]() -> std::int32_t {
    check_struct(progress, "horo_save_progress");
    const horo::checkpoint::SaveProgress now = saver_of(saver).progress();
    *progress = {progress->struct_bytes, now.is_writing ? 1 : 0, now.bytes_done,   now.bytes_total,
                 now.published,          now.published_step,     now.seconds_copy, now.seconds_write};
    return HORO_OK;
  });
}

int32_t horo_save_give_up(horo_saver* saver, const char* reason) {
  return guarded([&]() -> std::int32_t {
    saver_of(saver).give_up(reason == nullptr ? "the save was given up" : reason);
    return HORO_OK;
  });
}

horo_checkpoint* horo_checkpoint_open(const char* path) {
  horo_checkpoint* made = nullptr;
  guarded([&]() -> std::int32_t {
    made = new horo_checkpoint{horo::checkpoint::Checkpoint(required(path, "the path of a checkpoint"))};
    return HORO_OK;
  });
  return made;
}

const char* horo_checkpoint_index(horo_checkpoint* checkpoint) {
  const char* text = nullptr;
  guarded([&]() -> std::int32_t {
    text = checkpoint_of(checkpoint).index_text().c_str();
    return HORO_OK;
  });
  return text;
}

int32_t horo_checkpoint_load(horo_checkpoint* checkpoint, horo_session* session, const horo_checkpoint_tensor* tensors,
                             size_t count, int32_t verify_first) {
  return guarded([&]() -> std::int32_t {
    horo::Session* const own_session = session_or_none(session);
    horo::checkpoint::Checkpoint* own = nullptr;
    std::vector<CheckpointTensor> own_tensors;
    const std::string fault = fault_in([&] {
      own = &checkpoint_of(checkpoint);
      own_tensors = tensors_from(tensors, count);
    });
    if (!fault.empty()) horo::checkpoint::refuse_load(own_session, fault);
    load(*own, own_session, own_tensors, verify_first != 0);
    return HORO_OK;
  });
}

int32_t horo_checkpoint_verify(horo_checkpoint* checkpoint) {
  return guarded([&]() -> std::int32_t {
    verify(checkpoint_of(checkpoint));
    return HORO_OK;
  });
}

void horo_checkpoint_close(horo_checkpoint* checkpoint) {
  delete checkpoint;
}

const char* horo_checkpoint_list(const char* folder) {
  std::string text;
  const std::int32_t status = guarded([&]() -> std::int32_t {
    text = json_of(horo::checkpoint::list(required(folder, "the folder of the checkpoints")));
    return HORO_OK;
  });
  if (status != HORO_OK) return nullptr;
  thread_state().text = std::move(text);
  return thread_state().text.c_str();
}
