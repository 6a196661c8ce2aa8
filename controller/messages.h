// What coordinators say to one another. Up: a rank to the leader, what became ready there. Down: the leader to all, an
// ordered list of items that every rank applies in order, the leader's own rank too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "controller/coordinator.h"

namespace horo {

using TensorId = std::uint32_t;  // number of a (name, spec) that was released once; equal on all ranks

// What a tensor is called in the world.
struct TensorName {
  std::uint32_t set = 0;
  std::uint32_t channel = 0;
  std::string name;
  bool operator==(const TensorName&) const = default;
  bool operator<(const TensorName& o) const {
    return std::tie(set, channel, name) < std::tie(o.set, o.channel, o.name);
  }
};
TensorName name_of(const TensorSpec& spec);

// ---- Up.

// A tensor that has no id yet: all that must be equal on all ranks.
struct Request {
  TensorSpec spec;
  bool absent = false;
};
// A known plan is ready here, but for these of its tensors (positions in the plan, ascending), which are absent.
struct PartialPlan {
  PlanId plan = 0;
  std::vector<std::uint32_t> absent_slots;
};
// Diagnose this rank's callers are; at most kMaxAnswerBytes.
struct Diagnosis {
  std::uint64_t question = 0;
  std::string where;
};
struct UpMessage {
  // How many Down messages the sender had applied when it sent this. A report that crossed its tensor's failure belongs
  // to what failed, not to what comes next: this is how the leader knows.
  std::uint64_t applied = 0;
  std::vector<PlanId> active;  // counts before all that follows
  std::vector<Request> requests;
  std::vector<TensorId> present;
  std::vector<TensorId> absent;
  std::vector<PlanId> plans;
  std::vector<PartialPlan> partial_plans;
  std::vector<Diagnosis> answers;
  std::vector<std::uint32_t> ended;  // sets whose step ended: from their first member, where that is not the leader
  std::vector<Done> done;

  bool empty() const { return !has_names() && !has_bits() && answers.empty() && ended.empty() && done.empty(); }
  bool has_names() const { return !requests.empty(); }
  bool has_bits() const {
    return !active.empty() || !present.empty() || !absent.empty() || !plans.empty() || !partial_plans.empty();
  }
};

// ---- Down.

// A tensor by name, by id, or by both: then the name has this id from now on.
struct TensorRef {
  std::optional<TensorName> name;
  std::optional<TensorId> id;
};
// One bucket, to be reduced now. Of one set.
struct ReleaseTensors {
  std::vector<TensorRef> tensors;
  std::vector<int> absent_ranks;
  std::vector<int> ranks = {};  // who takes part; empty: all members of the set
  bool reports_done = false;    // the first of them reports to the leader when it is over
};
struct SkipTensors {
  std::vector<TensorRef> tensors;
  std::vector<int> ranks = {};  // as above
};
// Tensors of a known plan that are absent on some ranks: each is a bucket of its own, after the others.
struct SlotAbsence {
  std::uint32_t slot = 0;
  std::vector<int> ranks;  // all of them: the tensor is skipped
};
struct ReleasePlan {
  PlanId plan = 0;
  std::vector<SlotAbsence> exceptions;  // by ascending slot
  bool reports_done = false;            // as above
};
struct DefinePlan {
  PlanId plan = 0;  // from 1, in order of definition
  std::vector<TensorId> tensors;
};
struct DissolvePlan {
  PlanId plan = 0;
};
// Tensors that fail together; each one's text is its head and then what all have in common.
struct FailTensors {
  struct Tensor {
    TensorName name;
    bool once = false;  // a rank that has yet to submit it fails then
    std::string head;
  };
  std::vector<Tensor> tensors;
  std::string text;
  std::vector<int> missing;  // ranks that were waited for too long: they say so in their log
};
// A process set exists from here on; the tensor is its add_process_set.
struct DefineSet {
  TensorRef tensor;
  std::uint32_t set = 0;  // from 1, in order of definition
  std::string name;
  std::vector<int> ranks;
};
// It exists no more, nor what was reported in it; the tensor is its remove_process_set.
struct EndSet {
  TensorRef tensor;
  std::uint32_t set = 0;
};
// Of the set's members none has joined any more: all had, or, if there is a text, some never will.
struct JoinOver {
  std::uint32_t set = 0;
  int last = 0;  // rank in the set
  std::string text;
};
// Asks where the callers are.
struct RequestDiagnosis {
  std::uint64_t question = 0;
};
using DownItem = std::variant<ReleaseTensors, SkipTensors, ReleasePlan, DefinePlan, DissolvePlan, FailTensors,
                              RequestDiagnosis, DefineSet, EndSet, JoinOver>;
struct DownMessage {
  std::vector<DownItem> items;

  bool has_names() const;
  bool has_bits() const;
};

// Decoding throws ProtocolError for whatever encode() would not write under this configuration's limits, and allocates
// no more than a small multiple of the message or of max_tensors.
std::vector<std::byte> encode(UpMessage message);
std::vector<std::byte> encode(const DownMessage& message);
UpMessage decode_up(std::span<const std::byte> bytes, const CoordinatorConfig& config);
DownMessage decode_down(std::span<const std::byte> bytes, const CoordinatorConfig& config);

}  // namespace horo
