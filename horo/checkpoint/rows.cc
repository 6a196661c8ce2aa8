#include "horo/checkpoint/rows.h"

#include <array>

namespace horo::checkpoint {

std::vector<ByteRow> gather_rows(Session* session, const std::string& what, const ByteRow& mine) {
  if (session == nullptr) return {mine};
  TensorSpec spec;
  spec.kind = CollectiveKind::kAllGather;
  spec.dtype = DType::kUint8;
  spec.name = "horo.checkpoint " + what;
  spec.once = true;
  spec.shape = {static_cast<std::int64_t>(mine.size())};
  const std::array works = {session->submit(spec, mine.data(), nullptr)};
  session->wait(works, TimePoint::max());
  const Outcome& outcome = works.front()->outcome();
  std::vector<ByteRow> rows;
  const std::byte* at = outcome.data.get();
  for (const std::int64_t count : outcome.counts) {
    rows.emplace_back(at, at + count);
    at += count;
  }
  return rows;
}

std::uint32_t member_of(Session* session) {
  if (session == nullptr) return 0;
  return session->members().at(static_cast<std::size_t>(session->topology().rank));
}

}  // namespace horo::checkpoint
