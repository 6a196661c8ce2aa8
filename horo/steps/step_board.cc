// Each copy has a number, which is odd while it is written. Sums have two copies in turn, so a rank that dies while it
// writes leaves the one before.
#include "horo/steps/step_board.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "horo/base/check.h"
#include "horo/base/run_table.h"

namespace horo {
namespace {

constexpr std::uint64_t kMagic = 0x6f726f6873747033;  // this layout
constexpr int kTries = 100;                           // to read what is being written

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

}  // namespace

struct alignas(64) StepBoard::Layout {
  // A value that one thread writes and others read whole: a reader that sees a new word sees the odd number behind it.
  template <class Value>
  class Copy {
   public:
    void write(const Value& value) noexcept {
      std::array<std::uint64_t, kWords> words{};
      std::memcpy(words.data(), &value, sizeof(Value));
      const std::uint64_t number = number_.load(std::memory_order_relaxed) | 1;
      number_.store(number, std::memory_order_relaxed);
      for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
      number_.store(number + 1, std::memory_order_release);
    }
    // Nothing: it was never written, or is being written.
    std::optional<Value> read() const {
      for (int attempt = 0; attempt < kTries; ++attempt) {
        const std::uint64_t number = number_.load(std::memory_order_acquire);
        if (number == 0) return std::nullopt;
        std::array<std::uint64_t, kWords> words;
        for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
        if (number % 2 == 1 || number_.load(std::memory_order_relaxed) != number) continue;
        Value value;
        std::memcpy(static_cast<void*>(&value), words.data(), sizeof(Value));
        return value;
      }
      return std::nullopt;
    }

   private:
    static_assert(std::is_trivially_copyable_v<Value>);
    static constexpr std::size_t kWords = (sizeof(Value) + 7) / 8;
    Word number_;
    std::array<Word, kWords> words_;
  };

  Word magic;
  std::atomic<std::int64_t> ended;  // relaxed: a number of its own
  std::array<Copy<BoardSums>, 2> sums;
  std::array<Copy<StepRecord>, kLast> last;  // by number of the step
};

const std::size_t StepBoard::kBytes = sizeof(Layout);

StepBoard::StepBoard(std::span<std::byte> memory) : layout_(*std::launder(reinterpret_cast<Layout*>(memory.data()))) {
  static_assert(sizeof(Layout) <= RunTable::kBoardBytes);
  HORO_CHECK(memory.size() >= sizeof(Layout) && reinterpret_cast<std::uintptr_t>(memory.data()) % alignof(Layout) == 0);
  if (const std::optional<View> before = read()) sums_ = before->sums;
}

void StepBoard::write(int rank, int size, const StepRecord& record) noexcept {
  sums_.rank = rank;
  sums_.size = size;
  sums_.add(record);
  const auto steps = static_cast<std::uint64_t>(sums_.steps);
  layout_.last[steps % kLast].write(record);
  layout_.sums[steps % 2].write(sums_);
  layout_.magic.store(kMagic, std::memory_order_release);
}

void StepBoard::end_step() noexcept {
  layout_.ended.fetch_add(1, std::memory_order_relaxed);
}

std::int64_t StepBoard::ended() const noexcept {
  return layout_.ended.load(std::memory_order_relaxed);
}

std::optional<StepBoard::View> StepBoard::read() const {
  if (layout_.magic.load(std::memory_order_acquire) != kMagic) return std::nullopt;
  std::optional<View> view;
  for (const auto& copy : layout_.sums) {
    const std::optional<BoardSums> sums = copy.read();
    if (sums && (!view || sums->steps > view->sums.steps)) view.emplace(View{*sums, {}});
  }
  if (!view) return std::nullopt;
  view->ended = ended();
  for (const auto& copy : layout_.last) {
    if (const std::optional<StepRecord> record = copy.read()) view->last.push_back(*record);
  }
  std::ranges::sort(view->last, {}, &StepRecord::end);
  return view;
}

void BoardSums::add(const StepRecord& record) {
  ++steps;
  const std::int64_t length = (record.end - record.begin).count();
  wall += length;
  for (std::size_t bar = 0; bar < kBars; ++bar) bars[bar] += record.bars[bar].count();
  const bool is_timed = (record.flags & kNoDeviceTime) == 0;
  if (is_timed || timed_steps == 0) {  // one step of a captured stream does not hide what the others tell
    const bool is_first = is_timed ? timed_steps == 0 : steps == 1;
    known = is_first ? record.known : known & record.known;
  }
  timed_steps += is_timed ? 1 : 0;
  hidden_transfer += std::max<std::int64_t>(record.hidden_transfer_ns, 0);
  hidden_copies += std::max<std::int64_t>(record.hidden_copies_ns, 0);
  collections += std::max<std::int64_t>(record.gc_ns, 0);
  run_queue += std::max<std::int64_t>(record.run_queue_ns, 0);
  if (record.samples >= 0) {
    ++sampled_steps;
    sampled_wall += length;
    samples += record.samples;
  }
  for (std::size_t i = 0; i < StepRecord::kLateRanks; ++i) {
    if (record.late_skews[i].count() <= 0) continue;
    auto found =
        std::ranges::find_if(late, [&](const Late& one) { return one.skew > 0 && one.rank == record.late_ranks[i]; });
    if (found == late.end()) {
      found = std::prev(late.end());
      *found = {record.late_ranks[i], 0, 0};
    }
    found->skew += record.late_skews[i].count();
    found->steps += i == 0 ? 1 : 0;
    std::ranges::stable_sort(late, std::ranges::greater(), &Late::skew);
  }
}

}  // namespace horo
