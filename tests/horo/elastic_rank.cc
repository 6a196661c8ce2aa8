// A rank of an elastic job that checks every result against an oracle, and that can end itself at a fail point.
// tools/soaks/survive.py starts it: elastic_rank PROGRAM STEPS SEED
//
// PROGRAM: plain, views, small, units, streams, rounds, singles, sets, shrinks, groups, failures, or mixed.
// HORO_CUDA_LIBRARY: the fake of the plug-in; the tensors count as tensors of a device. TEST_KILL and TEST_STOP: see
// kill_points.h. TEST_PAUSE_MS: after each step. TEST_RESULTS: a folder, in which each rank writes a line per result of
// the world: its number, its members, and the hash of all results so far. A rank with a notice leaves at the end of its
// step. At the end a rank prints one line: its number of results, their hash, the members of each of them, the same for
// results in the set that shrinks if it is a member of it, and the longest step.
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>

#include "horo/horo.h"
#include "tests/horo/elastic_values.h"
#include "tests/horo/kill_points.h"

namespace horo {
namespace {

constexpr std::size_t kSizes[] = {1000, 17, 5000, 1, 70'000, 300'000};
constexpr std::size_t kSmallTensors = 150;
constexpr int kFailures = 5'000;
constexpr std::uint64_t kStreams[] = {11, 12};
constexpr std::uint64_t kShrinkingStream = 13;

struct Tensor {
  Key key = 0;
  std::vector<float> own;
  float* data = nullptr;
  PlanId plan = 0;         // of the bucket that it lies in; 0: none
  std::uint64_t what = 0;  // of its values in this round
};

struct Stream {
  std::uint64_t number = 0;
  std::uint32_t set = 0;
  std::vector<Tensor> tensors = {};
  Key mask = 0, commit = 0;
  std::uint64_t values = 0;  // of tensors so far
};

class Program {
 public:
  Program(Session& session, int id, const std::string& kind, unsigned seed)
      : session_(session), id_(id), kind_(kind), random_(seed) {
    for (const std::uint64_t number : kStreams) streams_.push_back(declare(number, 0));
    const char* folder = std::getenv("TEST_RESULTS");
    if (folder != nullptr) world_.file.open(std::string(folder) + "/" + std::to_string(id));
    if (const char* pause = std::getenv("TEST_PAUSE_MS")) pause_ms_ = std::atoi(pause);
  }

  void run(int steps) {
    if (is("sets")) add_set();
    if (is("shrinks")) add_shrinking_set();
    for (int step = 0; step < steps && !session_.notice(); ++step) {
      const TimePoint begin = Clock::now();
      const int rounds = is("rounds") ? 1 + draw(3) : 1;
      for (int round = 0; round < rounds; ++round) run_round(streams_[0], world_, step, round);
      if (is("streams")) run_round(streams_[1], world_, step, 0);
      if (shrinking_) run_in_shrinking_set(step);
      if (is("singles")) run_singles(0, world_, step);
      if (is("failures") && step % 4 == 1) run_failures();
      if (is("groups")) run_group(step);
      if (is("sets")) run_in_set(step);
      if (is("sets") && step % 2 == 0) add_and_remove_set();
      session_.step_end(0);
      longest_ = std::max(longest_, Clock::now() - begin);
      ::poll(nullptr, 0, pause_ms_);
    }
    print();
  }

 private:
  Submission of(Key key, const void* in, void* out) { return submission_of(session_, key, in, out); }
  void run_one(const TensorSpec& spec, const void* in, void* out) { finish({session_.submit(spec, of(0, in, out))}); }
  bool is(const char* kind) const { return kind_ == kind || kind_ == "mixed"; }
  int draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  Stream declare(std::uint64_t number, std::uint32_t set) {
    Stream stream{number, set};
    std::vector<Tensor>& tensors = stream.tensors;
    std::vector<std::size_t> sizes(std::begin(kSizes), std::end(kSizes));
    if (is("small")) sizes.insert(sizes.end(), kSmallTensors, 33);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      TensorSpec spec;
      spec.set = set;
      spec.name = std::to_string(number) + "." + std::to_string(i);
      spec.op = ReduceOp::kAverage;
      spec.stepwise = true;
      spec.device = kDevice;
      spec.shape = {static_cast<std::int64_t>(sizes[i])};
      spec.round_stream = number;
      if (is("units") && i < 4) {
        spec.unit = "unit of " + std::to_string(number);
        spec.unit_size = 4;
      }
      tensors.push_back({session_.declare(spec), std::vector<float>(sizes[i])});
    }
    for (Tensor& tensor : tensors) tensor.data = tensor.own.data();
    TensorSpec mask;
    mask.set = set;
    mask.name = "mask " + std::to_string(number);
    mask.op = ReduceOp::kSum;
    mask.dtype = DType::kFloat64;
    mask.device = kDevice;
    mask.stepwise = true;
    mask.round_stream = number;
    stream.mask = session_.declare(mask);
    TensorSpec commit;
    commit.set = set;
    commit.name = "commit " + std::to_string(number);
    commit.kind = CollectiveKind::kBarrier;
    commit.round_stream = number;
    stream.commit = session_.declare(commit);
    return stream;
  }

  void run_round(Stream& stream, Results& results, int step, int round) {
    session_.begin_round(stream.set, stream.number, static_cast<std::uint64_t>(step),
                         static_cast<std::uint64_t>(round));
    std::vector<std::shared_ptr<Work>> works;
    for (Tensor& tensor : stream.tensors) {
      tensor.what = stream.number << 16 | ++stream.values;
      for (std::size_t i = 0; i < tensor.own.size(); ++i) tensor.data[i] = value_of(id_, tensor.what, i);
      if (!is("units")) works.push_back(session_.submit(of(tensor.key, tensor.data, tensor.data)));
    }
    if (is("units")) submit_units(stream, works);
    double mask = static_cast<double>(std::uint64_t{1} << id_);
    works.push_back(session_.submit(of(stream.mask, &mask, &mask)));
    works.push_back(session_.submit({stream.commit}));
    finish(works);
    const auto members = static_cast<std::uint64_t>(mask);
    results.add(members, &mask, sizeof mask);
    for (const Tensor& tensor : stream.tensors) {
      check(tensor, members);
      results.note(tensor.data, tensor.own.size() * sizeof(float));
    }
    results.record();
    if (is("views")) move_into_buckets(stream, works);
  }

  void submit_units(const Stream& stream, std::vector<std::shared_ptr<Work>>& works) {
    std::vector<Submission> submissions;
    for (const Tensor& tensor : stream.tensors) submissions.push_back(of(tensor.key, tensor.data, tensor.data));
    for (auto& work : session_.submit(submissions)) works.push_back(std::move(work));
  }

  void finish(const std::vector<std::shared_ptr<Work>>& works) {
    session_.wait(works, TimePoint::max());
    for (const auto& work : works) work->outcome();
  }

  void check(const Tensor& tensor, std::uint64_t members) {
    for (std::size_t i = 0; i < tensor.own.size(); i += 1 + tensor.own.size() / 50) {
      double sum = 0;
      int count = 0;
      for (int id = 0; id < 63; ++id) {
        if ((members >> id & 1) == 0) continue;
        sum += static_cast<double>(value_of(id, tensor.what, i));
        ++count;
      }
      if (std::abs(sum / count - static_cast<double>(tensor.data[i])) < 1e-5) continue;
      std::cerr << "member " << id_ << ": a result differs from the oracle: " << tensor.data[i] << ", expected "
                << sum / count << " of " << members << std::endl;
      std::exit(3);
    }
  }

  void move_into_buckets(Stream& stream, const std::vector<std::shared_ptr<Work>>& works) {
    const std::vector<BucketPlace> places = session_.places(std::span(works).first(stream.tensors.size()));
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (places[i].plan == 0) continue;
      Allocation& bucket = buckets_[places[i].plan];
      if (!bucket.data) bucket = session_.allocate(stream.set, places[i].bytes);
      stream.tensors[i].data = reinterpret_cast<float*>(bucket.data.get() + places[i].offset);
      stream.tensors[i].plan = places[i].plan;
    }
    std::erase_if(buckets_, [this](const auto& bucket) { return !holds_tensor(bucket.first); });
  }

  bool holds_tensor(PlanId plan) const {
    const auto is_in = [plan](const Tensor& one) { return one.plan == plan; };
    const auto has = [&](const Stream& stream) { return std::ranges::any_of(stream.tensors, is_in); };
    return std::ranges::any_of(streams_, has) || (shrinking_ && has(*shrinking_));
  }

  TensorSpec unnamed(CollectiveKind kind, std::uint32_t set) const {
    TensorSpec spec;
    spec.kind = kind;
    spec.set = set;
    spec.op = ReduceOp::kSum;
    spec.once = true;
    if (kind == CollectiveKind::kBarrier) return spec;
    spec.shape = {1};
    spec.dtype = DType::kFloat64;
    spec.device = kDevice;
    if (kind == CollectiveKind::kBroadcast) spec.root = 0;
    return spec;
  }

  void run_singles(std::uint32_t set, Results& results, int step) {
    double mask = static_cast<double>(std::uint64_t{1} << id_);
    run_one(unnamed(CollectiveKind::kAllReduce, set), &mask, &mask);
    results.add(static_cast<std::uint64_t>(mask), &mask, sizeof mask);
    const double mine = static_cast<double>(std::uint64_t{1} << id_);
    const auto work = session_.submit(unnamed(CollectiveKind::kAllGather, set), of(0, &mine, nullptr));
    finish({work});
    std::uint64_t members = 0;
    for (std::size_t i = 0; i < work->outcome().bytes / sizeof(double); ++i) {
      double one = 0;
      std::memcpy(&one, work->outcome().data.get() + i * sizeof one, sizeof one);
      members |= static_cast<std::uint64_t>(one);
    }
    results.add(members, work->outcome().data.get(), work->outcome().bytes);
    if (step % 3 == 0) run_one(unnamed(CollectiveKind::kBarrier, set), nullptr, nullptr);
    double from_root = step;
    note(results, end_of([&] { run_one(unnamed(CollectiveKind::kBroadcast, set), &from_root, &from_root); }));
  }

  // Tensors whose shapes differ between ranks; they run on a rank that is alone.
  void run_failures() {
    std::vector<double> data(static_cast<std::size_t>(id_) + 1);
    TensorSpec spec = unnamed(CollectiveKind::kAllReduce, 0);
    spec.shape = {id_ + 1};
    std::vector<std::shared_ptr<Work>> works;
    for (int i = 0; i < kFailures; ++i) works.push_back(session_.submit(spec, of(0, data.data(), data.data())));
    session_.wait(works, TimePoint::max());
    for (const auto& work : works) {
      const char end = end_of([&] { work->outcome(); });
      world_.note(&end, 1);
    }
  }

  // A unit of several kinds. One tensor names the last rank, whose number changes when a rank is lost.
  void run_group(int step) {
    std::vector<TensorSpec> specs = {unnamed(CollectiveKind::kAllReduce, 0), unnamed(CollectiveKind::kBroadcast, 0),
                                     unnamed(CollectiveKind::kAllReduce, 0)};
    specs[1].root = session_.topology().size - 1;
    specs[2].shape = {5'000};
    double mask = static_cast<double>(std::uint64_t{1} << id_), from_root = step;
    std::vector<double> many(5'000, mask);
    const auto works = session_.submit(
        Unit{"", specs, {of(0, &mask, &mask), of(0, &from_root, &from_root), of(0, many.data(), many.data())}});
    session_.wait(works, TimePoint::max());
    for (const auto& work : works) note(world_, end_of([&] { work->outcome(); }));
    if (ends_.ends_with("000")) {
      world_.add(static_cast<std::uint64_t>(mask), many.data(), many.size() * sizeof(double));
    }
  }

  // 1 if it fails because a rank was lost, 2 if it is refused, else 0: the same on all ranks.
  template <class Call>
  static char end_of(Call call) {
    try {
      call();
      return 0;
    } catch (const PeerLost&) {
      return 1;
    } catch (const Mismatch&) {
      return 2;
    } catch (const std::invalid_argument&) {
      return 2;
    }
  }

  void note(Results& results, char end) {
    results.note(&end, 1);
    if (&results == &world_) ends_ += static_cast<char>('0' + end);
  }

  // Adds a set of rank 0 alone, and removes it.
  void add_and_remove_set() {
    std::shared_ptr<Work> added;
    note(world_, end_of([&] {
           added = session_.add_set({0});
           finish({added});
         }));
    if (!added || !added->finished() || end_of([&] { added->outcome(); }) != 0) return;
    const auto number = static_cast<std::uint32_t>(added->outcome().counts.at(0));
    note(world_, end_of([&] { finish({session_.remove_set(number)}); }));
  }

  void add_set() {
    const int size = session_.topology().size;
    try {
      std::vector<int> ranks = {0};
      if (size > 1) ranks.push_back(1);
      if (size == 2) ranks.pop_back();
      const auto work = session_.add_set(ranks);
      finish({work});
      set_ = static_cast<std::uint32_t>(work->outcome().counts.at(0));
      is_in_set_ = session_.set_info(set_).rank >= 0;
    } catch (const PeerLost&) {
      is_in_set_ = false;
    } catch (const std::invalid_argument&) {
      is_in_set_ = false;  // after a death these are all ranks: there is no second set of them
    } catch (const Mismatch&) {
      is_in_set_ = false;  // the same, by a death after the call
    }
  }

  // Without the second rank, and without the first of two.
  void add_shrinking_set() {
    for (char end = 1; end == 1;) {
      const int size = session_.topology().size;
      if (size == 1) return;
      std::vector<int> ranks;
      for (int rank = 0; rank < size; ++rank) {
        if (rank != (size == 2 ? 0 : 1)) ranks.push_back(rank);
      }
      std::shared_ptr<Work> added;
      end = end_of([&] {
        added = session_.add_set(ranks, "", true);
        finish({added});
      });
      note(world_, end);
      if (end != 0) continue;
      const auto set = static_cast<std::uint32_t>(added->outcome().counts.at(0));
      const bool is_member = std::ranges::count(ranks, session_.topology().rank) > 0;
      if (is_member) shrinking_ = declare(kShrinkingStream, set);
    }
  }

  // What names ranks by number fails once on all members when they have changed; all else has the members that are
  // left.
  void run_in_shrinking_set(int step) {
    run_round(*shrinking_, in_set_, step, 0);
    run_singles(shrinking_->set, in_set_, step);
    std::vector<double> rows(12, static_cast<double>(std::uint64_t{1} << id_));
    TensorSpec spec = unnamed(CollectiveKind::kReduceScatter, shrinking_->set);
    spec.shape = {12};
    double part[12] = {};
    note(in_set_, end_of([&] { run_one(spec, rows.data(), part); }));
    spec.kind = CollectiveKind::kAllToAll;
    note(in_set_, end_of([&] { run_one(spec, rows.data(), nullptr); }));
  }

  void run_in_set(int step) {
    if (!is_in_set_) return;
    try {
      double value = step;
      run_one(unnamed(CollectiveKind::kAllReduce, set_), &value, &value);
    } catch (const PeerLost&) {
      is_in_set_ = false;
    }
  }

  void print() {
    std::cout << (session_.notice() ? "drained " : "survivor ") << id_ << " " << world_.text() << " ends " << ends_;
    if (shrinking_) std::cout << " set " << in_set_.text();
    std::cout << " longest " << std::chrono::duration_cast<std::chrono::milliseconds>(longest_).count() << " ms"
              << std::endl;
  }

  Session& session_;
  const int id_;
  const std::string kind_;
  std::minstd_rand random_;
  std::vector<Stream> streams_;
  std::map<PlanId, Allocation> buckets_;
  std::uint32_t set_ = 0;
  bool is_in_set_ = false;
  std::optional<Stream> shrinking_;
  Results world_, in_set_;
  std::string ends_;  // of collectives of the world that may fail
  Duration longest_{};
  int pause_ms_ = 0;
};

int run(int argc, char** argv) {
  if (argc != 4) return 2;
  const Config config = config_from_environment();
  read_kills(config.rank);
  Session session(config);
  Program(session, config.rank, argv[1], static_cast<unsigned>(std::atoi(argv[3]))).run(std::atoi(argv[2]));
  session.shutdown();
  forget_kills();
  return 0;
}

}  // namespace
}  // namespace horo

int main(int argc, char** argv) {
  try {
    return horo::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "elastic_rank: " << error.what() << std::endl;
    return 1;
  }
}
