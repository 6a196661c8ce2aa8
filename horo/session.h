// Session: one engine, from init to shutdown. The C++ face of horo; the C ABI and every binding are thin over it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/counters.h"
#include "horo/base/tensor_spec.h"
#include "horo/base/time.h"
#include "horo/tensors/registry.h"
#include "horo/tensors/tensor_table.h"
#include "horo/tensors/work.h"
#include "horo/topology.h"
#include "ring/group.h"
#include "ring/links.h"
#include "ring/os/waiting.h"

namespace horo {

class Engine;

// Several tensors of one process set that belong together: all are run, or all fail. Keys are not read.
struct Unit {
  std::string name;  // empty: matched with the other ranks by order of submission
  std::vector<TensorSpec> specs;
  std::vector<Submission> submissions;
};

// Any thread may call anything at any time, but for the destructor, which comes last. Several sessions may live in one
// process (ranks as threads). Works must not be waited for after the session is gone. In a process that was forked from
// the session's own every call throws ShutDown and does nothing, and the destructor does nothing.
class Session {
 public:
  // A static world: finds the others as Config::meet_by says. May block up to Config::start_timeout. Throws
  // std::invalid_argument (a setting, or one that differs between ranks) or PeerLost (who did not come).
  explicit Session(const Config& config);
  // The same with a way to exchange addresses, for MeetBy::kExchange; else it is not called.
  Session(const Config& config, const Exchange& exchange);
  // Over links that exist already.
  Session(const Config& config, Links links);
  ~Session();  // shutdown()
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // False in a forked child; check_process() throws ShutDown there.
  bool is_here() const;
  void check_process() const;

  const Topology& topology() const;
  const Config& config() const { return config_; }

  // Declares a tensor; the same key for an equal spec. Throws std::invalid_argument.
  Key declare(const TensorSpec& spec);
  // Never block. Throw std::invalid_argument (nothing was queued), ShutDown or PeerLost.
  std::shared_ptr<Work> submit(const Submission& submission);
  std::vector<std::shared_ptr<Work>> submit(std::span<const Submission> submissions);  // all or none
  std::shared_ptr<Work> submit(const TensorSpec& spec, const Submission& submission);  // declares too; no key
  std::shared_ptr<Work> submit(const TensorSpec& spec, const void* in, void* out);
  // Tensors without a name are called <unit>_<i>of<count>, from 1 on.
  std::vector<std::shared_ptr<Work>> submit(Unit unit);

  // Blocks until all have ended or `until` has come; false: time over. Errors are in Work::outcome(). Where all ranks
  // share memory it does short collectives itself, and may be late by as long as other ranks keep it waiting in one.
  bool wait(std::span<const std::shared_ptr<Work>> works, TimePoint until);
  // Whether it has ended; a work that is asked for is not left waiting for the rest of its plan.
  bool poll(const Work& work);
  // Submit, wait and throw what it ended with: the synchronous form.
  void run(const TensorSpec& spec, const void* in, void* out);

  // Process sets; none of these blocks, and all throw std::invalid_argument. All ranks of the world add and remove them
  // alike: their works end with the number of the new set (Outcome::counts[0]), and when nothing of the old one is in
  // flight here. An empty name: "process set <number>".
  std::shared_ptr<Work> add_set(const std::vector<int>& ranks, const std::string& name = "");
  std::shared_ptr<Work> remove_set(std::uint32_t set);
  SetInfo set_info(std::uint32_t set) const;
  // This rank has no more data in this set. Until all members have joined, when the work ends (counts[0]: who was
  // last), all_reduces and barriers of the set go on without this rank; other collectives of it fail.
  std::shared_ptr<Work> join(std::uint32_t set);

  // Makes an operation or a codec known by its name (TensorSpec::custom_op, codec), before specs that name it; all
  // ranks do so alike. Throws std::invalid_argument.
  void register_op(CustomOp op);
  void register_codec(std::unique_ptr<Codec> codec);

  // The caller ended a step of the set; see TensorSpec::stepwise. Never blocks.
  void step_end(std::uint32_t set);

  // Memory with which the set's collectives are fastest, for as long as the caller likes: longer than the session too.
  // What is in it is not known. Takes as long as new memory does; throws std::invalid_argument, ShutDown or PeerLost.
  Allocation allocate(std::uint32_t set, std::size_t bytes);
  // Where the tensors of these works lie in their known plans: in a bucket of so many bytes. Gradients whose own memory
  // is laid out alike are reduced where they are. Another version: perhaps in another order.
  std::vector<BucketPlace> places(std::span<const std::shared_ptr<Work>> works) const;
  std::uint64_t plans_version() const;

  // Ends the job for all ranks with PeerLost{this rank, reason}; returns when the others have been told.
  void abort(const std::string& reason);
  // Leaves in good order; works in flight fail with ShutDown. Blocks a second at most. Again: no effect, but that it
  // returns when the first call does.
  void shutdown();

  const Counters& counters() const;
  // When each rank had each tensor of the last step ready: on rank 0 of all ranks, elsewhere of this one alone. Returns
  // as soon as the engine has looked it up; nothing after shutdown().
  std::vector<ReadyTime> ready_times() const;

  // For a thread that can tell what this rank's callers do. next_question() blocks until another rank wants to know
  // (a number), or `until` (nothing); throws ShutDown at the end. An answer has kMaxAnswerBytes at most.
  std::optional<std::uint64_t> next_question(TimePoint until);
  void answer(std::uint64_t question, const std::string& text);

  // Bytes that the kernel says the data connections sent; see Transport.
  std::uint64_t kernel_bytes_sent() const;

 private:
  std::vector<std::shared_ptr<Work>> hand_over(TensorTable::Put put);
  void look_and_help(TimePoint until, const std::function<bool()>& have_ended);

  const Config config_;
  const std::uint32_t generation_;  // fork_generation()
  const int pid_;
  Counters counters_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<TensorTable> tensor_table_;
  Lookout lookout_;  // of callers that wait
  std::unique_ptr<Engine> engine_;
};

}  // namespace horo
