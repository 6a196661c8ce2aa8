// What is fuzzed: functions that take any bytes and end the process if a promise about them is broken. The same ones
// run under libFuzzer (tools/fuzz) and, with a fixed seed, in the tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace horo {

// True if the code under test accepted the input: a target that never or always does tests little.
using FuzzFunction = bool (*)(std::span<const std::byte> input);

bool fuzz_peer_infos(std::span<const std::byte> input);     // the peer info of a rank in the exchange
bool fuzz_checkpoints(std::span<const std::byte> input);    // index and header of a checkpoint
bool fuzz_codecs(std::span<const std::byte> input);         // bytes to decode, and values to encode
bool fuzz_credentials(std::span<const std::byte> input);    // PEM texts of certificates, requests and keys
bool fuzz_frames(std::span<const std::byte> input);         // frame headers, abort notices, ByteReader
bool fuzz_handshakes(std::span<const std::byte> input);     // two honest sides and an attacker between them
bool fuzz_host_messages(std::span<const std::byte> input);  // messages between guards, agents and the rendezvous
bool fuzz_job_records(std::span<const std::byte> input);    // what a rendezvous stores
bool fuzz_members(std::span<const std::byte> input);        // packets between a member and the guard, their messages
bool fuzz_messages(std::span<const std::byte> input);       // messages between coordinators
bool fuzz_record_logs(std::span<const std::byte> input);    // the file in which it does
bool fuzz_schedules(std::span<const std::byte> input);      // files of schedules
bool fuzz_settings(std::span<const std::byte> input);       // environments: settings and variables of launchers

struct FuzzTarget {
  std::string_view name;
  FuzzFunction run;
  int inputs = 20'000;  // of the smoke test
};
std::span<const FuzzTarget> fuzz_targets();

// Takes an input apart; zeros once it is used up.
class FuzzInput {
 public:
  explicit FuzzInput(std::span<const std::byte> left) : left_(left) {}
  bool is_empty() const { return left_.empty(); }
  std::uint64_t number(std::size_t bytes);
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(number(2)) % end; }
  std::vector<std::byte> take(std::size_t bytes);  // as many as there are
  std::span<const std::byte> rest() const { return left_; }

 private:
  std::span<const std::byte> left_;
};

}  // namespace horo
