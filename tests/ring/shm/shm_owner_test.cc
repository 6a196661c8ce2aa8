// Owner words: they show the death of a holder at once, and nothing else looks like one.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <latch>
#include <new>
#include <thread>

#include "horo/base/error.h"
#include "horo/base/owner.h"
#include "ring/shm/arena.h"
#include "tests/ring/program.h"

namespace horo::test {
namespace {

// A page of an anonymous file that a program inherits.
class SharedWord {
 public:
  SharedWord() : file_(::memfd_create("owner word", 0)) {
    if (::ftruncate(file_.get(), kBytes) != 0) throw std::runtime_error("ftruncate");
    at_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  }
  SharedWord(const SharedWord&) = delete;
  SharedWord& operator=(const SharedWord&) = delete;
  ~SharedWord() { ::munmap(at_, kBytes); }

  OwnerWord& word() const { return *static_cast<OwnerWord*>(at_); }
  std::vector<std::string> holder(const std::string& end) const {
    return {HORO_OWNER_HOLDER, std::to_string(file_.get()), end};
  }

 private:
  static constexpr std::size_t kBytes = 4096;
  Fd file_;
  void* at_ = nullptr;
};

// Runs a thread that ends while it holds the word.
void end_while_held(OwnerWord& word) {
  alignas(OwnerHold) std::byte place[sizeof(OwnerHold)];
  std::thread([&] { new (place) OwnerHold(word); }).join();
}

TEST(ShmOwner, AWordThatWasNeverHeldShowsNoDeath) {
  const OwnerWord word{0};
  EXPECT_FALSE(has_died(word));
}

TEST(ShmOwner, AHolderThatLivesOrReleasedTheWordHasNotDied) {
  OwnerWord word{0};
  {
    const OwnerHold hold(word);
    EXPECT_NE(word.load(), 0u);
    EXPECT_FALSE(has_died(word));
  }
  EXPECT_EQ(word.load(), 0u);
}

TEST(ShmOwner, AThreadThatEndsWhileItHoldsTheWordHasDied) {
  OwnerWord word{0};
  end_while_held(word);
  EXPECT_TRUE(has_died(word));
}

TEST(ShmOwner, AThreadMayHoldOneWordAfterTheOther) {
  OwnerWord first{0}, second{0};
  std::thread([&] {
    { const OwnerHold hold(first); }
    alignas(OwnerHold) static std::byte place[sizeof(OwnerHold)];
    new (place) OwnerHold(second);
  }).join();
  EXPECT_FALSE(has_died(first));
  EXPECT_TRUE(has_died(second));
}

TEST(ShmOwner, AKilledProcessHasDied) {
  const SharedWord shared;
  auto holder = std::make_unique<Program>(shared.holder("kill"));
  ASSERT_EQ(holder->line(), "held");
  EXPECT_FALSE(has_died(shared.word()));
  holder.reset();
  EXPECT_TRUE(has_died(shared.word()));
}

TEST(ShmOwner, AProcessThatReleasesTheWordHasNotDied) {
  const SharedWord shared;
  auto holder = std::make_unique<Program>(shared.holder("leave"));
  ASSERT_EQ(holder->line(), "held");
  ASSERT_EQ(holder->line(), "left");
  holder.reset();
  EXPECT_FALSE(has_died(shared.word()));
}

// The owner word of rank 1 shows its death while its connections stay open. Returns what the other ranks throw in
// `wait`.
std::vector<std::exception_ptr> wait_for_the_dead(const std::function<void(Rank&)>& wait) {
  std::latch others(2);
  return run_ranks({3, Wire::kShm, {}}, [&](Rank& rank) {
    if (rank.index() != 1) {
      const std::unique_ptr<std::latch, void (*)(std::latch*)> ends(&others, [](std::latch* l) { l->count_down(); });
      return wait(rank);
    }
    end_while_held(rank.links.arenas->own()->owner_word());
    others.wait();
  });
}

void expect_loss_of_rank_1(const std::exception_ptr& error) {
  EXPECT_EQ(origin_of(error), 1);
  EXPECT_NE(message_of(error).find("rank 1 is lost: its process ended without a goodbye"), std::string::npos)
      << message_of(error);
}

TEST(ShmOwner, ADeathEndsAWaitForMessages) {
  const auto errors = wait_for_the_dead([](Rank& rank) {
    float value = 0;
    const auto op = rank.transport().post_recv(1, {}, std::as_writable_bytes(std::span(&value, 1)));
    rank.transport().wait(std::span(&op, 1), soon());
  });
  expect_loss_of_rank_1(errors[0]);
  expect_loss_of_rank_1(errors[2]);
}

TEST(ShmOwner, ADeathEndsAWaitInSharedMemory) {
  const auto errors = wait_for_the_dead([](Rank& rank) {
    std::vector<float> data(1'000, 1.f);
    Collective c;
    c.contributors = {0, 1, 2};
    c.counts = {data.size()};
    c.in = c.out = {reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(float)};
    c.deadline = soon();
    rank.group->run(c);
  });
  expect_loss_of_rank_1(errors[0]);
  expect_loss_of_rank_1(errors[2]);
}

}  // namespace
}  // namespace horo::test
