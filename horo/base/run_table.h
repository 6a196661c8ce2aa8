// RunTable: memory that the guard of `horo run` shares with the ranks of its host. It has each rank's variables, how
// far the rank is, and its figures, so none of them depends on an environment that passes through other programs.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horo/base/time.h"

namespace horo {

inline constexpr const char* kGuardName = "horo-guard";  // PR_SET_NAME

class RunTable {
 public:
  using Variables = std::map<std::string, std::string>;

  // An empty table in a new memory file, with boards for the ranks of other hosts, too. Throws std::system_error.
  static RunTable make(int ranks, int others = 0);
  // Owns the descriptor. Nothing: it is no table of this version.
  static std::optional<RunTable> map(int fd);

  RunTable(RunTable&& other) noexcept;
  RunTable& operator=(RunTable&& other) noexcept;
  ~RunTable();

  int fd() const { return fd_; }
  int ranks() const { return ranks_; }

  // ---- Written by the guard, for a local rank.

  // Forgets the last process of this rank: another one is to be started in its place.
  void clear(int rank);
  // Of "NAME=value", those that say which rank it is.
  void describe(int rank, const std::vector<std::string>& environment);
  // The word for the process that the guard starts as this rank. That process may write it between fork and exec.
  std::atomic<std::int32_t>& process_word(int rank);
  void set_end(int rank, int status);  // of waitpid()
  // The job has ended with failures alone, and no signal and no timeout has ended it: it may be started again.
  void set_failed();
  bool has_failed() const;
  // Lines that `horo run` has printed, so that the ranks do not repeat them; before they start. What is too long is
  // cut.
  void set_told(const std::string& lines);
  // The notice of all ranks of a static job: each is to leave when it has ended so many steps, and is ended at `until`.
  void set_notice(std::int64_t steps, TimePoint until);

  // ---- Written by the rank.

  // Memory for the rank's figures, zeros at first and after clear(): horo/steps/step_board.h.
  static constexpr std::size_t kBoardBytes = std::size_t{10} * 4096;
  std::span<std::byte> board(int rank) const;
  // The same for ranks of other hosts, which rank 0 writes, by their number at the start (MemberId).
  int others() const { return others_; }
  std::span<std::byte> other_board(int id) const;

  // A checkpoint of this step is on the disk: of the rank that has published it.
  void add_checkpoint(int rank, std::uint64_t step);
  void set_holder(int rank, pid_t pid);  // the process that is the rank: the last one that called init()
  // Since when it waits for the other ranks in init(), and where its caller is; TimePoint{}: it does not (any more).
  void set_start(int rank, TimePoint since, const std::string& site = "");
  void count_start(int rank);  // all ranks were connected

  // ---- Read by both.

  Variables variables(int rank) const;
  pid_t process(int rank) const;
  pid_t holder(int rank) const;  // 0: no process has called init()
  int starts(int rank) const;    // how often all ranks were connected
  std::optional<int> end(int rank) const;
  struct Start {
    TimePoint since;
    std::string site;  // empty: not known
  };
  std::optional<Start> start(int rank) const;  // nothing: it does not wait in init()
  struct Checkpoints {
    std::uint64_t count = 0;
    std::uint64_t last_step = 0;
  };
  Checkpoints checkpoints() const;  // of all ranks since the start of the job
  bool has_told(const std::string& line) const;
  struct Notice {
    std::int64_t steps = 0;
    TimePoint until;
  };
  std::optional<Notice> notice() const;

  // ---- A question of a person, for rank 0: one at a time. Neither side waits for the other.

  static constexpr std::size_t kAnswerBytes = std::size_t{15} * 4096;
  // The guard: its descriptor of a pipe, which has a byte to read after a question; before the ranks start.
  void set_bell(int fd);
  int bell() const;             // -1: there is none
  std::uint32_t ask();          // the guard: the number of a new question, from 1
  std::uint32_t asked() const;  // of the last one; 0: there was none
  // Rank 0. At most kAnswerBytes - 64.
  void answer(std::uint32_t question, std::span<const std::byte> bytes);
  std::optional<std::vector<std::byte>> answer_to(std::uint32_t question) const;

 private:
  struct Slot;
  struct Questions;
  RunTable(int fd, void* data, int ranks, int others);
  std::size_t bytes() const;
  Slot& slot(int rank) const;
  Questions& questions() const;

  int fd_ = -1;
  void* data_ = nullptr;
  int ranks_ = 0, others_ = 0;
};

}  // namespace horo
