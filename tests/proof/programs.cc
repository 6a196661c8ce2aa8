#include "tests/proof/programs.h"

#include <algorithm>
#include <array>
#include <random>
#include <sstream>

#include "horo/base/collective_kind.h"
#include "tests/proof/list.h"

namespace horo::proof {
namespace {

using Kind = CollectiveKind;

class ProgramAuthor {
 public:
  explicit ProgramAuthor(std::uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15 + 3) { program_.seed = seed; }

  Program write() {
    program_.size = pick(2, 5);
    std::vector<int> world;
    for (int rank = 0; rank < program_.size; ++rank) world.push_back(rank);
    program_.sets.push_back(world);
    while (program_.sets.size() < 4) add_set();
    for (std::size_t set = 0; set < program_.sets.size(); ++set) add_recurring(set);
    for (int phases = pick(1, 4); phases > 0; --phases) add_phase();
    if (chance(8)) add_crossing();
    if (chance(25)) add_joins();
    program_.removes_sets = chance(30);
    program_.over_tcp = chance(20);
    return std::move(program_);
  }

 private:
  int pick(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<unsigned>(most - least + 1));
  }
  bool chance(int percent) { return pick(1, 100) <= percent; }
  int members(std::uint32_t set) const { return static_cast<int>(program_.sets[set].size()); }
  std::uint32_t any_set() { return static_cast<std::uint32_t>(pick(0, 3)); }

  // Two sets of the same ranks are refused, and two ranks have only three sets; then the world gets one more rank.
  void add_set() {
    for (int tries = 0; tries < 50; ++tries) {
      std::vector<int> ranks;
      for (int rank = 0; rank < program_.size; ++rank) {
        if (chance(60)) ranks.push_back(rank);
      }
      if (ranks.empty() || std::find(program_.sets.begin(), program_.sets.end(), ranks) != program_.sets.end())
        continue;
      program_.sets.push_back(ranks);
      return;
    }
    ++program_.size;
    program_.sets[0].push_back(program_.size - 1);
  }

  // Gradients, which are equal in each phase so that they become known plans.
  void add_recurring(std::size_t set) {
    for (int i = pick(0, 3); i > 0; --i) {
      Item item;
      item.name = "grad" + std::to_string(recurring_.size());
      item.set = static_cast<std::uint32_t>(set);
      item.stepwise = true;
      item.averages = chance(50);
      item.is_coded = !item.averages && chance(20);
      item.count = pick(0, 50);
      recurring_.push_back(item);
    }
  }

  Item item() {
    static constexpr std::array kKinds = {Kind::kAllReduce, Kind::kAllReduce,     Kind::kAllGather, Kind::kBroadcast,
                                          Kind::kAllToAll,  Kind::kReduceScatter, Kind::kReduce,    Kind::kGather,
                                          Kind::kScatter,   Kind::kBarrier,       Kind::kSendRecv,  Kind::kSendRecv};
    Item item;
    item.set = any_set();
    item.kind = kKinds[static_cast<std::size_t>(pick(0, static_cast<int>(kKinds.size()) - 1))];
    if (item.kind == Kind::kSendRecv && members(item.set) < 2) item.kind = Kind::kBarrier;
    item.name = "t" + std::to_string(++serial_);
    item.count = chance(5) ? 0 : chance(90) ? pick(1, 60) : pick(1'000, 40'000);
    item.averages = item.kind == Kind::kAllReduce && chance(40);
    const int n = members(item.set);
    item.root = pick(0, n - 1);
    if (item.kind == Kind::kSendRecv) item.peer = (item.root + pick(1, n - 1)) % n;
    if (item.kind == Kind::kAllReduce && chance(15)) item.unit = pick(2, 4);
    item.is_coded = item.kind == Kind::kAllReduce && !item.averages && chance(20);
    for (int member = 0; item.kind == Kind::kAllReduce && chance(15) && member < n; ++member) {
      if (chance(50)) item.absent.push_back(member);
    }
    return item;
  }

  // Adds one of the mistakes that are possible for the item.
  void spoil(Item& item, bool may_stall) {
    std::vector<Mistake> mistakes;
    const int n = members(item.set);
    const bool is_message = item.kind == Kind::kSendRecv;
    if (n > 1 && item.kind != Kind::kBarrier) {
      mistakes = {Mistake::kType};
      if (reduces(item.kind) || item.kind == Kind::kBroadcast || is_message) mistakes.push_back(Mistake::kShape);
      if (has_root(item.kind) && !is_message) mistakes.push_back(Mistake::kRoot);
      if (reduces(item.kind)) mistakes.push_back(Mistake::kOperation);
    }
    if (n > 1 && may_stall) mistakes.push_back(Mistake::kMissing);
    if (n < program_.size) mistakes.push_back(Mistake::kOutside);
    if (mistakes.empty()) return;
    item.mistake = mistakes[static_cast<std::size_t>(pick(0, static_cast<int>(mistakes.size()) - 1))];
    item.culprit = pick(0, n - 1);
    if (is_message) item.culprit = chance(50) ? item.root : item.peer;
    const auto& ranks = program_.sets[item.set];
    while (item.mistake == Mistake::kOutside && std::count(ranks.begin(), ranks.end(), item.culprit) > 0) {
      item.culprit = pick(0, program_.size - 1);
    }
  }

  void add_phase() {
    Phase phase;
    const bool may_stall = chance(15);
    for (int items = pick(1, 10); items > 0; --items) {
      phase.items.push_back(item());
      if (chance(15)) spoil(phase.items.back(), may_stall);
    }
    for (const Item& item : recurring_) phase.items.push_back(item);
    program_.phases.push_back(phase);
  }

  void add_crossing() {
    Phase phase;
    phase.crossed = true;
    Item first = item();
    while (members(first.set) < 2) first = item();
    first.kind = Kind::kAllReduce;
    first.unit = 0;
    first.absent.clear();
    Item second = first;
    second.name += "b";
    phase.items = {first, second};
    program_.phases.push_back(phase);
  }

  // Mostly kinds that proceed without joined members, sometimes others.
  void add_joins() {
    Phase phase;
    phase.joining.resize(program_.sets.size());
    for (std::uint32_t set = 0; set < program_.sets.size(); ++set) {
      if (!chance(50)) continue;
      for (int member = 0; member < members(set); ++member) {
        if (chance(40)) phase.joining[set].push_back(member);
      }
      const auto& joining = phase.joining[set];
      if (joining.empty() || static_cast<int>(joining.size()) == members(set)) continue;
      for (int items = pick(1, 4); items > 0; --items) {
        Item one = item();
        while (one.kind == Kind::kSendRecv) one = item();
        one.set = set;
        one.root = one.root % members(set);
        one.absent.clear();
        if (one.kind != Kind::kAllReduce && one.kind != Kind::kBarrier) one.mistake = Mistake::kJoined;
        phase.items.push_back(one);
      }
    }
    program_.phases.push_back(phase);
  }

  std::mt19937_64 random_;
  Program program_;
  std::vector<Item> recurring_;
  int serial_ = 0;
};

}  // namespace

const char* name_of(Mistake mistake) {
  static constexpr std::array kNames = {"none",         "another shape",     "another type",
                                        "another root", "another operation", "missing",
                                        "joined",       "submitted outside"};
  return kNames[static_cast<std::size_t>(mistake)];
}

bool Program::stalls() const {
  return std::any_of(phases.begin(), phases.end(), [](const Phase& phase) {
    const auto is_missing = [](const Item& item) { return item.mistake == Mistake::kMissing; };
    return phase.crossed || std::any_of(phase.items.begin(), phase.items.end(), is_missing);
  });
}

Program draw_program(std::uint64_t seed) {
  return ProgramAuthor(seed).write();
}

std::string describe(const Item& item) {
  std::ostringstream out;
  out << name_of(item.kind) << " '" << item.name << "' of set " << item.set << ", count " << item.count;
  if (has_root(item.kind)) out << ", root " << item.root;
  if (item.peer >= 0) out << ", peer " << item.peer;
  if (item.unit > 0) out << ", a unit of " << item.unit;
  if (item.stepwise) out << ", stepwise";
  if (item.is_coded) out << ", coded";
  if (!item.absent.empty()) out << ", absent " << list(item.absent);
  if (item.mistake != Mistake::kNone) out << ", " << item.culprit << ": " << name_of(item.mistake);
  return out.str();
}

std::string describe(const Program& program) {
  std::ostringstream out;
  out << "seed " << program.seed << ": " << program.size << " ranks over " << (program.over_tcp ? "TCP" : "memory");
  for (std::size_t set = 1; set < program.sets.size(); ++set) out << ", set " << set << ": " << list(program.sets[set]);
  out << "\n";
  for (const Phase& phase : program.phases) {
    out << (phase.crossed ? "  crossed:\n" : "  phase:\n");
    for (std::size_t set = 0; set < phase.joining.size(); ++set) {
      if (!phase.joining[set].empty())
        out << "    of set " << set << " join first: " << list(phase.joining[set]) << "\n";
    }
    for (const Item& item : phase.items) out << "    " << describe(item) << "\n";
  }
  return out.str();
}

}  // namespace horo::proof
