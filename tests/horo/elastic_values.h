// The values of the tensors of elastic_rank, and the record of its results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "horo/base/wire.h"
#include "horo/horo.h"

namespace horo {

// With the fake of CUDA's plug-in, the tensors count as those of a device.
inline const DeviceType kDevice = std::getenv("HORO_CUDA_LIBRARY") == nullptr ? DeviceType::kHost : DeviceType::kCuda;

inline Submission submission_of(Session& session, Key key, const void* in, void* out) {
  Submission submission{key, in, out};
  if (kDevice != DeviceType::kHost) submission.ready = session.record(0, nullptr);
  return submission;
}

// In [-1, 1), of these numbers alone.
inline float value_of(int id, std::uint64_t what, std::size_t index) {
  std::uint64_t x = (static_cast<std::uint64_t>(id) << 56) ^ (what << 24) ^ index;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return static_cast<float>(static_cast<std::int64_t>(x ^ (x >> 31)) >> 40) / static_cast<float>(1 << 23);
}

// The results in the world, or in the set that shrinks: the same on all members.
struct Results {
  std::uint64_t count = 0, hash = hash64("");
  std::vector<std::pair<std::uint64_t, int>> members = {};  // and how many results in a row have these
  std::ofstream file = {};  // if it is open: a line per result, which is there even if this process is killed

  void note(const void* data, std::size_t bytes) { hash = hash64({static_cast<const char*>(data), bytes}, hash); }
  void add(std::uint64_t mask, const void* data, std::size_t bytes) {
    note(data, bytes);
    if (members.empty() || members.back().first != mask) members.emplace_back(mask, 0);
    ++members.back().second;
    ++count;
    record();
  }
  void record() {
    if (!file.is_open()) return;
    std::ostringstream line;  // written at once
    line << count << " " << members.back().first << " " << std::hex << hash << "\n";
    file << line.str() << std::flush;
  }
  std::string text() const {
    std::ostringstream text;
    text << "results " << count << " hash " << std::hex << hash << std::dec << " members ";
    for (const auto& [mask, results] : members) text << mask << "x" << results << ",";
    return text.str();
  }
};

}  // namespace horo
