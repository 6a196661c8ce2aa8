#include "horo/engine/epoch_state.h"

#include <utility>

namespace horo {
namespace {

CoordinatorConfig coordinator_config(const Config& config) {
  CoordinatorConfig c;
  c.rank = config.rank;
  c.size = config.size;
  c.bucket_bytes = config.bucket_bytes;
  // If all ranks share a host, reducing small first buckets early would take cores from the computation.
  c.least_bucket_bytes = config.local_size == config.size ? config.bucket_bytes : config.least_bucket_bytes;
  c.credit_bytes = config.credit_bytes;
  c.stall_warning = config.stall_warning;
  c.stall_limit = config.stall_limit;
  c.deadlock_limit = config.deadlock_limit;
  c.answer_timeout = config.answer_timeout;
  c.max_name_bytes = config.max_name_bytes;
  c.max_dims = config.max_dims;
  c.max_tensors = config.max_tensors;
  c.max_round_streams = config.max_round_streams;
  c.kept_tensors = config.kept_tensors;
  return c;
}

}  // namespace

EpochState::EpochState(const Config& config, Links found)
    : links(std::move(found)), coordinator(coordinator_config(config)), detector(config, links.names) {}

EpochState::EpochState(const Config& config, Links found, const EpochState& before)
    : number(before.number + 1),
      links(std::move(found)),
      coordinator(coordinator_config(config), before.coordinator),
      detector(config, links.names) {}

}  // namespace horo
