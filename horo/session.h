// Session: one engine, from init to shutdown. The C++ API of horo; the C ABI and every binding are thin layers over it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/counters.h"
#include "horo/base/run_place.h"
#include "horo/base/tensor_spec.h"
#include "horo/base/time.h"
#include "horo/base/timeline.h"
#include "horo/session_waits.h"
#include "horo/steps/step_file.h"
#include "horo/steps/steps.h"
#include "horo/tensors/callers.h"
#include "horo/tensors/registry.h"
#include "horo/tensors/tensor_table.h"
#include "horo/tensors/work.h"
#include "horo/topology.h"
#include "ring/cuda/cuda_device.h"
#include "ring/group.h"
#include "ring/links.h"

namespace horo {

class Engine;

// Connects the ranks of the world for the epoch with this number, as find_others() does. Called by the engine thread.
using Reconnect = std::function<Links(std::uint32_t epoch)>;
using FirstLinks = std::function<Links(const IsCancelled& is_cancelled)>;

// Tensors of one process set that are run together or fail together. Keys are not read.
struct Unit {
  std::string name;  // empty: units match between ranks by order of submission
  std::vector<TensorSpec> specs;
  std::vector<Submission> submissions;
};

// What a process that joins a job has in common with its ranks, besides the settings: lines "name=value".
struct JoinTerms {
  std::string text;
};

// Any thread may call any function, except for the destructor, which must be the last call. A process may have several
// sessions (ranks as threads). Works must not be waited for after the destructor. In a child process that was forked
// from the session's process, every call throws ShutDown and has no effect, and the destructor has no effect.
class Session {
 public:
  // A world of fixed size. Connects to the other ranks by the method of Config::meet_by. May block up to
  // Config::start_timeout. Throws std::invalid_argument (a setting is invalid or differs between ranks), or PeerLost
  // (ranks that did not connect).
  explicit Session(const Config& config);
  // The same with a function that exchanges addresses; it is called for MeetBy::kExchange only.
  Session(const Config& config, const Exchange& exchange);
  // Uses established links. reconnect: connects the ranks for a later epoch; null: rebuild() is refused.
  Session(const Config& config, Links links, Reconnect reconnect = nullptr);
  // A process that `horo run` has started for an elastic job that runs (Config::joins) joins it: blocks until the ranks
  // of the job have come to a border (grow()) and this rank is one of them. It is ready for work from then on: all that
  // the others would have to wait for is done before the call. terms: see can_grow(). Throws PeerLost (the job has
  // ended, or refuses this rank, with the reason) or std::invalid_argument. Until then such a process has a session of
  // one rank, for what its script does before: its Topology is that of a rank other than 0 at the start
  // of the job, and its collectives have this rank alone.
  Session(const Config& config, const JoinTerms& terms);
  ~Session();  // shutdown()
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // This process was started to join a job, and has not: this session is not one of the job.
  bool has_yet_to_join() const { return started_as_.joins && !config_.joins; }

  // False in a forked child; check_process() throws ShutDown there.
  bool is_here() const;
  void check_process() const;

  // In an elastic job ranks change, but not for the caller until a wait() returns with works that have ended
  // in a later epoch: the roots, peers and sizes of calls before that mean the ranks that the caller knows. A call that
  // means ranks that are others by then fails with PeerLost on all ranks.
  Topology topology() const;
  // The ranks at the start of the present ranks, in their order; in a static job 0, 1, 2 and so on.
  std::vector<std::uint32_t> members() const;
  const Config& config() const { return config_; }

  // Declares a tensor. Equal specs have one key. Throws std::invalid_argument.
  Key declare(const TensorSpec& spec);
  // Records an event on the caller's stream, for Submission::ready of tensors on a CUDA device (TensorSpec::device):
  // once for each submission, or for several on the same stream. Released before the session. Throws
  // std::invalid_argument (there is no plug-in, driver or such device; the stream is being captured into a graph) and
  // std::runtime_error (an error of CUDA). The first call that names a CUDA tensor, this one or declare(), may block
  // for seconds: the driver starts.
  std::shared_ptr<const DeviceEvent> record(int device, CudaStream stream);
  // The caller uses these keys no more; each undoes one declare(). What is in flight goes on. Throws
  // std::invalid_argument, and changes nothing, if one of them is not declared.
  void undeclare(std::span<const Key> keys);
  // These never block. They throw std::invalid_argument, ShutDown or PeerLost; nothing was queued then.
  std::shared_ptr<Work> submit(const Submission& submission);
  std::vector<std::shared_ptr<Work>> submit(std::span<const Submission> submissions);  // all or none
  std::shared_ptr<Work> submit(const TensorSpec& spec, const Submission& submission);  // also declares; key is not read
  std::shared_ptr<Work> submit(const TensorSpec& spec, const void* in, void* out);
  // Tensors without a name are called <unit>_<i>of<count>, with i from 1.
  std::vector<std::shared_ptr<Work>> submit(Unit unit);

  // Blocks until all works have ended, or until `until` (false). Errors are in Work::outcome(). If all ranks share
  // memory, this thread may run short collectives, and returns late by the time that the other ranks need for one.
  bool wait(std::span<const std::shared_ptr<Work>> works, TimePoint until);
  // The same for what the caller's stream on this device does next, without a wait for the device: blocks until all
  // works were issued or have ended; what is enqueued on the stream from then on begins when they have ended. After it
  // Work::outcome() may be called. An error of the device, and ranks that are lost before it has done its part, are
  // told by the caller's next call. Throws as record().
  bool wait_stream(std::span<const std::shared_ptr<Work>> works, int device, CudaStream stream, TimePoint until);
  // The same, and no stream waits.
  bool wait_issued(std::span<const std::shared_ptr<Work>> works, TimePoint until);
  // Blocks until the works that are issued now have ended, or until `until` (false).
  bool finish_devices(TimePoint until);
  // Whether the work has ended. If its plan is incomplete, the work no longer waits for the rest of the plan.
  bool poll(const Work& work);
  // Submits, waits, and throws the failure of the work: the synchronous form.
  void run(const TensorSpec& spec, const void* in, void* out);

  // Process sets. None of these blocks; all throw std::invalid_argument. All ranks of the world add and remove sets in
  // the same order. The work of add_set ends with the number of the new set (Outcome::counts[0]); the work of
  // remove_set ends when nothing of the set is in flight on this rank. An empty name becomes "process set <number>".
  // shrinks: in an elastic job the set goes on with the members that are left, as the world does; without it, a set
  // that has lost a member fails each use with PeerLost. It is the same on all ranks; no effect in a static job.
  // A rank that has joined after a set was added does not remove it.
  std::shared_ptr<Work> add_set(const std::vector<int>& ranks, const std::string& name = "", bool shrinks = false);
  // The same, called by the members of the set alone, this rank among them. They find each other by the name, which
  // differs from the names of all such sets that exist; so they may add several sets in any order, and sets of the same
  // ranks. Members that name different ranks or flags fail with Mismatch. The members alone remove it, too.
  std::shared_ptr<Work> add_set_by_members(const std::vector<int>& ranks, const std::string& name,
                                           bool shrinks = false);
  std::shared_ptr<Work> remove_set(std::uint32_t set);
  SetInfo set_info(std::uint32_t set) const;
  // This rank has no more data in this set. all_reduces and barriers of the set continue without this rank until all
  // members have joined; other collectives of the set fail. The work ends when all members have joined, with the rank
  // that joined last (counts[0]).
  std::shared_ptr<Work> join(std::uint32_t set);

  // Ends the current epoch of the world on all ranks and begins the next one with the same ranks: new connections,
  // lanes and memory of collectives, in the same session. All ranks call it the same number of times. Collectives that
  // are released by then end first; everything else in flight stays, and is agreed on in the next epoch. Until the work
  // has ended, shutdown() and abort() may block as long as a start, and a rank that ends meanwhile is missed by the
  // others after Config::start_timeout.
  // Keys, process sets, rounds, joins and residuals stay too. Never blocks; the work ends when this rank is in the next
  // epoch, with counts: its number, and the microseconds that this rank took to end the released collectives, to leave,
  // to connect and to agree. Fails with Mismatch if a rank has joined or left. Throws std::invalid_argument where the
  // ranks cannot connect again: with the MPI backend, MeetBy::kExchange, or links without `reconnect`.
  std::shared_ptr<Work> rebuild();

  // Growth of an elastic job; docs/protocol.md has the join. can_grow(): the script of this rank can go on with ranks
  // that join, if these have the same terms, lines "name=value" of less than 1 MiB; by the line most_ranks=N ranks join
  // only up to N. `horo run` starts the place of a
  // lost rank anew when all ranks have said so. It may be called again; the last terms count. cannot_grow(): not any
  // more, as its loop has ended. Throws std::invalid_argument (too long), and has no effect in a static job. Blocks
  // only while the guard has not read earlier messages.
  void can_grow(const std::string& terms);
  void cannot_grow();
  // The MemberIds (members()) that processes which are ready to join will have, ascending; empty: none is. Ranks are
  // told at different times, so they agree on it before they call grow(). Never blocks.
  std::vector<std::uint32_t> joiners() const;
  // Ends the epoch on all ranks of an elastic job at one place of their calls, and begins the next one together with
  // the processes that are ready to join. All ranks call it the same number of times. What is released by then ends
  // first; everything else in flight is agreed on in the next epoch. The work ends in it, with its number (counts[0]);
  // none may have joined, and ranks may have been lost. If one is lost just then, number and members may differ between
  // ranks for a moment: a collective tells all of them which ranks there are. Never blocks. Throws
  // std::invalid_argument (a static job; process sets of more than 1 MiB), ShutDown or PeerLost. Fails with Mismatch as
  // rebuild() does.
  std::shared_ptr<Work> grow();
  // This rank, which has joined, has the state of the others now: it counts from here on as the others do. text: for
  // the job's story.
  void synced(const std::string& text);

  // Registers an operation or a codec under its name (TensorSpec::custom_op, codec), before the first spec that names
  // it. All ranks register the same ones. Throws std::invalid_argument.
  void register_op(CustomOp op);
  void register_codec(std::unique_ptr<Codec> codec);

  // The caller ended a step of the set; see TensorSpec::stepwise. Of the world (0), it is a step of the accounting, too
  // (last_step()). Never blocks.
  void step_end(std::uint32_t set);
  // The same without a step of the accounting: a step of several optimizers ends with the last of them, by
  // Steps::end().
  void end_round(std::uint32_t set);

  // Rounds: what one outermost backward pass reduces. The tensors of a round stream (TensorSpec::round_stream) that
  // this rank submits from now on belong to this round; a tensor that ranks submit in different rounds fails with
  // Mismatch on all of them. The caller counts steps and rounds alike on all ranks; the pair (step, round) rises, and
  // may begin anew after a join of the set. Never blocks, and sends nothing alone. Throws std::invalid_argument (stream
  // 0, not a member of the set), ShutDown or PeerLost.
  void begin_round(std::uint32_t set, std::uint64_t stream, std::uint64_t step, std::uint64_t round);
  // This rank will not submit the other tensors of its current round of the stream (an exception in backward). On the
  // other ranks what they submit in that round, and this rank did not, fails at once with Mismatch and the reason,
  // which is cut to kMaxReasonBytes. It ends with this rank's next begin_round. Never blocks. Throws as begin_round.
  void fail_round(std::uint32_t set, std::uint64_t stream, const std::string& reason);

  // Memory with which the collectives of the set are fastest. It may outlive the session. Its content is undefined.
  // Takes as long as an allocation of new pages. Throws std::invalid_argument, ShutDown or PeerLost.
  Allocation allocate(std::uint32_t set, std::size_t bytes);
  // The places of the tensors of these works in the buckets of their known plans. Gradients whose memory has the same
  // layout are reduced in place. The places may change when the version changes.
  std::vector<BucketPlace> places(std::span<const std::shared_ptr<Work>> works) const;
  std::uint64_t plans_version() const;

  // Ends the job on all ranks with PeerLost{this rank, reason}; an elastic job goes on without this rank. Returns when
  // the abort has been sent. failure: its kind and place, the same on ranks that fail alike; empty: not known. An
  // elastic job whose ranks all fail alike within a moment ends at once.
  void abort(const std::string& reason, const std::string& failure = "");
  // When `horo run` ends this rank, since its host is drained: the rank has got a notice, and is to leave (shutdown())
  // where it loses nothing, as at the end of a step. The ranks of a static job get it after one and the same step.
  // Nothing: it has no notice. Never blocks.
  std::optional<TimePoint> notice() const;
  // Leaves the world in good order; works in flight fail with ShutDown. Blocks until issued works have ended, and then
  // at most one second. Further calls only wait until the first one returns. with_process: the process is about to end,
  // as in the destructor. Then this rank of an elastic job counts as lost if the process ends with a failure; without
  // it, the rank has done its part.
  void shutdown(bool with_process = false);

  const Counters& counters() const;
  // The time at which each tensor of the last step was ready: on rank 0 for all ranks, on other ranks for this rank
  // only. Blocks until the next iteration of the engine. Empty after shutdown().
  std::vector<ReadyTime> ready_times() const;
  // Where the time of the last step of this rank went (docs/scaling.md); nothing: no step has ended yet, or
  // HORO_ACCOUNTING=off. Never blocks.
  std::optional<StepRecord> last_step() const { return steps().last_step(); }
  // The same of the last 1,024 steps, with sums over all; and the place of marks, and of step ends that have some.
  Steps& steps() const;
  // Steps::record(). Throws std::invalid_argument: there is no such device.
  void record_mark(std::uint32_t mark, int device, CudaStream stream);

  // Stall diagnosis, for a thread of the binding that can describe the state of the callers of this rank.
  // next_question() blocks until rank 0 requests the call sites of all ranks (returns the number of the question) or
  // until `until` (nothing), and throws ShutDown after shutdown(). An answer is cut to kMaxAnswerBytes.
  std::optional<std::uint64_t> next_question(TimePoint until);
  void answer(std::uint64_t question, const std::string& text);

  // Writes what this rank does to a file for trace viewers (docs/timeline.md), from now until stop_timeline(), or the
  // end of the session. Off, it costs nothing. Rank 0 writes to `path`, another rank to timeline_path() of it. Throw
  // std::invalid_argument (a timeline is on already, or the file cannot be written) and std::runtime_error (the disk
  // was full).
  void start_timeline(const std::string& path);
  void stop_timeline();

  // Bytes sent by the data connections according to the kernel; see Transport.
  std::uint64_t kernel_bytes_sent() const;

 private:
  Session(const Config& config, const Config& started_as, const FirstLinks& first, Reconnect reconnect,
          const std::string& terms = "");
  bool is_elastic() const { return config_.min_np > 0; }
  std::shared_ptr<Work> request(TensorSpec spec);
  void check_device(const TensorSpec& spec);
  std::vector<std::shared_ptr<Work>> hand_over(TensorTable::Accepted accepted);

  const Config config_;
  const Config started_as_;         // the same, but for a process that has yet to join
  const std::uint32_t generation_;  // fork_generation()
  const int pid_;
  Counters counters_;
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<StepFile> step_file_;  // null: none
  std::unique_ptr<Steps> steps_;
  std::unique_ptr<CudaDevices> devices_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<TensorTable> tensor_table_;
  std::unique_ptr<Callers> callers_;
  std::unique_ptr<Engine> engine_;
  SessionWaits waits_;
};

}  // namespace horo
