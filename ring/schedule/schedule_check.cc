// Values are expressions (ring/schedule/expressions.h) at places (area, chunk). Where in and out share memory, both are
// the places of out.

#include "ring/schedule/schedule_check.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <stdexcept>

#include "horo/base/say.h"
#include "ring/schedule/expressions.h"
#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

enum class Form { kRaw, kPartial, kFinal };

struct Value {
  Form form = Form::kRaw;
  int node = 0;
};

using Place = std::pair<int, int>;  // area, chunk

class Execution {
 public:
  Execution(const Shape& shape, const std::vector<Schedule>& schedules, bool in_place)
      : shape_(shape), schedules_(schedules), in_place_(in_place), held_(schedules.size()), base_(schedules.size()) {}

  Proof run() {
    check_headers();
    for (int member = 0; member < shape_.size; ++member) fill_input(member);
    const std::size_t rounds = schedules_.front().rounds.size();
    for (round_ = 0; round_ < rounds; ++round_) {
      for (int member = 0; member < shape_.size; ++member) send_all(member);
      for (int member = 0; member < shape_.size; ++member) receive_all(member);
      expect_all_received();
      for (int member = 0; member < shape_.size; ++member) combine_all(member);
    }
    return check_outputs();
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(int member, const Parts&... parts) const {
    throw std::invalid_argument(
        say("schedule ", schedules_.front().name, ", member ", member, ", round ", round_, ": ", parts...));
  }

  const Schedule& schedule_of(int member) const { return schedules_[static_cast<std::size_t>(member)]; }
  const Round& round_of(int member) const { return schedule_of(member).rounds[round_]; }
  std::map<Place, Value>& held(int member) { return held_[static_cast<std::size_t>(member)]; }
  int size() const { return shape_.size; }

  void check_headers() const {
    if (schedules_.size() != static_cast<std::size_t>(size())) {
      throw std::invalid_argument(say(schedules_.size(), " schedules for ", size(), " members"));
    }
    const Schedule& first = schedules_.front();
    for (int member = 0; member < size(); ++member) {
      const Schedule& one = schedule_of(member);
      if (one.member != member || one.size != size())
        refuse(member, "written for member ", one.member, " of ", one.size);
      if (one.kind != shape_.kind) refuse(member, "is for ", name_of(one.kind), ", not for ", name_of(shape_.kind));
      if (one.name != first.name || one.order != first.order)
        refuse(member, "differs in name or order from member 0's");
      for (const Scratch& scratch : one.scratch) check_scratch(member, scratch);
      if (one.chunks != first.chunks) refuse(member, one.chunks, " chunks, member 0 has ", first.chunks);
      if (one.rounds.size() != first.rounds.size()) {
        refuse(member, one.rounds.size(), " rounds, member 0 has ", first.rounds.size());
      }
    }
    if (shape_.kind == CollectiveKind::kBarrier) refuse(0, "a barrier has no schedule");
    if (first.chunks < 1 || (expected_chunks() > 0 && first.chunks != expected_chunks())) {
      refuse(0, first.chunks, " chunks, expected ", expected_chunks());
    }
  }

  void check_scratch(int member, const Scratch& scratch) const {
    const int base = scratch.base == Scratch::kFloating ? 0 : scratch.base;
    if (scratch.chunks < 1 || base < 0 || base > schedule_of(member).chunks - scratch.chunks) {
      refuse(member, "a scratch area for ", scratch.chunks, " of ", schedule_of(member).chunks, " chunks from ", base,
             " on");
    }
  }

  // The number of chunks of this kind; 0: any number.
  int expected_chunks() const {
    switch (shape_.kind) {
      case CollectiveKind::kAllToAll:
        return size() * size();
      case CollectiveKind::kReduceScatter:
      case CollectiveKind::kAllGather:
      case CollectiveKind::kGather:
      case CollectiveKind::kScatter:
        return size();
      default:
        return 0;
    }
  }

  // Whether the chunk is part of the member's input.
  bool has_input(int member, int chunk) const {
    switch (shape_.kind) {
      case CollectiveKind::kAllToAll:
        return chunk / size() == member;
      case CollectiveKind::kAllGather:
      case CollectiveKind::kGather:
        return chunk == member;
      case CollectiveKind::kBroadcast:
      case CollectiveKind::kScatter:
        return member == shape_.root;
      default:
        return contributes(shape_, member);
    }
  }
  bool wants_output(int member, int chunk) const {
    switch (shape_.kind) {
      case CollectiveKind::kAllToAll:
        return chunk % size() == member;
      case CollectiveKind::kReduceScatter:
      case CollectiveKind::kScatter:
        return chunk == member;
      case CollectiveKind::kReduce:
      case CollectiveKind::kGather:
        return member == shape_.root;
      default:
        return true;
    }
  }

  void fill_input(int member) {
    for (int chunk = 0; chunk < schedule_of(member).chunks; ++chunk) {
      if (!has_input(member, chunk)) continue;
      held(member)[place(member, Schedule::kIn, chunk)] = {Form::kRaw, expressions_.leaf(origin(member, chunk))};
    }
  }
  int origin(int member, int chunk) const { return reduces(shape_.kind) ? member : chunk; }

  Place place(int member, int area, int chunk) const {
    if (chunk < 0 || chunk >= schedule_of(member).chunks) refuse(member, "there is no chunk ", chunk);
    if (area < 0 || area >= Schedule::kFirstScratch + static_cast<int>(schedule_of(member).scratch.size())) {
      refuse(member, "there is no area ", area);
    }
    return {in_place_ && area == Schedule::kIn ? static_cast<int>(Schedule::kOut) : area, chunk};
  }

  const Value& read(int member, int area, int chunk) {
    const auto found = held(member).find(place(member, area, chunk));
    if (found == held(member).end())
      refuse(member, "reads chunk ", chunk, " of area ", area, ", which has not been written");
    if (area == Schedule::kIn && found->second.form != Form::kRaw) {
      refuse(member, "reads chunk ", chunk, " of its input, which was overwritten");
    }
    return found->second;
  }

  void write(int member, int area, int chunk, const Value& value) {
    const Place to = place(member, area, chunk);
    if (area == Schedule::kIn) refuse(member, "writes to its input");
    if (area == Schedule::kOut) {
      if (!wants_output(member, chunk))
        refuse(member, "writes chunk ", chunk, " to its output, which does not have that chunk");
      const Form form = reduces(shape_.kind) ? Form::kFinal : Form::kRaw;
      if (value.form != form) refuse(member, "writes a partial result of chunk ", chunk, " to its output");
    } else {
      const Scratch& scratch = schedule_of(member).scratch[static_cast<std::size_t>(area - Schedule::kFirstScratch)];
      if (value.form == Form::kFinal || (value.form == Form::kPartial) != scratch.accumulates) {
        refuse(member, "area ", area, " does not hold values of this form");
      }
    }
    held(member)[to] = value;
  }

  // Prepares a write of a run of chunks: refuses it if the area is too small, and drops the chunks that a floating area
  // held before. `busy`: places of this round's messages.
  void make_room(int member, const Part& part, const std::set<Place>* busy) {
    if (part.count < 1) refuse(member, "an empty run of chunks");
    if (part.area < Schedule::kFirstScratch) return;
    place(member, part.area, part.first);
    place(member, part.area, part.first + part.count - 1);
    const Scratch& scratch = schedule_of(member).scratch[static_cast<std::size_t>(part.area - Schedule::kFirstScratch)];
    if (scratch.base != Scratch::kFloating) {
      if (part.first < scratch.base || part.first + part.count > scratch.base + scratch.chunks) {
        refuse(member, "area ", part.area, " has no room for chunk ", part.first, " to ", part.first + part.count - 1);
      }
      return;
    }
    if (part.count > scratch.chunks) refuse(member, "area ", part.area, " has room for ", scratch.chunks, " chunks");
    Part& run = base_[static_cast<std::size_t>(member)].try_emplace(part.area, Part{part.area, 0, 0}).first->second;
    if (part.first >= run.first && part.first + part.count <= run.first + run.count) return;
    for (int chunk = run.first; chunk < run.first + run.count; ++chunk) {
      if (busy != nullptr && busy->contains({part.area, chunk})) {
        refuse(member, "receives into area ", part.area, " while it sends from there");
      }
      held(member).erase({part.area, chunk});
    }
    run = part;
  }

  void send_all(int member) {
    for (const Message& message : round_of(member).send) {
      if (message.peer < 0 || message.peer >= size() || message.peer == member) {
        refuse(member, "sends to member ", message.peer);
      }
      Payload payload{message.part.first, {}};
      for (int i = 0; i < message.part.count; ++i) {
        payload.values.push_back(read(member, message.part.area, message.part.first + i));
      }
      if (payload.values.empty()) refuse(member, "sends an empty run of chunks");
      for (const Value& value : payload.values) {
        if (value.form != payload.values.front().form) refuse(member, "sends chunks of several forms in one message");
      }
      in_flight_[{member, message.peer}].push_back(payload);
    }
  }

  void receive_all(int member) {
    std::set<Place> busy;
    for (const Message& message : round_of(member).send) {
      for (int i = 0; i < message.part.count; ++i) {
        busy.insert(place(member, message.part.area, message.part.first + i));
      }
    }
    for (const Message& message : round_of(member).receive) {
      auto& queue = in_flight_[{message.peer, member}];
      if (queue.empty()) refuse(member, "waits for a message of member ", message.peer, ", which sends none");
      const Payload payload = queue.front();
      queue.pop_front();
      if (payload.first != message.part.first ||
          payload.values.size() != static_cast<std::size_t>(message.part.count)) {
        refuse(member, "expects chunk ", message.part.first, " (", message.part.count, ") of member ", message.peer,
               ", which sends chunk ", payload.first, " (", payload.values.size(), ")");
      }
      make_room(member, message.part, &busy);
      for (int i = 0; i < message.part.count; ++i) {
        const int chunk = message.part.first + i;
        if (!busy.insert(place(member, message.part.area, chunk)).second) {
          refuse(member, "receives chunk ", chunk, " into area ", message.part.area, ", which is in use in this round");
        }
        write(member, message.part.area, chunk, payload.values[static_cast<std::size_t>(i)]);
      }
    }
  }

  void expect_all_received() const {
    for (const auto& [pair, queue] : in_flight_) {
      if (!queue.empty()) refuse(pair.second, "does not receive what member ", pair.first, " sends");
    }
  }

  void combine_all(int member) {
    for (const Combine& combine : round_of(member).combine) {
      std::vector<Value> values;
      for (int i = 0; i < combine.to.count; ++i) values.push_back(evaluate(member, combine, combine.to.first + i));
      make_room(member, combine.to, nullptr);
      for (int i = 0; i < combine.to.count; ++i) {
        write(member, combine.to.area, combine.to.first + i, values[static_cast<std::size_t>(i)]);
      }
    }
  }

  Value evaluate(int member, const Combine& combine, int chunk) {
    std::vector<int> stack;
    for (const int step : combine.tree) {
      if (step != Combine::kJoin) {
        const Value& value = read(member, step, chunk);
        if (value.form == Form::kFinal) refuse(member, "combines chunk ", chunk, ", which is a final result");
        stack.push_back(value.node);
        continue;
      }
      if (stack.size() < 2) refuse(member, "a combine of chunk ", chunk, " joins fewer than two values");
      if (!reduces(shape_.kind)) refuse(member, "combines chunks in ", name_of(shape_.kind));
      const int right = stack.back();
      stack.pop_back();
      if (const int twice = expressions_.common_origin(stack.back(), right); twice >= 0) {
        refuse(member, "adds member ", twice, "'s contribution to chunk ", chunk, " twice");
      }
      stack.back() = expressions_.join(stack.back(), right);
    }
    if (stack.size() != 1) refuse(member, "a combine of chunk ", chunk, " leaves ", stack.size(), " values");
    const bool to_out = combine.to.area == Schedule::kOut;
    if (!reduces(shape_.kind)) return {Form::kRaw, stack.front()};
    return {to_out ? Form::kFinal : Form::kPartial, stack.front()};
  }

  Proof check_outputs() {
    Proof proof;
    proof.rounds = static_cast<int>(schedules_.front().rounds.size());
    const std::vector<TreeNode> nodes = canonical_nodes(shape_);
    for (int member = 0; member < size(); ++member) {
      for (int chunk = 0; chunk < schedule_of(member).chunks; ++chunk) {
        if (!wants_output(member, chunk) || (reduces(shape_.kind) && nodes.empty())) continue;
        const auto found = held(member).find({Schedule::kOut, chunk});
        if (found == held(member).end()) refuse(member, "ends without chunk ", chunk);
        reduces(shape_.kind) ? check_sum(member, chunk, found->second, nodes, proof)
                             : check_copy(member, chunk, found->second);
      }
    }
    if (schedules_.front().order == Order::kCanonical && proof.order != Order::kCanonical) {
      throw std::invalid_argument(
          say("schedule ", schedules_.front().name, ": sums as ", proof.sum, ", which is not the canonical order"));
    }
    return proof;
  }

  void check_copy(int member, int chunk, const Value& value) {
    if (value.node != expressions_.leaf(chunk)) refuse(member, "ends with another chunk in place of ", chunk);
  }

  void check_sum(int member, int chunk, const Value& value, const std::vector<TreeNode>& nodes, Proof& proof) {
    if (value.form != Form::kFinal) refuse(member, "ends with a partial result of chunk ", chunk);
    if (const auto [same, is_new] = sums_.try_emplace(chunk, value.node); !is_new && same->second != value.node) {
      refuse(member, "ends with another sum of chunk ", chunk, " than an earlier member");
    }
    for (int other = 0; other < size(); ++other) {
      const std::vector<int>& origins = expressions_.origins(value.node);
      const bool has = std::binary_search(origins.begin(), origins.end(), other);
      if (contributes(shape_, other) && !has)
        refuse(member, "chunk ", chunk, " lacks member ", other, "'s contribution");
    }
    if (proof.sum.empty()) proof.sum = expressions_.print(value.node);
    if (value.node != canonical(nodes)) proof.order = Order::kFast;
  }

  int canonical(const std::vector<TreeNode>& nodes) {
    if (canonical_ >= 0) return canonical_;
    std::vector<int> number;
    for (const TreeNode& node : nodes) {
      number.push_back(node.left < 0 ? expressions_.leaf(node.member)
                                     : expressions_.join(number[static_cast<std::size_t>(node.left)],
                                                         number[static_cast<std::size_t>(node.right)]));
    }
    return canonical_ = number.back();
  }

  struct Payload {
    int first = 0;
    std::vector<Value> values;
  };

  const Shape& shape_;
  const std::vector<Schedule>& schedules_;
  const bool in_place_;
  Expressions expressions_;
  std::vector<std::map<Place, Value>> held_;                      // by member
  std::vector<std::map<int, Part>> base_;                         // by member: the run that a floating area holds
  std::map<std::pair<int, int>, std::deque<Payload>> in_flight_;  // by sender and receiver
  std::map<int, int> sums_;                                       // by chunk: the node of the first member's sum
  int canonical_ = -1;                                            // node of the canonical sum; -1: not made yet
  std::size_t round_ = 0;
};

}  // namespace

Proof check_schedule(const Shape& shape, const std::vector<Schedule>& schedules) {
  if (schedules.empty()) throw std::invalid_argument("no schedules");
  if (cuts_evenly(shape.kind)) Execution(shape, schedules, true).run();
  return Execution(shape, schedules, false).run();
}

}  // namespace horo
