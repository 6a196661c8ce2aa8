// WaitReport: what the ranks wait for at one moment, as the leader knows it and the ranks have answered: for a person
// that asks why a job does not go on (`horo why`).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "controller/diagnosis_round.h"

namespace horo {

struct WaitReport {
  static constexpr std::size_t kMostWaits = 8;
  static constexpr std::size_t kMostNames = 3;   // of one wait
  static constexpr std::size_t kMostSites = 24;  // different ones

  // Tensors that the same ranks have submitted and the same ranks have not.
  struct Wait {
    std::vector<std::string> names;
    std::uint32_t more = 0;  // tensors
    std::vector<int> submitted, missing;
    bool is_join = false;  // no tensor: the end of a join
    bool partly = false;   // the missing ranks may have submitted some of them
    std::string of_set;
    std::chrono::milliseconds waited{};
  };
  std::vector<Wait> waits;  // the longest first
  std::uint32_t more = 0;   // waits
  int size = 0;             // of the world
  std::vector<int> left, deadlocked;
  std::vector<CallSites> sites;  // of all ranks, equal ones together
  // Of the tensors in flight on rank 0 the one that was submitted first; empty: none, or it has no name.
  std::string in_flight;
};

// At most `most` bytes, if need be without some call sites. Decoding throws ProtocolError for anything that encode()
// does not write.
std::vector<std::byte> encode(const WaitReport& report, std::size_t most);
WaitReport decode_wait_report(std::span<const std::byte> bytes);

}  // namespace horo
