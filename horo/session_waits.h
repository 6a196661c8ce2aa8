// SessionWaits: how a session's callers wait for Works.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "horo/base/config.h"
#include "horo/base/time.h"
#include "horo/base/timeline.h"
#include "horo/tensors/callers.h"
#include "horo/tensors/tensor_table.h"
#include "horo/tensors/work.h"
#include "ring/os/waiting.h"

namespace horo {

class Engine;
class Steps;
class CudaDevice;
class TaskQueue;

// Objects of the session; all of them outlive it.
struct WaitContext {
  TensorTable& tensor_table;
  Callers& callers;
  Timeline& timeline;
  Engine& engine;
  Steps& steps;
};

// Any thread.
class SessionWaits {
 public:
  SessionWaits(const Config& config, const WaitContext& context);

  enum class For { kIssue, kEnd };
  // Blocks until all works were issued, or have ended, or until `until` (false). In an elastic job the caller sees the
  // ranks of their epoch. Runs short tasks of lanes meanwhile.
  bool wait(std::span<const std::shared_ptr<Work>> works, For what, TimePoint until);
  // Session::wait_stream(), for a stream that is not captured.
  bool wait_stream(std::span<const std::shared_ptr<Work>> works, const CudaDevice& device, void* stream,
                   TimePoint until);
  // Session::poll()
  bool poll(const Work& work);
  // Blocks until all Works that are issued now have ended, or until `until` (false).
  bool finish_devices(TimePoint until);

 private:
  bool wait_for(std::span<const std::shared_ptr<Work>> works, For what, TimePoint until);
  void see(std::span<const std::shared_ptr<Work>> works);
  void poll(TaskQueue& tasks, TimePoint until, const std::function<bool()>& are_done);

  const WaitContext context_;
  const bool is_elastic_;
  // Each rank has a core: else polling callers delay the engines of others, which agree on each message.
  const bool polls_for_messages_;
  BriefWait brief_wait_;
};

}  // namespace horo
