// More of the C++ API: process sets, parts of different sizes, messages, a custom operation and a codec.
//
//   tools/setup && cmake --preset release && cmake --build --preset release --target collectives
//   horo run -n 4 build/release/examples/collectives
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "horo/horo.h"

namespace {

using horo::CollectiveKind;

horo::TensorSpec spec_of(CollectiveKind kind, const char* name, std::int64_t elements) {
  horo::TensorSpec spec;
  spec.kind = kind;
  spec.name = name;
  spec.shape = {elements};
  return spec;
}

const horo::Outcome& wait(horo::Session& session, const std::shared_ptr<horo::Work>& work) {
  session.wait({&work, 1}, horo::TimePoint::max());
  return work->outcome();  // throws the error if the operation failed
}

// Every rank sends rank + 1 numbers to the next rank and none to the others.
std::size_t shift(horo::Session& session) {
  const auto [rank, size] = std::pair(session.topology().rank, session.topology().size);
  const std::vector<float> in(static_cast<std::size_t>(rank) + 1, static_cast<float>(rank));
  horo::Submission submission{.in = in.data(), .splits = std::vector<std::int64_t>(static_cast<std::size_t>(size))};
  submission.splits[static_cast<std::size_t>((rank + 1) % size)] = rank + 1;
  const auto work = session.submit(spec_of(CollectiveKind::kAllToAll, "shift", rank + 1), submission);
  return wait(session, work).bytes / sizeof(float);  // the numbers are in Outcome::data
}

// The even ranks sum with a codec: a quarter of the traffic. The next calls compensate its errors (error feedback).
float sum_of_evens(horo::Session& session) {
  if (session.topology().size == 1) return 1.0f;  // a set of all ranks is the world, which exists already
  std::vector<int> evens;
  for (int rank = 0; rank < session.topology().size; rank += 2) evens.push_back(rank);
  const auto added = session.add_set(evens, "evens");  // called by all ranks of the world
  const auto set = static_cast<std::uint32_t>(wait(session, added).counts[0]);
  std::vector<float> x(1000, 1.0f);
  horo::TensorSpec spec = spec_of(CollectiveKind::kAllReduce, "gradient", 1000);
  spec.set = set;
  spec.codec = "int8";
  if (session.set_info(set).rank >= 0) session.run(spec, x.data(), x.data());
  wait(session, session.remove_set(set));
  return x[0];
}

// The norm of a vector that is distributed over all ranks.
float norm(horo::Session& session, float mine) {
  const auto hypot = [](std::byte* accumulator, const std::byte* value, std::uint64_t count, horo::DType) {
    for (std::uint64_t i = 0; i < count; ++i) {
      float a = 0, b = 0;
      std::memcpy(&a, accumulator + i * sizeof a, sizeof a);
      std::memcpy(&b, value + i * sizeof b, sizeof b);
      a = std::hypot(a, b);
      std::memcpy(accumulator + i * sizeof a, &a, sizeof a);
    }
    return 0;
  };
  session.register_op({.name = "hypot", .combine = hypot});
  horo::TensorSpec spec = spec_of(CollectiveKind::kAllReduce, "norm", 1);
  spec.op = horo::ReduceOp::kCustom;
  spec.custom_op = "hypot";
  session.run(spec, &mine, &mine);
  return mine;
}

// Rank 0 sends a number to the last rank; no other rank takes part.
float send_to_last(horo::Session& session, float value) {
  horo::TensorSpec spec = spec_of(CollectiveKind::kSendRecv, "message", 1);
  spec.root = 0;
  spec.peer = session.topology().size - 1;
  if (session.topology().rank == spec.root || session.topology().rank == spec.peer) session.run(spec, &value, &value);
  return value;
}

}  // namespace

int main() {
  try {
    horo::Session session(horo::config_from_environment());
    const int rank = session.topology().rank;
    std::printf("rank %d got %zu numbers; ", rank, shift(session));
    std::printf("the sum of the even ranks is %g, the norm %g", static_cast<double>(sum_of_evens(session)),
                static_cast<double>(norm(session, 3.0f)));
    if (session.topology().size > 1)
      std::printf(", the message %g", static_cast<double>(send_to_last(session, 42.0f - static_cast<float>(rank))));
    std::printf("\n");
    wait(session, session.join(0));  // ranks with more work continue without this rank
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "collectives: %s\n", error.what());
    return 1;
  }
}
