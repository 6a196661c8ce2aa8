// LaneSet: the lanes of a rank: one for each process set that it is a member of, and one for messages between two ranks
// (send_recv), so that messages of the host's memory never queue behind a collective. What devices do, they do in turns
// (DeviceTurns).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "horo/base/mutex.h"
#include "horo/lane/lane.h"

namespace horo {

// Only the engine's thread, except for prepack() and group().
class LaneSet {
 public:
  // failed: see LaneCallbacks. notify: called by threads that run tasks when reap() or take_done() has something to do.
  // Neither may block. world: all ranks. Opens the lane of the world and the lane of messages.
  LaneSet(const LaneContext& context, Members world, std::function<void(FailurePtr)> failed,
          std::function<void()> notify);

  // Opens the lane of a process set of these world ranks; this rank is one of them.
  void open(std::uint32_t set, const std::vector<int>& ranks);
  void run(Job job);
  // Each item ends in order with the jobs of its set, or at once if its set has no lane.
  void end(Ending ending);
  // In an elastic job: this rank has given the round up. What its lane holds of it fails, and what will be complete.
  void fail_round(const RoundFailed& failed);
  // Closes the lane of the set. `last` ends after everything that was released of the set before, messages included.
  void close(std::uint32_t set, const Ending& last);
  // Frees the lanes that were closed and are drained, and ends the last Works of their sets.
  void reap();
  // Calls Lane::take_done() of every lane, and returns the results by set.
  std::vector<Done> take_done();
  // No job follows: blocks until all tasks of all lanes have run. Calls `on_turn` several times a second meanwhile.
  // False: a lane has failed (see LaneCallbacks).
  bool drain(const std::function<void()>& on_turn);
  // No job follows, and none is queued: returns when nothing of the lanes is on devices any more and the other ranks
  // need nothing more of it, or at `until`. stop() follows.
  void finish_devices(TimePoint until);
  // Continues with the residuals of the sets' lanes in an earlier epoch, which are drained. Precedes the first job.
  void take_residuals(LaneSet& drained);
  // The same for the buffers of lanes that have ended, after join() and settle().
  void take_memory(LaneSet& ended);
  // Lane::stop(), works_have_failed() and join() of all lanes. The engine's thread calls join() before it ends. Works
  // in flight have failed before join(), or run again in the next epoch.
  void stop();
  void works_have_failed();
  // Lane::wait_until_closed() of all lanes.
  void wait_until_closed(TimePoint until);
  void join();

  // Follow join(), in an elastic job. Lanes have the numbers of their sets; that of messages has kMessageLane.
  // By lane, the number of the last collective that is complete on this rank.
  std::map<std::uint32_t, std::uint64_t> progress() const;
  // Lane::settle() of all lanes. `ranks` of is_done: those that take part in the commit.
  using IsDone = std::function<bool(std::uint32_t lane, const Commit& commit, const std::vector<int>& ranks)>;
  void settle(const IsDone& is_done);

  // ---- Any thread.

  void prepack(FilledPlan filled);
  // The group of all members of a process set, for memory; null if the set has no lane.
  std::shared_ptr<Group> group(std::uint32_t set);
  // The lanes of the world and of messages, for polling. They live as long as this object.
  Lane& world() { return *world_; }
  Lane& messages() { return *messages_; }

 private:
  struct Closed {
    std::unique_ptr<Lane> lane;
    Ending last;
  };

  std::unique_ptr<Lane> make(std::uint32_t channel, Members members);
  Lane* find(std::uint32_t place) REQUIRES(mutex_);
  bool end_in_lane(std::uint32_t place, const Ending& ending);

  const std::unique_ptr<DeviceTurns> turns_;  // null: see LaneContext::turns
  const LaneContext context_;
  const Members world_members_;
  const std::function<void(FailurePtr)> failed_;
  const std::function<void()> notify_;
  std::atomic<bool> has_done_ = false;  // a lane may have a new take_done(); relaxed, because lanes have mutexes
  Lane* world_ = nullptr;               // this and the next: in lanes_ or stopped_
  Lane* messages_ = nullptr;
  std::map<std::uint32_t, Closed> closed_;  // by process set; engine thread
  Mutex mutex_;
  std::map<std::uint32_t, std::unique_ptr<Lane>> lanes_ GUARDED_BY(mutex_);  // by process set, and kMail
  std::map<std::uint32_t, std::uint64_t> reaped_;           // Lane::completed() of lanes of removed sets
  std::map<std::uint32_t, std::unique_ptr<Lane>> stopped_;  // lanes_ after stop(); engine thread
};

}  // namespace horo
