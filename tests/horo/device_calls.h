// Calls of a script on tensors of the host and of the fake device, whose results have the same bits.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "horo/tensors/spec_check.h"
#include "tests/horo/fake_device.h"
#include "tests/horo/worlds.h"

namespace horo {

inline std::vector<std::byte> bytes_of_floats(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = std::ldexp(static_cast<float>(random() % 2'000'001) - 1e6f, -10);
  std::vector<std::byte> bytes(count * sizeof(float));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// One call of a script: what it submits, and the bytes of the result.
struct Call {
  TensorSpec spec;
  std::vector<std::byte> in;
  std::size_t out_bytes = 0;
  std::vector<std::int64_t> splits = {};
  bool is_in_place = false;
};

inline std::vector<std::byte> on_host(Session& session, Call call) {
  call.spec.name += " on the host";
  std::vector<std::byte> out = call.is_in_place ? call.in : std::vector<std::byte>(call.out_bytes, std::byte{0x5a});
  Submission submission{0, call.is_in_place ? out.data() : call.in.data(), out.data()};
  submission.out_bytes = out.size();
  submission.splits = call.splits;
  outcome_of(session, session.submit(call.spec, submission));
  return out;
}

inline std::vector<std::byte> on_device(Session& session, Call call, int device) {
  call.spec.device = DeviceType::kCuda;
  const CudaStream stream = make_stream();
  DeviceMemory in(stream, call.in.size()), apart(stream, call.out_bytes);
  in.write(call.in);
  DeviceMemory& out = call.is_in_place ? in : apart;
  Submission submission{0, in.data(), out.data()};
  submission.out_bytes = call.out_bytes;
  submission.splits = call.splits;
  submission.ready = session.record(device, stream);
  outcome_of(session, session.submit(call.spec, submission));
  if (!call.is_in_place) {
    EXPECT_EQ(in.read(), call.in) << "the input is not written";
  }
  return out.read();
}

// Runs the script on so many ranks, each with a device of its own.
inline std::vector<std::string> run_nccl(int ranks, const std::function<void(Session&)>& body,
                                         const Config& config = on_fake_nccl()) {
  const auto before = nccl_counts();
  auto thrown = run_world(ranks, body, config);
  EXPECT_EQ(nccl_counts().cycles, before.cycles) << "collectives of two communicators in opposite orders";
  EXPECT_EQ(nccl_counts().comms, before.comms) << "a communicator is left";
  return thrown;
}

// A sum on this rank's device, and its work.
inline std::shared_ptr<Work> submit_sum(Session& session, const std::string& name, DeviceMemory& memory,
                                        CudaStream stream, std::uint32_t set = 0) {
  TensorSpec spec = float_spec(name, 1'000);
  spec.set = set;
  spec.device = DeviceType::kCuda;
  Submission submission{0, memory.data(), memory.data()};
  submission.ready = session.record(session.topology().rank, stream);
  return session.submit(spec, submission);
}

// Runs the call on the host and on a device of this rank, and compares the bits.
inline void expect_equal_bits(Session& session, const Call& call) {
  const int device = session.topology().rank % 2;
  EXPECT_EQ(on_device(session, call, device), on_host(session, call)) << describe(call.spec);
}

// The same on a device that no other rank uses.
inline void expect_bits_of_host(Session& session, const Call& call) {
  EXPECT_EQ(on_device(session, call, session.topology().rank), on_host(session, call)) << describe(call.spec);
}

inline Call call_of(CollectiveKind kind, Session& session, std::int64_t rows) {
  const int rank = session.topology().rank;
  Call call;
  call.spec = spec_of(kind, std::string(name_of(kind)) + std::to_string(rows), {rows, 3});
  using enum CollectiveKind;
  call.spec.root = kind == kBroadcast || kind == kReduce || kind == kGather || kind == kScatter ? 1 : 0;
  call.in = bytes_of_floats(call.spec.elements(), static_cast<std::uint64_t>(rank + 7 * rows));
  call.out_bytes = call.in.size();
  return call;
}

}  // namespace horo
