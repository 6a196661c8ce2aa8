// Lanes: one for each process set that this rank is in, and one for messages between two ranks (send_recv), so that
// these never queue behind a collective. No lane waits for another.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "horo/base/mutex.h"
#include "horo/lane/lane.h"

namespace horo {

// The engine's thread, but for prepare() and group().
class Lanes {
 public:
  // `failed` is a lane's; `news` is told, by lanes' threads, when there is something for reap() or take_done(). Neither
  // may block. `world`: all ranks. Opens the world and the lane of messages.
  Lanes(const LaneTools& tools, Members world, std::function<void(FailurePtr)> failed, std::function<void()> news);

  // A process set that this rank is in; ranks of the world.
  void open(std::uint32_t set, const std::vector<int>& ranks);
  void run(Job job);
  // In order with the jobs of their sets; at once where there is no such lane.
  void end(Ending ending);
  // The last of a set: what was released of it before ends first, messages too.
  void close(std::uint32_t set, Ending ending);
  // Frees the lanes that have ended, and lets their sets' last Works end.
  void reap();
  // Of each set, what its lane did since the last call and was to tell.
  std::vector<Done> take_done();
  // See Lane::stop, and Lane::join, for which the engine's thread comes back before it ends.
  void stop();
  void join();

  // Any thread.
  void prepare(FilledPlan filled);
  // Of a process set's members, for memory; null where it has no lane (any more).
  std::shared_ptr<Group> group(std::uint32_t set);
  // The world's, which lives as long as these: for who wants to help.
  Lane& world() { return *world_; }

 private:
  std::unique_ptr<Lane> make(std::uint32_t channel, Members members);
  Lane* find(std::uint32_t place) REQUIRES(mutex_);
  bool end_in_lane(std::uint32_t place, const Ending& ending);

  const LaneTools tools_;
  const Members members_;  // of the world
  const std::function<void(FailurePtr)> failed_;
  const std::function<void()> news_;
  struct Closed {
    std::unique_ptr<Lane> lane;
    Ending last;
  };

  std::atomic<bool> has_done_ = false;      // a lane may have something; orders nothing: lanes have locks
  Lane* world_ = nullptr;                   // in lanes_ or stopped_
  std::map<std::uint32_t, Closed> closed_;  // engine thread
  Mutex mutex_;
  std::map<std::uint32_t, std::unique_ptr<Lane>> lanes_ GUARDED_BY(mutex_);  // by process set, and kMail
  std::map<std::uint32_t, std::unique_ptr<Lane>> stopped_;  // engine thread: those of lanes_, at the end
};

}  // namespace horo
