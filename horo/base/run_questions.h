// RunQuestions: what a person asks rank 0 by way of the guard of `horo run` (`horo why`), and the answers. Nothing is
// done until a question comes: a pipe of the guard, which the engine's thread polls with its connections, has a byte
// then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "horo/base/config.h"
#include "horo/base/run_table.h"

namespace horo {

// One thread.
class RunQuestions {
 public:
  RunQuestions() = default;
  ~RunQuestions();
  RunQuestions(const RunQuestions&) = delete;
  RunQuestions& operator=(const RunQuestions&) = delete;

  // Finds the guard, at the first call. Without one, or where it cannot be seen, no question comes. Throws nothing.
  void open(const Config& config);
  // Readable after a question; -1: none comes.
  int bell() const { return bell_; }
  // The number of a question that is new since the last call.
  std::optional<std::uint32_t> next();
  // What rank 0 shares with the guard; null: nothing.
  const RunTable* table() const { return table_.get(); }
  void answer(std::uint32_t question, std::span<const std::byte> bytes);

 private:
  bool is_open_ = false;
  std::shared_ptr<RunTable> table_;
  int bell_ = -1;
  std::uint32_t last_ = 0;
};

}  // namespace horo
