#include "horo/session.h"

#include <array>

#include "horo/base/check.h"
#include "horo/base/log.h"
#include "horo/engine.h"
#include "horo/spec_check.h"

namespace horo {
namespace {

constexpr std::uint32_t kFirstEpoch = 0;

}  // namespace

Session::Session(const Config& config) : Session(config, make_tcp_exchange(config, kFirstEpoch)) {}

Session::Session(const Config& config, const Exchange& exchange)
    : Session(config, connect_tcp(config, kFirstEpoch, exchange)) {}

Session::Session(const Config& config, Links links)
    : config_(config), inbox_(config), engine_(std::make_unique<Engine>(config, std::move(links), inbox_, counters_)) {
  set_check_context(config.rank, config.size, kFirstEpoch);
  set_log_rank(config.rank);
}

Session::~Session() {
  shutdown();
}

const Topology& Session::topology() const {
  return engine_->topology();
}

Key Session::declare(const TensorSpec& spec) {
  return inbox_.declare(spec);
}

std::shared_ptr<Work> Session::submit(const Submission& submission) {
  return submit(std::span(&submission, 1)).front();
}

std::vector<std::shared_ptr<Work>> Session::submit(std::span<const Submission> submissions) {
  Inbox::Put put = inbox_.put(submissions);
  for (FilledPlan& filled : put.filled) engine_->prepare(std::move(filled));
  if (put.wake) engine_->wake();
  counters_.add_submitted(submissions.size());
  return std::move(put.works);
}

std::shared_ptr<Work> Session::submit(const TensorSpec& spec, const void* in, void* out) {
  // Checked before it gets a name: a sequence number that is used up in vain would not match the other ranks' any more.
  check_spec(spec, config_);
  check_buffers(spec, config_, in, out, false);
  return submit(Submission{declare(spec), in, out});
}

bool Session::wait(std::span<const std::shared_ptr<Work>> works, TimePoint until) {
  std::vector<Key> unfinished;
  for (const auto& work : works) {
    if (!work->finished()) unfinished.push_back(work->key());
  }
  if (!unfinished.empty() && inbox_.nudge(unfinished)) engine_->wake();
  for (const auto& work : works) {
    if (!work->wait_until(until)) return false;
  }
  return true;
}

bool Session::poll(const Work& work) {
  if (work.finished()) return true;
  const Key key = work.key();
  if (inbox_.nudge(std::span(&key, 1))) engine_->wake();
  return false;
}

void Session::run(const TensorSpec& spec, const void* in, void* out) {
  const std::array works = {submit(spec, in, out)};
  wait(works, TimePoint::max());
  works.front()->outcome();
}

void Session::step_end(std::uint32_t set) {
  if (inbox_.step_end(set)) engine_->wake();
}

void Session::abort(const std::string& reason) {
  engine_->abort(reason);
}

void Session::shutdown() {
  engine_->leave();
}

std::uint64_t Session::kernel_bytes_sent() const {
  return engine_->kernel_bytes_sent();
}

}  // namespace horo
