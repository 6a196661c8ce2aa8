#include "controller/answer_wire.h"

#include <algorithm>
#include <string>

#include "controller/spec_wire.h"
#include "horo/base/error.h"

namespace horo {
namespace {

std::uint32_t read_count(ByteReader& in, std::size_t element_bytes, std::size_t most, const char* what) {
  const std::uint32_t count = in.count(element_bytes);
  if (count > most) throw ProtocolError(std::string("more than ") + std::to_string(most) + " " + what);
  return count;
}

}  // namespace

void write_answer(ByteWriter& out, const Diagnosis& answer) {
  out.u64(answer.question);
  out.text(answer.call_sites);
  out.u64(static_cast<std::uint64_t>(answer.unchanged.count()));
  out.u32(static_cast<std::uint32_t>(answer.threads.size()));
  for (const std::vector<Awaited>& thread : answer.threads) {
    out.u32(static_cast<std::uint32_t>(thread.size()));
    for (const Awaited& one : thread) {
      out.u8(one.is_join ? 1 : 0);
      write_name(out, one.name);
    }
  }
}

Diagnosis read_answer(ByteReader& in, const CoordinatorConfig& config) {
  constexpr std::size_t kLeastAwaitedBytes = 13;
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 40;  // ms
  Diagnosis answer;
  answer.question = in.u64();
  answer.call_sites = in.text(kMaxAnswerBytes);
  answer.unchanged = std::chrono::milliseconds(std::min(in.u64(), kLongest));
  answer.threads.resize(read_count(in, 4, kMaxWaitingThreads, "waiting threads"));
  for (std::vector<Awaited>& thread : answer.threads) {
    thread.resize(read_count(in, kLeastAwaitedBytes, kMaxAwaitedTensors, "awaited tensors"));
    for (Awaited& one : thread) {
      one.is_join = in.u8() != 0;
      one.name = read_name(in, config);
    }
  }
  return answer;
}

}  // namespace horo
